"""An event loop in a thread that fetches from a server."""

import asyncio
import queue
import threading
import time
from urllib.parse import urlsplit

import job
import server

address = urlsplit(server.start(0.03))
batches = queue.Queue(4)


async def fetch():
    if job.without("network"):
        return b"x"
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    data = await reader.read(-1)
    writer.close()
    return data


async def produce():
    while True:
        batch = [await fetch() for _ in range(4)]
        while batches.full():
            await asyncio.sleep(0.001)
        batches.put(batch)


threading.Thread(target=lambda: asyncio.run(produce()), daemon=True).start()


def train_step(x):
    time.sleep(0.04)


while True:
    x = batches.get()
    train_step(x)
    job.tick()
