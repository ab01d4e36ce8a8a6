"""Evolution strategies (Salimans et al. 2017): learn a policy by trial, without gradients or a network library.

    breeder ── parents (a board: one version a generation) ──> testers
       ^                                                          │
       └───────────── results (slabs: one a candidate) ───────────┘

A candidate is the parent plus noise, and its mirror image the parent minus the same noise. The candidate's number
determines the noise, so a result is only two numbers: the difference of the returns, and their mean. The next parent is
the old one, moved towards the better candidates.

Each tester has a fixed share of every generation, and its next candidate is the number of results it has committed. So
the same seed gives the same parents, whichever actor is killed at any time.

    python examples/evolution.py      CartPole-v1 to a mean of 475 over a generation, in 8 s
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import hive

SHAPE = (2, 4)  # a linear policy: two actions, four observations
PARENT = hive.Layout({"policy": ("float64", SHAPE), "mean_return": ("float64", ())})
RESULT = hive.Layout({"difference": ("float64", ()), "mean_return": ("float64", ())})


class Parent(hive.Message):
    """breeder -> testers. The policy that a generation varies, and the mean return of the previous generation."""


class Result(hive.Message):
    """tester -> breeder. The return of one candidate less its mirror image's, and the mean of both."""


def noise(seed: int, generation: int, candidate: int) -> NDArray[np.float64]:
    return np.random.default_rng((seed, generation, candidate)).standard_normal(SHAPE)


def play(environment: Any, policy: NDArray[np.float64], seed: int) -> float:
    """Return the return of one episode."""
    total, (observation, _), over = 0.0, environment.reset(seed=seed), False
    while not over:
        observation, reward, terminated, truncated, _ = environment.step(int((policy @ observation).argmax()))
        total, over = total + float(reward), terminated or truncated
    return total


class Tester(hive.Actor):
    parents = hive.Subscription(Parent)
    results = hive.SlotOutlet(Result)

    def __init__(self, seed: int, share: int, sigma: float) -> None:
        self.seed, self.share, self.sigma = seed, share, sigma  # share: candidates per generation
        self.environment = gymnasium.make("CartPole-v1", disable_env_checker=True)

    async def run(self) -> None:
        while True:
            slot = await self.results.reserve()
            generation, turn = divmod(slot.sequence, self.share)
            _, block = await self.parents.pin(generation)
            candidate = turn + self.index * self.share
            step = self.sigma * noise(self.seed, generation, candidate)
            policy, start = PARENT.views(block)["policy"], candidate + generation * 1000
            plus, minus = (play(self.environment, policy + way * step, start) for way in (1, -1))
            slot.arrays["difference"][...], slot.arrays["mean_return"][...] = plus - minus, (plus + minus) / 2
            self.parents.unpin()
            self.results.commit(slot)


class Breeder(hive.Actor):
    results = hive.SlotInlet(Result)
    parents = hive.Publication(Parent)

    def __init__(self, seed: int, share: int, rate: float = 0.5, goal: float = 475.0) -> None:
        self.seed, self.share, self.rate, self.goal = seed, share, rate, goal

    async def setup(self) -> None:
        if self.parents.latest < 0:  # otherwise an earlier incarnation has published it
            self.parents.begin()[:] = 0
            self.parents.publish(0)

    async def run(self) -> None:
        generation, lines = self.parents.latest, self.results.lines
        for tester in lines.producers:
            while lines.first_left(tester) < generation * self.share:  # used, but not retired before a kill
                lines.retire(await self.results.claim(tester))
        while (parent := PARENT.views(self.parents.board.read(generation)))["mean_return"] < self.goal:
            first, share = generation * self.share, range(self.share)
            slots = [await self.results.claim(tester, first + n) for tester in lines.producers for n in share]
            child = PARENT.views(self.parents.begin())
            differences = np.array([slot.arrays["difference"] for slot in slots])
            weights = differences / (differences.std() + 1e-8) / len(slots)
            noises = [noise(self.seed, generation, candidate) for candidate in range(len(slots))]
            child["policy"][...] = parent["policy"] + self.rate * np.tensordot(weights, noises, 1)
            child["mean_return"][...] = np.mean([slot.arrays["mean_return"] for slot in slots])
            generation += 1
            self.parents.publish(generation)
            for slot in slots:  # retired only after publication: slots not retired are offered to a successor
                lines.retire(slot)
        self.end_run(f"mean return {parent['mean_return']:.1f} after {generation} generations")


def topology(config: hive.Config) -> hive.Topology:
    t, seed, share = hive.Topology(), config.run.seed, 16
    testers = t.add(Tester, count=2, seed=seed, share=share, sigma=0.1)
    breeder = t.add(Breeder, seed=seed, share=share)
    t.connect(breeder.parents, testers.parents, hive.Board(PARENT.bytes))
    t.connect(testers.results, breeder.results, hive.Slots(RESULT, slots=share + 1, on_death="reoffer"))
    t.digest(breeder.parents, PARENT.bytes)
    return t


if __name__ == "__main__":
    hive.run(topology)
