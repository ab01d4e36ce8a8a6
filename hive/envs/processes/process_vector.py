"""Steps the environments of a collector in processes or programs of their own, which fail and come back one by one.

    collector   orders a step of each      waits for all      copies the row
    process     steps its environments, writes its columns, answers

A process that exits, raises, or exceeds a limit is ended with its children and started again (`Supervised`), while its
neighbours go on. Its column has a seam (hive.experience.replay): from the row of the failed step on, rows are not valid
and repeat its last observation; the last of them has the observation of the new first reset. While no environment can
be stepped, `step` waits.

Without failures the rows are those of the same environments in the collector's own process: each is seeded on its own,
and those that draw from global generators have one for each process, seeded from (word of the collector, its number).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs.context import EnvContext
from hive.envs.processes.stepper import Stepper
from hive.envs.processes.supervised import Failure, Limits, State, Supervised
from hive.envs.spaces.actions import ActionSpec
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.vectors.row_block import RowBlock
from hive.envs.vectors.rows import StepRow
from hive.envs.vectors.share import Order
from hive.errors import EnvironmentFailed
from hive.records.environments import RESETTING, STARTING, EnvironmentRow

SLICE_S = 0.02  # of a wait, after which exits and limits of all processes are looked at
LOOK_S = 0.25  # between two looks at the memory of the processes
CLOSE_S = 10.0  # time for all processes to close their environments, side by side; then they are killed
KEPT_STEPS = 1024  # whose times `rows` summarizes
GOLDEN = 0x9E3779B97F4A7C15  # odd, 2^64 over the golden ratio: neighbours' words have nothing in common


@dataclass(frozen=True)
class Watcher:
    """What a collector does when an environment fails, and while it waits.

    failed: is told of each failure. waiting: is called about every SLICE_S of a wait; its argument says whether no
    environment can be stepped.
    """

    failed: Callable[[Failure], None]
    waiting: Callable[[bool], None] = lambda _: None


class ProcessVector:
    """A `VectorEnvironment`, which documents `reset` and `step`, whose environments live in other processes.

    make_stepper: makes what steps environments first to first + count: (block, number, first, count). counts: of the
    environments of each; `own` of them come before these, which a subclass steps itself (`meanwhile`). rows: of one
    environment. reseed: as of `Supervised`. drew: whether an environment has drawn from a global generator. spins: as
    of `RowGate.wait`, for processes that arrive at the gate of the block; None: they do not. Environments exist after
    `make_environments`.
    """

    runs_python = False  # in this process

    def __init__(
        self,
        observation: ObservationSpec,
        action: ActionSpec,
        make_stepper: Callable[[RowBlock, int, int, int], Stepper],
        counts: Sequence[int],
        limits: Limits,
        watcher: Watcher,
        reseed: Callable[[int, int], int],
        *,
        infos: int = 0,
        rows: int = 1,
        own: int = 0,
        spins: bool | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        firsts = [own + sum(counts[:number]) for number in range(len(counts))]
        self.observation, self.action = observation, action
        self.count = (own + sum(counts)) * rows
        self.agents = rows if rows > 1 else 0
        self.options: Mapping[str, Any] = {}
        self._attributes: Mapping[str, Any] = {}
        self._block = RowBlock(observation, action, self.count, infos, len(counts))
        self._own = slice(0, own * rows)
        self._starts = rows * np.repeat([0, *firsts], np.multiply([own, *counts], rows))
        self._last = np.zeros_like(self._block.arrays["observations"])
        self._watcher = watcher
        self._now_ns, self._sleep = now_ns, sleep
        self._has_gate, self._spins = spins is not None, bool(spins)
        self._times = np.zeros((KEPT_STEPS, len(counts)), np.int64)
        self._calls = 0
        self._looked_ns = now_ns()
        self._is_made = False
        self._goes_on = not limits.passes_on  # after failures
        self.units: list[Supervised] = []
        for number, (first, count) in enumerate(zip(firsts, counts, strict=True)):
            stepper = make_stepper(self._block, number, first, count)
            columns = slice(first * rows, (first + count) * rows)
            self.units.append(Supervised(stepper, columns, rows, limits, now_ns, reseed, watcher.failed))

    def meanwhile(self, order: Order) -> None:
        """Follow an order here while the processes follow it: to make, reset, step or close what is stepped
        here."""

    def make_environments(self, contexts: Sequence[EnvContext], options: Mapping[str, Any] | None = None) -> None:
        """Start all processes and construct the environments, or construct them again in the same processes.

        options: what callbacks have set. Raises EnvironmentFailed for one that fails for good.
        """
        self.options = options or {}
        rows = max(self.agents, 1)
        self._settle("running", "idle")  # those that are on their way back
        self._attributes = {}
        self._block.write_changes(self.options, {})
        for unit in self.units:
            own = contexts[unit.columns.start // rows : unit.columns.stop // rows]
            if self._is_made and unit.state != "left out":
                unit.renew(own)
            elif not self._is_made:
                unit.start(own)
        self._block.arrays["seeds"][self._own] = np.repeat([one.seed for one in contexts], rows)[self._own]
        self.meanwhile(Order.make)
        self._is_made = True
        self._settle("running", "idle")

    def seed_globals(self, word: int) -> None:
        """Have every process seed its global generators before its next order, each from `word` and its number."""
        arrays = self._block.arrays
        for number in range(len(self.units)):
            arrays["generators"][number] = mixed(word, number)
        arrays["seedings"][0] += 1

    @property
    def drew(self) -> bool:
        """Whether an environment has drawn from a global generator."""
        return bool(self._block.arrays["drew"].any())

    @property
    def refused(self) -> str:
        """As of `hive.envs.vectors.resetting.Resets`, of the first process that has one."""
        texts = (bytes(text).rstrip(b"\0").decode(errors="replace") for text in self._block.arrays["refused"])
        return next(filter(None, texts), "")

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        """Start an episode in every environment; write `observations` [B, ...]."""
        self._block.arrays["plays"][:-1] = -1
        self._settle("running", "idle")  # those that are on their way back
        for unit in self.units:
            unit.reset(seeds[unit.columns])
        self._block.arrays["seeds"][self._own] = seeds[self._own]
        self.meanwhile(Order.reset)
        self._settle("running")
        for unit in self.units:
            unit.has_seam = unit.state == "left out"
        np.copyto(observations, self._block.arrays["observations"])
        for unit in self.units:
            if unit.has_seam:  # what its last process has left in the block may be anything
                observations[unit.columns] = self._last[unit.columns]
        np.copyto(self._last, observations)

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Step every environment that can be stepped once with stored `actions` [B, ...]; write `row`.

        Raises RuntimeError before the first reset.
        """
        for unit in self.units:
            if unit.has_seam:
                unit.tend()
            elif unit.is_behind:
                self._change(unit)
        while not any(unit.state == "running" for unit in self.units):
            if any(unit.state == "idle" for unit in self.units):
                raise RuntimeError("no episode has begun: call reset() before the first step()")
            self._tend([unit for unit in self.units if unit.state != "left out"])
        stepped = [unit for unit in self.units if unit.state == "running" and not unit.has_seam]
        np.copyto(self._block.arrays["actions"], actions)
        self._block.gate.expect(len(stepped))
        for unit in stepped:
            unit.step()
        self.meanwhile(Order.step)
        if self._has_gate:
            self._block.gate.wait(SLICE_S, self._spins)
        for unit in stepped:
            if not unit.has_stepped(0.0 if self._has_gate else SLICE_S):
                self._wait_for(unit)
        seams = [unit for unit in self.units if unit.has_seam]
        for unit in seams:
            self._write_seam(unit)
        self._block.copy_to(row, self._starts)
        if self._goes_on:
            self._follow(row, seams)

    def _follow(self, row: StepRow, seams: Sequence[Supervised]) -> None:
        """Keep what views and later seams need of a row, and look after the processes now and then."""
        self._times[self._calls % KEPT_STEPS] = self._block.arrays["step_ns"]
        self._calls += 1
        for unit in seams:
            if unit.state == "running":  # it has come back: the row has the observation of its reset
                unit.has_seam = False
            else:  # not in the block, into which its process may write just now
                row.observations[unit.columns] = self._last[unit.columns]
        np.copyto(self._last, row.observations)
        if self._now_ns() - self._looked_ns > LOOK_S * 1e9:
            self._look()

    def play(self, episodes: NDArray[np.int64]) -> None:
        """Let each environment play so many more episodes until the next reset, [B]; -1: without a limit."""
        plays = self._block.arrays["plays"]
        plays[:-1] = episodes
        plays[-1] += 1

    @property
    def takes_attributes(self) -> bool:
        """Whether its environments can be given values."""
        return all(unit.stepper.takes_attributes for unit in self.units)

    def set_attributes(self, values: Mapping[str, Any]) -> None:
        """Give every environment these values before its next reset."""
        self._attributes = {**self._attributes, **values}
        self._block.write_changes(self.options, values)
        changed: list[Supervised] = []
        for unit in self.units:  # one may fail while another one is waited for
            if unit.state in ("running", "idle") and not unit.has_seam:
                changed.append(unit)
                self._change(unit)
        self._block.write_changes(self.options, self._attributes)  # for those that start later, or have begun to
        for unit in self.units:
            unit.is_behind = unit not in changed or unit.has_seam

    def _change(self, unit: Supervised) -> None:
        """Give the environments of one process the attributes that the block has."""
        unit.is_behind = False
        self._ask(unit, unit.stepper.change)

    def _ask(self, unit: Supervised, order: Callable[[], None]) -> None:
        """Give one process another order, and wait until it has followed it."""
        unit.give(order)
        self._await(unit)

    def _await(self, unit: Supervised) -> None:
        while not (unit.has_seam or unit.done(SLICE_S)):
            self._slice()

    def rows(self) -> list[EnvironmentRow]:
        """Return the state of each environment."""
        times, found = self._times[: min(self._calls, KEPT_STEPS)], list[EnvironmentRow]()
        for number, unit in enumerate(self.units):
            own = times[:, number][times[:, number] > 0] / 1e9
            pids = unit.stepper.pids()
            found += [
                EnvironmentRow(
                    one.index,
                    pids[0] if pids else 0,
                    one.incarnation,
                    {"idle": RESETTING, "delayed": STARTING, "closing": STARTING}.get(unit.state, unit.state),
                    unit.failures,
                    unit.steps,
                    float(median(own)) if len(own) else None,
                    float(own.max()) if len(own) else None,
                    unit.last_failure,
                )
                for one in unit.contexts
            ]
        return found

    def close(self) -> None:
        """Close the environments in all processes, once their steps have ended, and end these."""
        busy = [unit for unit in self.units if not unit.stepper.close() and self._goes_on]
        try:
            self.meanwhile(Order.close)
        finally:
            limit_ns = self._now_ns() + int(CLOSE_S * 1e9)
            waited = [unit for unit in self.units if unit.state in ("running", "idle", "closing")]
            busy = [unit for unit in busy if unit in waited]
            while busy and self._now_ns() < limit_ns:
                busy = [unit for unit in busy if not unit.stepper.close(SLICE_S)]
            for unit in self.units:
                unit.stepper.end(max((limit_ns - self._now_ns()) / 1e9, 0.0) if unit in waited else 0.0)
            self._block.segment.close()

    def _wait_for(self, unit: Supervised) -> None:
        """Wait until one has stepped or failed; all others are looked after meanwhile, unless their errors are passed
        on: the first environment's comes first."""
        while not (unit.has_seam or unit.has_stepped(SLICE_S)):
            for other in self.units if self._goes_on else ():
                if other.has_seam:
                    other.tend()
                elif other is not unit:
                    other.done(0.0)  # so that its step takes no longer than it does, for views
            self._slice()

    def _settle(self, *states: State) -> None:
        """Wait until all are in one of these states, or left out."""
        while waiting := [unit for unit in self.units if unit.state not in (*states, "left out")]:
            self._tend(waiting)
        self._check_left()

    def _tend(self, waiting: Sequence[Supervised]) -> None:
        """Follow some that do not run on their way back, for about SLICE_S."""
        self._check_left()
        busy = [unit for unit in waiting if unit.state != "delayed"]
        if not busy:
            self._sleep(SLICE_S)
        for unit in waiting:
            unit.tend(SLICE_S if busy and unit is busy[0] else 0.0)
        self._slice()

    def _check_left(self) -> None:
        if self.units and all(unit.state == "left out" for unit in self.units):
            raise EnvironmentFailed(
                f"all environments of this collector have failed for good: {self.units[0].last_failure}", permanent=True
            )

    def _slice(self) -> None:
        """Look at memory now and then during a wait, and tell the watcher of it."""
        self._watcher.waiting(not any(unit.state == "running" for unit in self.units))
        if self._now_ns() - self._looked_ns > LOOK_S * 1e9:
            self._look()

    def _look(self) -> None:
        self._looked_ns = self._now_ns()
        for unit in self.units:
            unit.look()

    def _write_seam(self, unit: Supervised) -> None:
        """Write the columns of one that was not stepped, but for the observations: rows that are not valid."""
        arrays, columns = self._block.arrays, unit.columns
        for name in ("rewards", "terminated", "truncated", "valid", "episode_returns", "episode_lengths"):
            arrays[name][columns] = 0
        arrays["final_index"][columns] = -1
        arrays["infos"][columns] = np.nan


def mixed(word: int, number: int) -> int:
    """Return the seed of process `number` that follows from `word`, below 2^63: the word itself for number 0.

    The finalizer of SplitMix64 (Steele et al. 2014).
    """
    if number == 0:
        return word
    mask = (1 << 64) - 1
    z = (word + number * GOLDEN) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return (z ^ (z >> 31)) >> 1
