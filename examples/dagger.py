"""A scripted expert labels the student's own states (DAgger, Ross et al. 2011).

    drivers ── lessons (slabs: one a version) ──> student
       ^                                            │
       └───────── weights (a board) ────────────────┘

MountainCar-v0 gives -1 per step until the car is on the hill, which random actions never reach. A rule of two lines
does. The rule drives in the first lesson, and the student in all others, where the rule labels every state with the
action that it would take. So the student also learns to recover from its own mistakes.

    python examples/dagger.py      a mean return of -110 ("solved"), driven by the student alone, in 34 s
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import hive
from hive.networks import FlatParameters

SHAPE = STEPS, ENVS = 200, 16  # steps and environments of a lesson; an episode takes 200 steps at most
SCALE = np.array((1, 15), np.float32)  # factors of the network's inputs, position and speed: speeds are below 0.07
LESSON = hive.Layout({"seen": ("float32", (*SHAPE, 2)), "answers": ("int64", SHAPE), "mean": ("float64", ())})


class Weights(hive.Message):
    """student -> drivers. The student's network; the version is the number of lessons."""


class Lesson(hive.Message):
    """driver -> student. Scaled observations, the expert's actions for them, and the mean return of the lesson."""


def expert(observations: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return actions (0: left, 2: right) for observations [B, 2]: push the way the car rolls if it is fast enough."""
    x, v = observations.T
    least = np.minimum(0.03 - 0.09 * (x + 0.25) ** 2, 0.3 * (x + 0.9) ** 4 - 0.008)
    return np.where((least < v) & (v < 0.07 - 0.07 * (x + 0.38) ** 2), 2, 0)


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))


class Driver(hive.Actor):
    weights = hive.Subscription(Weights)
    lessons = hive.SlotOutlet(Lesson)

    def __init__(self, seed: int) -> None:
        self.seed, self.network = seed, network(seed)
        self.flat = FlatParameters(self.network)
        self.vector = hive.make_vector("MountainCar-v0", {}, ENVS)
        self.row = hive.StepRow.allocate(hive.ObservationSpec((2,), "float32"), ENVS)

    async def run(self) -> None:
        while True:
            slot = await self.lessons.reserve()
            version, weights = await self.weights.pin(slot.sequence)
            self.flat.bind(weights, read_only=True)
            first, returns = (self.seed * 1000 + version) * 1000 + self.index * ENVS, []
            self.vector.reset(range(first, first + ENVS), self.row.observations)
            for observations, answers in zip(slot.arrays["seen"], slot.arrays["answers"], strict=True):
                observations[:], answers[:] = self.row.observations * SCALE, expert(self.row.observations)
                with torch.inference_mode():
                    actions = self.network(torch.from_numpy(observations)).argmax(1).numpy()
                self.row.finals.count = 0
                self.vector.step(actions if version else answers, self.row)
                returns += self.row.episode_returns[self.row.episode_lengths > 0].tolist()
            slot.arrays["mean"][...] = np.mean(returns)
            self.weights.unpin()
            self.lessons.commit(slot)


class Student(hive.Actor):
    lessons = hive.SlotInlet(Lesson)
    weights = hive.Publication(Weights)

    def __init__(self, seed: int, goal: float = -110.0, updates: int = 300) -> None:
        self.goal, self.updates = goal, updates
        self.network, self.random = network(seed), np.random.default_rng(seed)
        self.flat, self.adam = FlatParameters(self.network), torch.optim.Adam(self.network.parameters())

    async def run(self) -> None:
        version, mean, lines = 0, -np.inf, self.lessons.lines
        seen, answers = np.empty((0, 2), np.float32), np.empty(0, np.int64)
        while mean < self.goal:
            self.flat.initialize_into(self.weights.begin())
            self.weights.publish(version)
            slots = [await self.lessons.claim(driver, version) for driver in lines.producers]
            seen = np.concatenate([seen, *(slot.arrays["seen"].reshape(-1, 2) for slot in slots)])
            answers = np.concatenate([answers, *(slot.arrays["answers"].ravel() for slot in slots)])
            mean = float(np.mean([slot.arrays["mean"] for slot in slots])) if version else mean  # 0: the expert drove
            for slot in slots:
                lines.retire(slot)
            for _ in range(self.updates):
                chosen = self.random.integers(len(answers), size=256)
                scores = self.network(torch.from_numpy(seen[chosen]))
                self.adam.zero_grad()
                nn.functional.cross_entropy(scores, torch.from_numpy(answers[chosen])).backward()
                self.adam.step()
            version += 1
        self.end_run(f"mean return {mean:.1f} after {version} lessons")


def topology(config: hive.Config) -> hive.Topology:
    t, seed = hive.Topology(), config.run.seed
    drivers, student = t.add(Driver, count=2, seed=seed), t.add(Student, restart=False, seed=seed)
    t.connect(drivers.lessons, student.lessons, hive.Slots(LESSON))
    t.connect(student.weights, drivers.weights, hive.Board(FlatParameters(network(0)).block_bytes))
    return t


if __name__ == "__main__":
    hive.run(topology)
