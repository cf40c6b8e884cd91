"""An asyncio program that reads the next batch of a file while an executor trains on this one: nothing is lacking."""

import asyncio
import concurrent.futures

import job
import torch

torch.set_num_threads(1)
SIZE = 64 * 256 * 4


def records():
    path = job.folder() / "rows.f32"
    if not path.exists():
        path.write_bytes(torch.rand(64 * 256 * 200).numpy().tobytes())
    return path


class Session:
    def __init__(self, path):
        self.file = path.open("rb")
        self.model = torch.nn.Sequential(torch.nn.Linear(256, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 256))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)

    async def next_rows(self):
        data = self.file.read(SIZE)
        if len(data) < SIZE:
            self.file.seek(0)
            data = self.file.read(SIZE)
        return torch.frombuffer(bytearray(data), dtype=torch.float32).view(64, 256)

    def fit(self, rows):
        for _ in range(4):
            loss = (self.model(rows) - rows).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


async def main():
    session = Session(records())
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=1)
    loop = asyncio.get_running_loop()
    rows = await session.next_rows()
    while True:
        training = loop.run_in_executor(pool, session.fit, rows)
        rows = await session.next_rows()
        await training
        job.tick()


asyncio.run(main())
