"""A curriculum: the evaluator measures how far the policy gets, and the collectors practise the next level.

    evaluator ── evaluations ──> curriculum ── levels (broadcast) ──> collectors

The lock opens after the right one of four actions, sixteen times in a row, and gives no reward before that: random
actions open it once in four billion episodes. But locks with fewer digits can be practised. The evaluator always plays
the whole lock, until its first mistake, so the mean length of its episodes is the number of digits that the policy
knows plus one. The collectors practise with that many digits.

    python examples/curriculum.py      the whole lock, opened by every episode of an evaluation, in 20 s
"""

from __future__ import annotations

import asyncio
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import hive

DIGITS, CHOICES = 16, 4


class Lock(gymnasium.Env[NDArray[np.float32], np.int64]):
    """The observation is how many digits are right so far, one-hot. A wrong digit ends the episode without a reward.

    The last of `digits` right ones gives a reward of 1.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (DIGITS + 1,), np.float32)
    action_space = gymnasium.spaces.Discrete(CHOICES)
    code = np.random.default_rng(7).integers(CHOICES, size=DIGITS)

    def __init__(self, digits: int = DIGITS) -> None:
        self.digits, self.right = digits, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.right = 0
        return self.seen(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        wrong = action != self.code[self.right]
        self.right += not wrong
        opened = self.right == self.digits
        return self.seen(), float(opened), bool(wrong or opened), False, {}

    def seen(self) -> NDArray[np.float32]:
        seen: NDArray[np.float32] = np.eye(DIGITS + 1, dtype=np.float32)[self.right]
        return seen


class SetLevel(hive.Message):
    """curriculum -> collectors. The number of digits to practise with; sent after every evaluation."""

    digits: int


class Curriculum(hive.Actor):
    evaluations = hive.Inlet(hive.Evaluation)
    levels = hive.Outlet(SetLevel, pattern="broadcast")

    async def run(self) -> None:
        level = 1
        async for evaluation in self.evaluations:
            if evaluation.mean_return == 1.0:
                self.end_run(
                    f"a lock of {evaluation.mean_length:.0f} digits is open after {evaluation.env_steps:,} steps"
                )
            known = round(evaluation.mean_length) - 1
            if known >= level:
                level = min(known + 1, DIGITS)
                self.note("level", f"{known} digits are known: level {level}")
            await self.levels.send(SetLevel(level))


class Pupil(hive.CollectorActor):
    """A collector whose environments have the level that it received last."""

    levels = hive.Inlet(SetLevel)
    level = 1

    def vector(self) -> hive.VectorEnvironment:
        return self.blueprint.vector(contexts=self.contexts(), digits=self.level)

    async def run(self) -> None:
        await asyncio.gather(super().run(), self.listen())

    async def listen(self) -> None:
        async for message in self.levels:
            if message.digits != self.level:
                self.level = message.digits
                self.collector.rebuild(self.vector(), self.reset_round)


def topology(config: hive.Config) -> hive.Topology:
    t = hive.schemes.build(config)
    curriculum = t.add(Curriculum)
    t.replace("collectors", Pupil)
    t.connect(t["evaluator"].evaluations, curriculum.evaluations)
    t.connect(curriculum.levels, t["collectors"].levels)
    return t


CONFIG = {
    "run": {"steps": 5_000_000},
    "env": {"id": "curriculum:Lock"},
    "collection": {"workers": 2, "envs": 8, "rollout": 16},
    "algorithm": {"learning_rate": 3e-3, "entropy_weight": 0.01},
    "evaluation": {"every": {"updates": 20}, "envs": 1, "episodes": 1},
}

if __name__ == "__main__":
    hive.run(topology, CONFIG)
