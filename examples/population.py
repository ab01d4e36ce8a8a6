"""Population-based training (Jaderberg et al. 2017): members train in parallel, and the worst copies the best.

    members ── report(name, score, rate, state) ──> population
            <── next learning rate and state ──────

Each member is a whole trainer in one process, built from the objects that the built-in actors wrap. Initial learning
rates are random between 1e-5 and 1e-1. After every generation a member reports its score. If it is the worst member, it
continues with the whole state of the best, including the optimizer's moments, and with the best one's learning rate,
slightly changed. No member waits for another, and a member that is killed continues from its last report.

    python examples/population.py      CartPole-v1 to a mean return of 475 over 100 episodes, in 50 s
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

import hive
from hive.networks import aligned_block
from hive.workers import Blueprint, GWorker


class Population(hive.Actor):
    """Keeps the last report of every member, and replies with the state to continue from."""

    numbered = False

    def __init__(self, seed: int, goal: float = 475.0) -> None:
        self.random, self.goal = np.random.default_rng(seed), goal
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
        if score >= self.goal:
            self.end_run(f"mean return {score:.1f} with a learning rate of {rate:.1e}")
        elif name == ranking[0] != ranking[-1]:
            best, (_, good, state) = ranking[-1], self.known[ranking[-1]]
            self.note("exploited", f"{name} ({score:.1f}, {rate:.1e}) continues as {best} ({good:.1e})")
            self.known[name] = score, float(good * self.random.choice([0.8, 1.25])), state
        return self.known[name][1:]


class Member(hive.Actor):
    """A trainer in one process."""

    def __init__(self, blueprint: Blueprint, population: hive.Handle, updates: int = 50) -> None:
        self.population, self.updates = population, updates  # updates: updates per generation
        self.collector = blueprint.collector(self.index, self.incarnation, self.status)
        self.worker = GWorker.of_run(blueprint, self.index, self.status)
        self.learner = blueprint.learner(self.status)
        rollout, gradient = blueprint.rollout_layout, blueprint.gradient_layout(1)
        self.rollout = rollout.views(aligned_block(rollout.bytes))
        self.gradient = gradient.views(aligned_block(gradient.bytes))
        sizes = blueprint.state.bytes, blueprint.optimizer_state_bytes
        self.before, self.after = ((aligned_block(sizes[0]), aligned_block(sizes[1])) for _ in range(2))
        blueprint.initialize(*self.before)

    async def run(self) -> None:
        rate = float(10 ** np.random.default_rng(self.collector.seed + self.index).uniform(-5, -1))
        rollouts, saved = 0, await self.population.last(self.name)
        self.collector.reset()
        while True:
            if saved is not None:
                rate, state = saved
                weights, rest = np.split(np.frombuffer(state, np.uint8), [len(self.before[0])])
                self.before[0][:], self.before[1][:] = weights, rest
            self.learner.config = dataclasses.replace(self.learner.config, learning_rate=rate)
            for _ in range(self.updates):
                self.train(rollouts)
                rollouts += 1
            score = float(self.learner.views(self.before[1])["returns"].mean())
            saved = await self.population.report(
                self.name, score, rate, b"".join(block.tobytes() for block in self.before)
            )

    def train(self, sequence: int) -> None:
        """Collect one rollout, compute its gradient, make one update."""
        weights, _ = self.before
        self.collector.bind(weights)
        self.collector.collect(self.rollout, sequence=sequence, version=sequence)
        self.worker.bind(weights)
        self.worker.compute([self.rollout], self.gradient, sequence=sequence, version=sequence)
        self.learner.turn([self.gradient], *self.before, *self.after)
        self.before, self.after = self.after, self.before


def topology(config: hive.Config) -> hive.Topology:
    t = hive.Topology()
    population = t.add(Population, seed=config.run.seed)
    t.add(Member, count=4, blueprint=Blueprint(config), population=population.handle())
    return t


if __name__ == "__main__":
    hive.run(topology, Path(__file__).with_name("cartpole.toml"))
