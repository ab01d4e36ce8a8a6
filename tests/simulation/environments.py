"""Simulate environment processes: the real ProcessVector, over steppers that fail as a seed says, in virtual time.

    world = World(seed, collector)
    world.collect(32)              steps the vector, and judges every row

Each environment observes (index, incarnation, steps), so a row tells what made it. A stepper takes its time for every
order, and in some of them it raises, exits or hangs; `done` advances the virtual clock. Wrong orders, such as one to a
process that is gone or busy, and rows that break a promise are listed in `wrong`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hive.envs import Discrete, EnvContext, ObservationSpec, StepRow
from hive.envs.processes.process_vector import ProcessVector, Watcher
from hive.envs.processes.stepper import Activity, Doing
from hive.envs.processes.supervised import CLOSE_S, Failure, Limits
from hive.envs.vectors.row_block import RowBlock
from hive.errors import EnvironmentFailed

OBSERVATION = ObservationSpec((3,), "float32")
LIMITS = Limits(start_s=1.0, reset_s=0.5, step_s=0.1, restarts=1 << 20)
EPISODE = 7  # steps
HANGS_S = 1e6
KINDS = ("raises", "exits", "hangs")


class VirtualTime:
    """Nanoseconds that pass when somebody waits."""

    def __init__(self) -> None:
        self.now = 0

    def now_ns(self) -> int:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += round(seconds * 1e9)


class FakeStepper:
    """A `Stepper` whose orders take times that `plan` gives: (seconds, how it fails or "")."""

    def __init__(self, world: World, block: RowBlock, number: int, first: int, count: int) -> None:
        self.world = world
        self.number = number
        self.row = block.row(first, first + count)
        self.alive = False
        self.closed = False
        self.order: Activity | None = None
        self.contexts: Sequence[EnvContext] = ()
        self.steps = 0
        self.changes = False
        self.changed = 0  # how often it has got attributes
        self.failures = self.gone = 0
        self.raised = False
        self.doomed = 0  # how many of the next orders fail, besides resets

    def start(self, contexts: Sequence[EnvContext]) -> None:
        """Start the process."""
        self._must(not self.alive, "was started while it ran")
        self.alive, self.raised = True, False
        self._begin("start", contexts)

    def renew(self, contexts: Sequence[EnvContext]) -> None:
        """Construct new environments."""
        self._must(self.alive and self.order is None, "was renewed while it was busy or gone")
        self._begin("start", contexts)

    def reset(self, seeds: Sequence[int]) -> None:
        """Begin an episode in each."""
        self._must(self.alive and self.order is None, "was reset while it was busy or gone")
        self._begin("reset", self.contexts)

    def step(self) -> None:
        """Step each."""
        self._must(self.alive and self.order is None, "was stepped while it was busy or gone")
        self._begin("step", self.contexts)

    def done(self, limit_s: float) -> bool:
        """Wait, in virtual time."""
        self._must(self.alive and self.order is not None, "was waited for without an order")
        if self.ends > self.world.time.now + limit_s * 1e9:
            self.world.time.sleep(limit_s)
            return False
        self.world.time.now = max(self.world.time.now, self.ends)
        order, self.order = self.order, None
        changes, self.changes = self.changes, False
        if self.fails:
            self.failures += 1
            self.gone = self.world.time.now + round(self.world.random.random() * 1.5 * CLOSE_S * 1e9)
            self.raised = self.fails == "raises"
            raise EnvironmentFailed(f"it {self.fails} (failure {self.failures})")
        if order == "start":
            self.steps = 0
        if changes:
            self.changed += 1
            return True
        self.steps += order == "step"
        self._write(order)
        return True

    def left(self, limit_s: float) -> bool:
        """Wait, in virtual time, until it has closed its environments."""
        if self.raised and self.gone > self.world.time.now + limit_s * 1e9:
            self.world.time.sleep(limit_s)
            return False
        if self.raised:
            self.world.time.now = max(self.world.time.now, self.gone)
        return True

    def doing(self) -> Doing:
        """Return what the open order is about."""
        return Doing(self.order or self.last, 0, self.began)

    def pids(self) -> Sequence[int]:
        """Return its number in place of a pid."""
        return [self.number]

    def tail(self) -> str:
        """Return what it printed."""
        return ""

    takes_attributes = True

    def change(self) -> None:
        """Take attributes."""
        self._must(self.alive and self.order is None, "was changed while it was busy or gone")
        self._begin("step", self.contexts)
        self.changes = True

    def bound(self) -> None:
        """Have no output."""

    def close(self, limit_s: float = 0.0) -> bool:
        """End at once."""
        self.closed = True
        return True

    def end(self, limit_s: float) -> None:
        """Be gone."""
        self.failures += self.order is not None and self.fails == "hangs"
        self.alive, self.order = False, None

    def _begin(self, order: Activity, contexts: Sequence[EnvContext]) -> None:
        self.order = self.last = order
        self.contexts = contexts
        self.began = self.world.time.now
        seconds, self.fails = self.world.plan(order)
        if order == "step":
            seconds = self.world.slow.pop(self.number, seconds)
        if self.doomed and order != "reset":
            self.doomed, self.fails = self.doomed - 1, "exits"
        self.ends = self.began + round(seconds * 1e9)

    def _write(self, order: Activity | None) -> None:
        row = self.row
        for number, one in enumerate(self.contexts):
            row.observations[number] = one.index, one.incarnation, self.steps
        if order == "step":
            ends = self.steps % EPISODE == 0
            row.rewards[:], row.valid[:], row.terminated[:], row.truncated[:] = self.steps, 1, ends, 0
            row.episode_lengths[:], row.episode_returns[:], row.final_index[:] = EPISODE * ends, ends, -1

    def _must(self, holds: bool, what: str) -> None:
        if not holds:
            self.world.wrong.append(f"environment {[one.index for one in self.contexts]} {what}")


class World:
    """The environments of one collector. chance: of a failure in an order; None: drawn."""

    def __init__(self, seed: int, *, chance: float | None = None, limits: Limits = LIMITS, first: int = 0) -> None:
        self.random = random.Random(seed)
        self.time = VirtualTime()
        self.wrong: list[str] = []
        self.failures: list[Failure] = []
        self.chance = self.random.choice((0.0, 0.002, 0.02, 0.2)) if chance is None else chance
        counts = [self.random.choice((1, 1, 2)) for _ in range(self.random.randint(1, 5))]
        self.steppers: list[FakeStepper] = []
        self.slow: dict[int, float] = {}  # number of a stepper -> seconds of its next step
        self.on_wait: Callable[[], object] = lambda: None
        self.vector = ProcessVector(
            OBSERVATION,
            Discrete(2),
            self._stepper,
            counts,
            limits,
            Watcher(self.failures.append, self._waiting),
            lambda index, incarnation: index + incarnation,
            now_ns=self.time.now_ns,
            sleep=self.time.sleep,
        )
        self.envs = sum(counts)
        self.first = first
        self.row = StepRow.allocate(OBSERVATION, self.envs)
        self.seen = np.zeros((self.envs, 3), np.float32)
        self.lost = 0
        self.begin()

    def plan(self, order: Activity) -> tuple[float, str]:
        """Return how long the next order takes, and how it fails; "" for not at all."""
        usual = {"start": 0.3, "reset": 0.05, "step": 0.001}[order]
        seconds = usual * self.random.choice((0.1, 1.0, 1.0, 1.5))
        if self.random.random() >= self.chance:
            return seconds, ""
        kind = self.random.choice(KINDS)
        return (HANGS_S, kind) if kind == "hangs" else (seconds, kind)

    def begin(self) -> None:
        """Construct and reset the environments, as at a resume barrier."""
        self.vector.make_environments([EnvContext(self.first + number) for number in range(self.envs)])
        observations = np.zeros_like(self.seen)
        self.vector.reset(list(range(self.envs)), observations)
        for number, (index, _, steps) in enumerate(observations):
            self._must(
                (index, steps) == (self.first + number, 0), f"the reset of {number} observed {observations[number]}"
            )
        self.seen = observations

    def collect(self, steps: int) -> None:
        """Make some steps, and judge each row."""
        actions = np.zeros(self.envs, np.int64)
        for _ in range(steps):
            self.vector.step(actions, self.row)
            for number in range(self.envs):
                self._judge(number)
            self.seen = self.row.observations.copy()

    def judge_end(self) -> None:
        """Check what must hold over all steps: every failure was told, every step of every process is in a row."""
        injected = sum(stepper.failures for stepper in self.steppers)
        self._must(len(self.failures) == injected, f"{len(self.failures)} failures were told, {injected} happened")
        self.vector.close()
        self._must(not any(stepper.alive for stepper in self.steppers), "a process outlived its vector")

    def _judge(self, number: int) -> None:
        row, before, after = self.row, self.seen[number], self.row.observations[number]
        stepper = next(one for one in self.steppers if any(c.index == self.first + number for c in one.contexts))
        if row.valid[number]:
            if tuple(after) != (before[0], before[1], before[2] + 1):
                fault = "is no step"
            elif row.rewards[number] != after[2]:
                fault = "has another step's reward"
            elif bool(row.terminated[number]) != (after[2] % EPISODE == 0):
                fault = "ends at the wrong step"
            else:
                return
        else:
            self.lost += 1
            flags = (row.terminated, row.truncated, row.rewards, row.episode_returns, row.episode_lengths)
            came_back = after[1] > before[1] and after[2] == 0
            if any(values[number] for values in flags) or row.final_index[number] != -1:
                fault = "is not valid, and has values"
            elif not came_back and not np.array_equal(before, after):
                fault = "is not valid, and neither a repetition nor a reset"
            elif stepper.failures == 0 and not any(self.first + number in one.indices for one in self.failures):
                fault = "is not valid without a failure"
            else:
                return
        self.wrong.append(f"environment {number}: {before} -> {after} {fault}")

    def _waiting(self, down: bool) -> None:
        self.on_wait()

    def _stepper(self, block: RowBlock, number: int, first: int, count: int) -> FakeStepper:
        made = FakeStepper(self, block, number, first, count)
        self.steppers.append(made)
        return made

    def _must(self, holds: Any, what: str) -> None:
        if not holds:
            self.wrong.append(what)


def run(seed: int, steps: int = 60) -> World:
    """Simulate the schedule of a seed, with a resume barrier in its middle."""
    world = World(seed)
    world.collect(steps)
    world.begin()
    world.collect(steps)
    world.judge_end()
    return world
