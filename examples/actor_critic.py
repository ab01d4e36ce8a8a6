"""An actor-critic with shared features in a plain script: two heads learn, then the features from both gradients.

    states ── features ──┬── v        the value of a state, 0 after a terminal one
                         └── policy   logits of the actions

Each episode of CartPole is one update. Losses and checkpoints are written to a folder, and a second call resumes
training from the newest checkpoint. If an Identity replaces the features, each head is a whole network.

    python examples/actor_critic.py      the last 100 episodes of 600 have a mean return of 235: 10 s
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from hive import JsonlSink
from hive.compat.autonomous import (
    Approximation,
    FeatureNetwork,
    Identity,
    PeriodicCheckpointer,
    PolyakTarget,
    SinkWriter,
    VNetwork,
)

DISCOUNT, ENTROPY, WIDTH = 0.99, 0.01, 128
OBSERVATION, ACTIONS = 4, 2


class Agent:
    """An actor-critic that saves every `saved_every` updates to `folder`. shared: whether the heads share features."""

    def __init__(self, folder: Path, seed: int, shared: bool = True, saved_every: int = 100) -> None:
        torch.manual_seed(seed)
        folder.mkdir(parents=True, exist_ok=True)
        self.writer = SinkWriter(JsonlSink(folder / "metrics.jsonl"), str(folder))
        self.checkpointers: list[PeriodicCheckpointer] = []

        def settings(network: nn.Module, rate: float, **more: Any) -> dict[str, Any]:
            self.checkpointers.append(PeriodicCheckpointer(saved_every, keep=1, background=False))
            adam = torch.optim.Adam(network.parameters(), lr=rate)
            return {"model": network, "optimizer": adam, "writer": self.writer, **more} | {
                "checkpointer": self.checkpointers[-1]
            }

        def head(outputs: int) -> nn.Module:
            below = [] if shared else [nn.Linear(OBSERVATION, WIDTH), nn.ReLU()]
            return nn.Sequential(*below, nn.Linear(WIDTH, outputs))

        self.features: Approximation = Identity("cpu")
        if shared:
            trunk = nn.Sequential(nn.Linear(OBSERVATION, WIDTH), nn.ReLU())
            self.features = FeatureNetwork(**settings(trunk, 4e-3, target=PolyakTarget(0.05)))
        self.v = VNetwork(**settings(head(1), 4e-3, target=PolyakTarget(0.05), loss_scaling=0.5))
        self.policy = Approximation(**settings(head(ACTIONS), 4e-3, name="policy", clip_grad=0.5))

    def act(self, state: np.ndarray) -> int:
        logits = self.policy.no_grad(self.features.no_grad(torch.from_numpy(state)[None]))
        return int(Categorical(logits=logits).sample())

    def learn(self, states: Tensor, actions: Tensor, rewards: list[float], last: dict[str, Tensor]) -> None:
        """Make one update from an episode. last: the state after it, with a mask of 0 if it is terminal."""
        value, returns = float(self.v.target(self.features.target(last))), []
        for reward in reversed(rewards):
            value = reward + DISCOUNT * value
            returns.append(value)
        targets = torch.tensor(returns[::-1])
        features = self.features(states)
        values, chances = self.v(features), Categorical(logits=self.policy(features))
        advantages = (targets - values).detach()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        self.v.reinforce(nn.functional.huber_loss(values, targets))
        self.policy.reinforce(-(chances.log_prob(actions) * advantages + ENTROPY * chances.entropy()).mean())
        self.features.reinforce()


def train(agent: Agent, episodes: int, seed: int) -> list[float]:
    """Train, resuming from checkpoints in the agent's folder; return the returns of the episodes."""
    for checkpointer in agent.checkpointers:
        checkpointer.restore()
    env, returns = gymnasium.make("CartPole-v1"), []
    state, _ = env.reset(seed=seed)
    for _ in range(episodes):
        states, actions, rewards, over = [state], [], [], False
        while not over:
            actions.append(agent.act(state))
            state, reward, terminated, truncated, _ = env.step(actions[-1])
            states.append(state)
            rewards.append(float(reward))
            over = terminated or truncated
        agent.writer.frames += len(rewards)
        observations = torch.from_numpy(np.stack(states))
        last = {"observation": observations[-1:], "mask": torch.tensor([not terminated])}
        agent.learn(observations[:-1], torch.tensor(actions), rewards, last)
        returns.append(sum(rewards))
        state, _ = env.reset()
    agent.writer.close()
    return returns


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/actor_critic")
    last = train(Agent(folder, seed=0), 600, seed=0)[-100:]
    sys.stdout.write(f"mean return of the last {len(last)} episodes: {np.mean(last):.0f}\n")
