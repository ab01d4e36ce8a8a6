"""Population-based training (Jaderberg et al. 2017): members train in parallel, and the worst copies the best.

    members ── report(name, score, rate, state) ──> population
            <── next learning rate and state ──────

Each member is a `hive.Trainer`, a whole trainer in one process. Initial learning rates are random between 1e-5
and 1e-1. After every generation a member reports its score. If it is the worst member, it continues with the whole
state of the best, including the optimizer's moments, and with the best one's learning rate, slightly changed. No member
waits for another, and a member that is killed continues from its last report.

    python examples/population.py      CartPole-v1 to a mean return of 475 over 100 episodes, in 6 to 26 s
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import hive


class Population(hive.Actor):
    """Keeps the last report of every member, and replies with the state to continue from."""

    numbered = False

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.known: dict[str, tuple[float, float, bytes]] = {}  # member -> score, learning rate, state

    @hive.endpoint
    async def last(self, name: str) -> tuple[float, bytes] | None:
        """Return the learning rate and state that the member last continued from; None before its first report."""
        return self.known[name][1:] if name in self.known else None

    @hive.endpoint
    async def report(self, name: str, score: float, rate: float, state: bytes) -> tuple[float, bytes]:
        """Return the learning rate and state to continue from: the member's own, or those of the best."""
        self.known[name] = score, rate, state
        ranking = sorted(self.known, key=lambda member: self.known[member][0])
        if name == ranking[0] != ranking[-1]:
            best, (_, good, state) = ranking[-1], self.known[ranking[-1]]
            self.note("exploited", f"{name} ({score:.1f}, {rate:.1e}) continues as {best} ({good:.1e})")
            self.known[name] = score, float(good * self.random.choice([0.8, 1.25])), state
        return self.known[name][1:]


class Member(hive.Actor):
    """Trains, reports, and continues from the state that the population returns."""

    def __init__(self, config: hive.Config, population: hive.Handle, updates: int = 50) -> None:
        self.population, self.updates = population, updates  # updates: updates per generation
        self.trainer = hive.Trainer(config, self.index, self.incarnation, self.status)
        self.random = np.random.default_rng([config.run.seed, self.index])

    async def run(self) -> None:
        rate, state = 10 ** self.random.uniform(-5, -1), self.trainer.state
        if (saved := await self.population.last(self.name)) is not None:
            rate, state = saved
        while True:
            self.trainer.state = state
            self.trainer.set("learning_rate", rate)
            steps = sum(self.trainer.train() for _ in range(self.updates))
            score = self.trainer.mean_return_100 or 0.0
            self.progress(steps, score)
            rate, state = await self.population.report(self.name, score, rate, self.trainer.state)


def topology(config: hive.Config) -> hive.Topology:
    t = hive.Topology()
    population = t.add(Population, seed=config.run.seed)
    t.add(Member, count=4, config=config, population=population.handle())
    return t


if __name__ == "__main__":
    hive.run(topology, Path(__file__).with_name("cartpole.toml"))
