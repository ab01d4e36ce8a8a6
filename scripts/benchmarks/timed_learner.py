"""A learner that records the times of its work, and the built-in trainer's scheme with this learner.

Use it as `run.scheme = "benchmarks.timed_learner:topology"`. It appends records of six 64-bit integers to `times.bin`
of the run, each in one write, so that a kill leaves every earlier record:

    kind    turn    start    end    cpu    mark

Start and end are in ns of the monotonic clock, which all processes share. cpu is the CPU time of the learner's thread
between them, in ns; with fewer cores than processes, other processes used the core for most of the rest.

    BORN        the constructor
    SETUP       reading the state; for a successor: taking up the state that its predecessor committed
    TURN        gradients to new weights; mark 1 while the recorder has a checkpoint to write
    CHECKPOINT  the check whether a checkpoint is due, and handing it over; mark 1 if one was handed over
    PUBLISH     one copy of the weights into the behaviour board, where a publication was due
    UNIT        a plain copy of the same number of bytes from the same place, after every tenth PUBLISH, for comparison

A record reads four clocks and makes one write, which takes some 3 us.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hive.config import Config
from hive.runtime import Slot, Topology
from hive.schemes.trainer import trainer
from hive.training import Blueprint, LearnerActor

TIMES = "times.bin"
BORN, SETUP, TURN, CHECKPOINT, PUBLISH, UNIT = range(6)
LAYOUT = struct.Struct("<6q")
PUBLICATIONS_PER_UNIT = 10  # publications for each plain copy: few copies, because they take the learner's time


@dataclass(frozen=True)
class Record:
    """One timed piece of a learner's work. Times in ns."""

    kind: int
    turn: int
    start: int
    end: int
    cpu: int = 0
    mark: int = 0

    @property
    def ms(self) -> float:
        return (self.end - self.start) / 1e6

    @property
    def cpu_ms(self) -> float:
        return self.cpu / 1e6


def records_in(data: bytes) -> list[Record]:
    """Return the records in the bytes of `times.bin`, in the order of their ends, without an incomplete last one."""
    whole = len(data) // LAYOUT.size * LAYOUT.size
    return [Record(*fields) for fields in LAYOUT.iter_unpack(data[:whole])]


def now() -> tuple[int, int]:
    """Return (monotonic time, CPU time of this thread) in ns."""
    return time.monotonic_ns(), time.thread_time_ns()


def topology(config: Config, directory: Path) -> Topology:
    """Build the trainer's topology with `TimedLearner` as its learner."""
    made = trainer(config, directory)
    learner = made["learner"]
    learner.cls = TimedLearner
    learner.parameters["times"] = directory / TIMES
    return made


class TimedLearner(LearnerActor):
    """See the module."""

    def __init__(self, blueprint: Blueprint, times: Path) -> None:
        start = now()
        self.times = os.open(times, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.turn = -1  # unknown until the state is read
        self.publications = 0
        self.spare = np.ones(blueprint.flat.block_bytes, np.uint8)  # np.ones touches the pages, np.empty would not
        super().__init__(blueprint)
        self._record(BORN, start)

    def _record(self, kind: int, start: tuple[int, int], mark: bool = False) -> None:
        end, cpu = now()
        os.write(self.times, LAYOUT.pack(kind, self.turn, start[0], end, cpu - start[1], mark))

    def _is_written(self) -> bool:
        """Return whether the recorder has a checkpoint to write: the learner pins its blocks for the recorder."""
        return bool(self.weights.board.view.words.pinned(len(self.gradients.producers)))

    async def setup(self) -> None:
        start = now()
        await super().setup()
        self._record(SETUP, start)

    def _turn(self, held: list[Slot]) -> None:
        start = now()
        super()._turn(held)
        self._record(TURN, start, self._is_written())

    async def _checkpoint(self) -> None:
        before, start = self._is_written(), now()
        await super()._checkpoint()
        self._record(CHECKPOINT, start, self._is_written() and not before)

    def _publish_behaviour(self, held: list[Slot]) -> None:
        before, start = self.behaviour.latest, now()
        super()._publish_behaviour(held)
        if self.behaviour.latest == before:
            return
        self._record(PUBLISH, start)
        self.publications += 1
        if self.publications % PUBLICATIONS_PER_UNIT == 0:
            start = now()
            self.spare[:] = self.weights.board.read(self.turn)[: len(self.spare)]
            self._record(UNIT, start)
