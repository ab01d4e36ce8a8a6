"""DQN in a plain script: torch's Adam and a loop, no run and no processes.

The target network is a copy of the network, updated every 100 updates. A transition has up to three steps.

    python examples/dqn.py      the last 100 episodes of CartPole have a mean return of 196 after 20,000 steps: 20 s
"""

from __future__ import annotations

import random
import sys

import gymnasium
import numpy as np
import torch
from torch import nn

from hive import ReplayBuffer
from hive.algorithms import QLoss
from hive.compat.autonomous import FixedTarget, QNetwork

BATCH, DISCOUNT, EXPLORATION, WARM_UP = 64, 0.98, 4_000, 1_000


def train(steps: int, seed: int, target_updates: int = 100) -> list[float]:
    """Train for this many environment steps; return the returns of all complete episodes."""
    torch.manual_seed(seed)
    random.seed(seed)
    network = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    q = QNetwork(network, adam, target=FixedTarget(target_updates), clip_grad=10.0)
    env, returns = gymnasium.make("CartPole-v1"), [0.0]
    replay = ReplayBuffer(((4,), "float32"), ((), "int64"), capacity=20_000, n_step=3, discount=DISCOUNT, seed=seed)
    state, _ = env.reset(seed=seed)
    replay.begin(state)
    for step in range(steps):
        if random.random() < max(0.05, 1.0 - step / EXPLORATION):
            action = random.randrange(2)
        else:
            action = int(q.no_grad(torch.from_numpy(state)[None]).argmax())
        after, reward, terminated, truncated, _ = env.step(action)
        state, returns[-1] = after, returns[-1] + float(reward)
        if terminated or truncated:
            state, _ = env.reset()
            returns.append(0.0)
        replay.add(action, float(reward), terminated, truncated, after, state)
        if step >= WARM_UP:
            batch = replay.sample(BATCH)
            best = q.target(torch.from_numpy(batch.next_observations)).amax(-1)
            targets = (
                torch.from_numpy(batch.returns) + torch.from_numpy(batch.discounts) * best
            )  # 0 after a termination
            q.reinforce(QLoss(torch.from_numpy(batch.observations), torch.from_numpy(batch.actions), targets))
    return returns[:-1]


if __name__ == "__main__":
    torch.set_num_threads(1)
    last = train(20_000, seed=0)[-100:]
    sys.stdout.write(f"mean return of the last {len(last)} episodes: {np.mean(last):.0f}\n")
