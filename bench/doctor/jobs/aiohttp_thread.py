"""A thread with an event loop that fetches with aiohttp into a queue."""

import asyncio
import queue
import threading
import time

import aiohttp
import job
import server

ADDRESS = server.start(0.02)
batches = queue.Queue(4)


async def fetch(session):
    if job.without("network"):
        return b"x" * 64
    async with session.get(ADDRESS) as answer:
        return await answer.read()


async def produce():
    async with aiohttp.ClientSession() as session:
        while True:
            batch = [await fetch(session) for _ in range(4)]
            while batches.full():
                await asyncio.sleep(0.001)
            batches.put(batch)


threading.Thread(target=lambda: asyncio.run(produce()), daemon=True).start()


def train_step(batch):
    time.sleep(0.02)


while True:
    train_step(batches.get())
    job.tick()
