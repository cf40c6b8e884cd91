"""Coroutines that fetch records from a server and pass each batch to an executor, which trains on it."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import job
import server

address = urlsplit(server.start(0.05))


async def record(number):
    if job.without("network"):
        return b"x" * 64
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(f"GET /{number} HTTP/1.1\r\nHost: records\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read(-1)
    writer.close()
    await writer.wait_closed()
    return answer


class Learner:
    def __init__(self):
        self.seen = 0

    def train_on(self, records):
        self.seen += len(records)
        self.optimizer_step()

    def optimizer_step(self):
        time.sleep(0.03)


async def main():
    learner, number = Learner(), 0
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        while True:
            records = []
            for _ in range(2):
                records.append(await record(number))
                number += 1
            await loop.run_in_executor(pool, learner.train_on, records)
            job.tick()


asyncio.run(main())
