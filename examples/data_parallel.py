"""Supervised data-parallel training: no environment, no reinforcement learning, one network, many processes.

    trainer ── state (a board: one version a step) ──> workers
       ^                                                  │
       └───────── gradients (slabs: one a step) ──────────┘

A network learns on which arm of a spiral a point lies. In step v each worker computes the gradient of version v of the
weights on separate points. The trainer reads the gradients in place, as every learner of hive does, and Adam steps on
their mean from version v to version v + 1, in the board's next block.

Kills do not change a byte of any version. A worker's next step is the number of gradients that it has committed. The
trainer's whole state is in its block, and gradients that it held when it was killed are offered to its successor.

    python examples/data_parallel.py      98 % of new points are right after some 300 steps: 21 s
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

import hive
from hive.networks import FlatOptimizer, FlatParameters, OptimizerSettings


class State(hive.Message):
    """trainer -> workers. The whole state after a step, in the layout STATE; the version is the number of steps."""


class Gradient(hive.Message):
    """worker -> trainer. Gradient of the mean loss over the worker's points, and the share of right answers."""


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, ARMS))


ARMS = 3
SIZE = FlatParameters(network(0)).parameter_elements
STATE = hive.Layout({"weights": ("float32", (SIZE,)), "moments": ("float32", (2, SIZE)), "right": ("float64", ())})
GRADIENT = hive.Layout({"gradient": ("float32", (SIZE,)), "right": ("float64", ())})


def spirals(count: int, *seed: int) -> tuple[Tensor, Tensor]:
    """Return points [count, 2] of a noisy spiral and their arms [count]; the same seed gives the same points."""
    random = np.random.default_rng(seed)
    arm, radius = random.integers(ARMS, size=count), random.uniform(0.1, 1.0, count)
    angle = 2 * np.pi * (arm / ARMS + radius) + random.normal(0.0, 0.15, count)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1, dtype=np.float32)
    return torch.from_numpy(points), torch.from_numpy(arm)


class Worker(hive.Actor):
    state = hive.Subscription(State)
    gradients = hive.SlotOutlet(Gradient)

    def __init__(self, seed: int, batch: int = 256) -> None:
        self.seed, self.batch, self.network = seed, batch, network(seed)
        self.flat = FlatParameters(self.network)

    async def run(self) -> None:
        while True:
            slot = await self.gradients.reserve()
            step = slot.sequence  # the number of gradients committed, by all incarnations
            _, block = await self.state.pin(step)
            self.flat.bind(block, read_only=True)  # the weights are its first field
            points, arms = spirals(self.batch, self.seed, self.index, step)
            scores = self.network(points)
            self.flat.release_gradients()
            nn.functional.cross_entropy(scores, arms).backward()
            self.flat.gradient(slot.arrays["gradient"])
            slot.arrays["right"][...] = (scores.argmax(1) == arms).float().mean()
            self.state.unpin()
            self.gradients.commit(slot)


class Trainer(hive.Actor):
    gradients = hive.SlotInlet(Gradient)
    state = hive.Publication(State)

    def __init__(self, seed: int, goal: float = 0.98, learning_rate: float = 3e-3) -> None:
        self.seed, self.goal, self.learning_rate = seed, goal, learning_rate
        self.adam = FlatOptimizer(OptimizerSettings("adam"))

    async def setup(self) -> None:
        if self.state.latest < 0:  # otherwise an earlier incarnation has published it
            FlatParameters(network(self.seed)).initialize_into(self.state.begin())
            self.state.publish(0)

    async def run(self) -> None:
        step, lines = self.state.latest, self.gradients.lines
        for worker in lines.producers:
            while lines.first_left(worker) < step:  # applied, but not retired before a kill
                lines.retire(await self.gradients.claim(worker))
        mean = hive.GradAccumulator.for_slots(SIZE, len(lines.producers))
        while (state := STATE.views(self.state.board.read(step)))["right"] < self.goal:
            slots = [await self.gradients.claim(worker, step) for worker in lines.producers]
            after, step = STATE.views(self.state.begin()), step + 1
            for slot in slots:
                mean.adopt(slot.arrays, samples=1)
            gradient = mean.mean_reduce()["gradient"].numpy()
            blocks = state["weights"], after["weights"], gradient, list(state["moments"]), list(after["moments"])
            self.adam.step(*blocks, step=step, learning_rate=self.learning_rate)
            after["right"][...] = 0.9 * state["right"] + 0.1 * np.mean([slot.arrays["right"] for slot in slots])
            self.state.publish(step)
            mean.clear()
            for slot in slots:  # retired only after publication: slots not retired are offered to a successor
                lines.retire(slot)
        self.end_run(f"{state['right']:.1%} right after {step} steps")


def topology(config: hive.Config) -> hive.Topology:
    t = hive.Topology()
    workers, trainer = t.add(Worker, count=2, seed=config.run.seed), t.add(Trainer, seed=config.run.seed)
    t.connect(trainer.state, workers.state, hive.Board(STATE.bytes))
    t.connect(workers.gradients, trainer.gradients, hive.Slots(GRADIENT, on_death="reoffer"))
    t.digest(trainer.state, STATE.bytes)
    return t


if __name__ == "__main__":
    hive.run(topology)
