"""Topologies that a user writes around the built-in trainer: an inserted actor, other evaluators, a tuner, a file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import hive
from hive.runtime import Slot
from hive.training import EvaluatorActor, RolloutReady, Trainer

EVERY = 10  # a curiosity actor crashes at each tenth rollout that it takes
RESTARTS = 4  # of workers, after which the tuner ends the run


class Forwarder(hive.Actor):
    """Copies the rollouts of the collector with the same index, with changed rewards."""

    rollouts = hive.SlotInlet(RolloutReady)
    passed = hive.SlotOutlet(RolloutReady)

    async def forward(self, taken: Slot, bonus: float) -> None:
        """Pass a claimed rollout on, unless an earlier incarnation has done so before it crashed."""
        if taken.sequence >= self.passed.produced:
            slot = await self.passed.reserve()
            for name, array in slot.arrays.items():
                array[...] = taken.arrays[name]
            slot.arrays["rewards"][...] += bonus
            self.passed.commit(slot)


class Curiosity(Forwarder):
    """Crashes with every tenth rollout claimed, in turns before and after it has passed it on."""

    async def run(self) -> None:
        for count in itertools.count(1):
            taken = await self.rollouts.claim(self.index)
            if count < EVERY or self.incarnation % 2:
                await self.forward(taken, 0.01)
            if count == EVERY:
                raise RuntimeError(f"curiosity broke at rollout {taken.sequence}")
            self.rollouts.retire(taken)


def curiosity(config: hive.Config) -> hive.Topology:
    t = hive.schemes.build(config)
    t.insert(t["collectors"].rollouts, t.add(Curiosity, count=2), "rollouts", "passed")
    return t


def one_for_all(config: hive.Config) -> hive.Topology:
    t = hive.schemes.build(config)
    t.insert(t["collectors"].rollouts, t.add(Curiosity), "rollouts", "passed")
    return t


class Noted(EvaluatorActor):
    """An evaluator that notes what it has evaluated."""

    async def setup(self) -> None:
        await super().setup()
        self.note("evaluates", f"with index {self.index}")


def evaluators(config: hive.Config) -> hive.Topology:
    t = hive.schemes.build(config)
    t.replace("evaluator", Noted)
    return t


class Rewards(Forwarder):
    """Adds the bonus of the last line of a file to all rewards. A person or another program appends lines."""

    def __init__(self, file: str = "") -> None:
        self.file = Path(file)

    async def run(self) -> None:
        known = 0
        while True:
            taken = await self.rollouts.claim(self.index)
            labels = [float(json.loads(line)["bonus"]) for line in self.file.read_text().splitlines()]
            if len(labels) > known:
                known = len(labels)
                self.note("label", f"bonus {labels[-1]} from rollout {taken.sequence}")
            await self.forward(taken, labels[-1])
            self.rollouts.retire(taken)


def rewards(config: hive.Config) -> hive.Topology:
    t = hive.schemes.build(config)
    t.insert(t["collectors"].rollouts, t.add(Rewards), "rollouts", "passed")
    return t


class Tuner(hive.Actor):
    """Restarts a worker whose score is below the median of its generation, without waiting for the others."""

    numbered = False

    def __init__(self, seed: int, workers: Sequence[hive.Handle] = ()) -> None:
        self.draws, self.workers = np.random.default_rng(seed), workers
        self.rates: dict[int, float] = {}
        self.scores: dict[int, list[float]] = {}
        self.restarted = 0

    @hive.endpoint
    async def rate_of(self, index: int) -> float:
        return self.rates.setdefault(index, float(10 ** self.draws.uniform(-5, -1)))

    @hive.endpoint
    async def report(self, index: int, generation: int, score: float) -> None:
        if index not in self.rates:
            return  # from a worker whose restart was asked for and has not happened yet
        scores = self.scores.setdefault(generation, [])
        scores.append(score)
        if len(scores) > 1 and score < np.median(scores):
            if self.restarted == RESTARTS:
                if len(self.rates) == len(self.workers):  # the last one restarted is back
                    self.end_run("tuned")
                return
            self.restarted += 1
            self.restart_actor(self.workers[index], f"score {score:.1f} with {self.rates.pop(index):.1e}")


class Worker(hive.Actor):
    def __init__(self, config: hive.Config, tuner: hive.Handle) -> None:
        self.tuner = tuner
        self.trainer = Trainer(config, self.index, self.incarnation, self.status)

    async def run(self) -> None:
        self.trainer.set("learning_rate", await self.tuner.rate_of(self.index))
        for generation in itertools.count():
            steps = sum(self.trainer.train() for _ in range(10))
            score = self.trainer.mean_return_100 or 0.0
            self.progress(steps, score)
            await self.tuner.report(self.index, generation, score)


def tuned(config: hive.Config) -> hive.Topology:
    t = hive.Topology()
    tuner = t.add(Tuner, seed=config.run.seed)
    workers = t.add(Worker, count=3, config=config, tuner=tuner.handle())
    t.replace(tuner, Tuner, workers=[workers.handle(i) for i in range(3)])
    return t
