"""nanoGPT's way with tokens in memory and a model: nothing is lacking."""

import job
import numpy as np
import torch

torch.set_num_threads(1)
tokens = np.random.default_rng(0).integers(0, 512, 1 << 20).astype(np.uint16)
model = torch.nn.Sequential(torch.nn.Embedding(512, 128), torch.nn.Linear(128, 512))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)


def get_batch():
    at = torch.randint(len(tokens) - 129, (16,))
    x = torch.stack([torch.from_numpy(tokens[i : i + 128].astype(np.int64)) for i in at])
    y = torch.stack([torch.from_numpy(tokens[i + 1 : i + 129].astype(np.int64)) for i in at])
    return x, y


def main():
    while True:
        x, y = get_batch()
        for _ in range(4):
            loss = torch.nn.functional.cross_entropy(model(x).view(-1, 512), y.view(-1))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        job.tick()


main()
