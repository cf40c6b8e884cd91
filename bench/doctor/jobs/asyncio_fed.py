"""A coroutine that fills a queue in time for a loop of coroutines: nothing is lacking."""

import asyncio
import time

import job


async def produce(queue):
    n = 0
    while True:
        n += 1
        await queue.put([float(n)] * 64)


def train_step(batch):
    time.sleep(0.04)


async def main():
    queue = asyncio.Queue(8)
    producer = asyncio.create_task(produce(queue))
    while not producer.done():
        batch = await queue.get()
        await asyncio.to_thread(train_step, batch)
        job.tick()


asyncio.run(main())
