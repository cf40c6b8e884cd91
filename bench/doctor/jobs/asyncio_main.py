"""A training loop that is itself a coroutine and fetches from a server."""

import asyncio
import time
from urllib.parse import urlsplit

import job
import server

address = urlsplit(server.start(0.02))


async def fetch():
    if job.without("network"):
        return b"x"
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    data = await reader.read(-1)
    writer.close()
    return data


def train_step(x):
    time.sleep(0.02)


async def main():
    while True:
        x = [await fetch() for _ in range(3)]
        train_step(x)
        job.tick()


asyncio.run(main())
