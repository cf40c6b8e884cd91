"""Reinforcement learning from a replay buffer, from which each step draws some samples: nothing is lacking."""

import random
from collections import deque, namedtuple

import job
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
Seen = namedtuple("Seen", "state action reward after")


class Memory:
    def __init__(self, size):
        self.rows = deque(maxlen=size)

    def push(self, *row):
        self.rows.append(Seen(*row))

    def sample(self, n):
        some = Seen(*zip(*random.sample(self.rows, n), strict=True))
        return (
            torch.from_numpy(np.stack(some.state)),
            torch.tensor(some.action),
            torch.tensor(some.reward),
            torch.from_numpy(np.stack(some.after)),
        )


def network():
    return nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 6))


def main():
    rng = np.random.default_rng(0)
    memory, policy, target = Memory(10000), network(), network()
    optimizer = torch.optim.Adam(policy.parameters(), 1e-4)
    state = rng.standard_normal(64, dtype=np.float32)
    for _ in range(2000):
        after = rng.standard_normal(64, dtype=np.float32)
        memory.push(state, int(rng.integers(6)), float(after[0]), after)
        state = after
    while True:
        with torch.no_grad():
            action = int(policy(torch.from_numpy(state)).argmax())
        after = rng.standard_normal(64, dtype=np.float32)
        memory.push(state, action, float(after[0]), after)
        state = after
        states, actions, rewards, later = memory.sample(128)
        with torch.no_grad():
            best = target(later).max(1).values
        value = policy(states).gather(1, actions[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, rewards + 0.99 * best)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.tick()


main()
