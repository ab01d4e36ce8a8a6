"""C51 in a plain script: the distribution of the return on 51 atoms instead of its mean (Bellemare et al. 2017).

The loop is that of dqn.py. The loss differs: the cross-entropy to the target's distribution, projected onto the atoms.

    python examples/c51.py      the last 100 episodes of CartPole have a mean return of 180 after 20,000 steps: 25 s
"""

from __future__ import annotations

import random
import sys
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from hive.compat.autonomous import FixedTarget, QDist

BATCH, DISCOUNT, EXPLORATION, WARM_UP = 64, 0.98, 4_000, 1_000
ACTIONS, ATOMS, LOWEST, HIGHEST = 2, 51, 0.0, 55.0  # a return of CartPole is at most 1 / (1 - 0.98)


def train(steps: int, seed: int) -> list[float]:
    """Train for this many environment steps; return the returns of all complete episodes."""
    torch.manual_seed(seed)
    random.seed(seed)
    network = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, ACTIONS * ATOMS))
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    q = QDist(network, adam, ACTIONS, ATOMS, LOWEST, HIGHEST, target=FixedTarget(100))
    env, replay, returns = gymnasium.make("CartPole-v1"), deque[Any](maxlen=20_000), [0.0]
    state, _ = env.reset(seed=seed)
    for step in range(steps):
        if random.random() < max(0.05, 1.0 - step / EXPLORATION):
            action = random.randrange(ACTIONS)
        else:
            action = int((q.no_grad(torch.from_numpy(state)[None]) @ q.atoms).argmax())
        after, reward, terminated, truncated, _ = env.step(action)
        replay.append((state, action, np.float32(reward), after, not terminated))
        state, returns[-1] = after, returns[-1] + float(reward)
        if terminated or truncated:
            state, _ = env.reset()
            returns.append(0.0)
        if step >= WARM_UP:
            columns = zip(*random.sample(replay, BATCH), strict=True)
            states, actions, rewards, following, live = (torch.from_numpy(np.array(column)) for column in columns)
            next_states = {"observation": following, "mask": live}  # after a terminal state the return is 0
            best = (q.target(next_states) @ q.atoms).argmax(-1)
            targets = q.project(q.target(next_states, best), rewards[:, None] + DISCOUNT * q.atoms)
            q.reinforce(-(targets * (q(states, actions) + 1e-8).log()).sum(-1).mean())
    return returns[:-1]


if __name__ == "__main__":
    torch.set_num_threads(1)
    last = train(20_000, seed=0)[-100:]
    sys.stdout.write(f"mean return of the last {len(last)} episodes: {np.mean(last):.0f}\n")
