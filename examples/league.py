"""Self-play against a league of earlier policies, one of them picked at random for every game.

    learner ── metrics, behaviour ──> league ── opponents (broadcast) ──> collectors

The game is Nim: two players take one, two or three of up to 21 stones in turn, and the player who takes the last one
wins. A policy that beats the league joins it, as the table of its choices. Playing against all earlier policies keeps
the learner from going in circles. Perfect play is known (leave a multiple of four), so the league can end the run.

    python examples/league.py      the right move in all 16 positions that can be won, in 10 to 40 s
"""

from __future__ import annotations

import asyncio
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

import hive
from hive.networks import FlatParameters

STONES, CHOICES, MEMBERS, BETTER = 21, 3, 100, 0.2  # a policy with a mean return above BETTER joins
SEEN = np.eye(STONES + 1, dtype=np.float32)  # [stones]: the observation
ANYTHING = np.full((1, STONES + 1, CHOICES), 1 / CHOICES)  # a league of one table of probabilities, by stones


class Nim(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Nim: a reward of 1 for the last stone, -1 if the opponent takes it. Each game draws an opponent of `league`."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (STONES + 1,), np.float32)
    action_space = gymnasium.spaces.Discrete(CHOICES)

    def __init__(self, league: Any = ANYTHING) -> None:
        self.league = league

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.opponent = self.league[self.np_random.integers(len(self.league))]
        self.stones = int(self.np_random.integers(1, STONES + 1))
        return SEEN[self.stones], {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.stones, winner = max(self.stones - 1 - int(action), 0), 1.0
        if self.stones:
            answer = int(self.np_random.choice(CHOICES, p=self.opponent[self.stones]))
            self.stones, winner = max(self.stones - 1 - answer, 0), -1.0
        return SEEN[self.stones], winner * (self.stones == 0), self.stones == 0, False, {}


class Opponents(hive.Message):  # league -> collectors; sent with every report
    tables: np.ndarray  # float64 [members, STONES + 1, CHOICES]


class League(hive.Actor):
    metrics = hive.Inlet(hive.Metrics)
    behaviour = hive.Subscription(hive.Weights)
    opponents = hive.Outlet(Opponents, pattern="broadcast")

    def __init__(self, blueprint: hive.Blueprint, goal: int = 16) -> None:
        self.network, self.goal = blueprint.network(), goal
        self.flat = FlatParameters(self.network)

    async def run(self) -> None:
        tables, piles = list(ANYTHING), np.arange(1, STONES + 1)
        async for report in self.metrics:
            _, weights = await self.behaviour.pin()
            self.flat.bind(weights, read_only=True)
            with torch.inference_mode():
                table = self.network(torch.from_numpy(SEEN))[0].double().softmax(1).numpy()
            self.behaviour.unpin()
            right = (table[piles].argmax(1) == piles % 4 - 1)[piles % 4 > 0]
            if right.sum() >= self.goal:
                self.end_run(f"{right.sum()} right moves of {right.size}, against {len(tables)} members")
            if report.values["return/mean_100"] > BETTER:
                tables = [*tables[-MEMBERS + 1 :], table]  # a full league loses its oldest, which punish few errors
                self.note("joined", f"member {len(tables)} of the league: {right.sum()} right moves of {right.size}")
            await self.opponents.send(Opponents(np.stack(tables)))


class Player(hive.CollectorActor):
    opponents = hive.Inlet(Opponents)

    def vector(self) -> hive.VectorEnvironment:
        self.league = list(ANYTHING)  # until the first message
        return self.blueprint.vector(contexts=self.contexts(), league=self.league)

    async def run(self) -> None:
        await asyncio.gather(super().run(), self.listen())

    async def listen(self) -> None:
        async for message in self.opponents:
            self.league[:] = message.tables


def topology(config: hive.Config) -> hive.Topology:
    t = hive.schemes.build(config)
    league = t.add(League, blueprint=hive.schemes.blueprint_of(t))
    t.replace("collectors", Player)
    t.connect(t["learner"].metrics, league.metrics)
    t.connect(t["learner"].behaviour, league.behaviour)
    t.connect(league.opponents, t["collectors"].opponents)
    return t


CONFIG = {
    "run": {"steps": 20_000_000},
    "env": {"id": "league:Nim"},
    "collection": {"workers": 2, "envs": 16, "rollout": 16},
    "algorithm": {"learning_rate": 3e-3, "entropy_weight": 0.05, "discount": 1.0},
    "record": {"every_s": 0.2},
}

if __name__ == "__main__":
    hive.run(topology, CONFIG)
