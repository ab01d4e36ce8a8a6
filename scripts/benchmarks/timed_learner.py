"""A learner that writes down when it did what, and the scheme of the built-in trainer with it. No figures here.

`run.scheme = "benchmarks.timed_learner:topology"`. What it does is appended to `times.bin` of the run as records of
six numbers, each by one write, so that they outlive a kill:

    kind    turn    start    end    cpu    mark

Start and end are in ns of the monotonic clock, which all processes share; cpu is what the learner's thread had of a
processor between them, in ns: where there are fewer cores than processes, the rest is mostly others' turn on them.

    BORN        from the beginning of the constructor to its end
    SETUP       the first look at the state; of a successor: taking up where the dead one committed
    TURN        gradients to new weights; mark 1 while the recorder has a checkpoint to write
    CHECKPOINT  the look whether one is due, and the handing over if so; mark 1 if one was handed over
    PUBLISH     one copy of the weights into the behaviour board, where one was due
    UNIT        a plain copy of as many bytes from the same place, after every tenth PUBLISH: what to compare with

A record costs four looks at clocks and a write, some 3 us.
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
from hive.workers import Blueprint, LearnerActor

__all__ = [
    "BORN",
    "CHECKPOINT",
    "PUBLISH",
    "SETUP",
    "TIMES",
    "TURN",
    "UNIT",
    "Record",
    "TimedLearner",
    "records_in",
    "topology",
]

TIMES = "times.bin"
BORN, SETUP, TURN, CHECKPOINT, PUBLISH, UNIT = range(6)
LAYOUT = struct.Struct("<6q")
PUBLICATIONS_OF_A_UNIT = 10  # a plain copy takes the learner's time, so there are few


@dataclass(frozen=True)
class Record:
    """One thing that a learner did. Times in ns."""

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
    """The records in `times.bin`, in the order in which they ended. Half a record at the end is none."""
    whole = len(data) // LAYOUT.size * LAYOUT.size
    return [Record(*fields) for fields in LAYOUT.iter_unpack(data[:whole])]


def now() -> tuple[int, int]:
    """The time, and the CPU time of this thread, in ns."""
    return time.monotonic_ns(), time.thread_time_ns()


def topology(config: Config, directory: Path) -> Topology:
    """The built-in trainer with a learner that is timed."""
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
        self.turn = -1  # unknown before the state was looked at
        self.publications = 0
        self.spare = np.ones(blueprint.flat.block_bytes, np.uint8)  # written to: its pages are there
        super().__init__(blueprint)
        self._record(BORN, start)

    def _record(self, kind: int, start: tuple[int, int], mark: bool = False) -> None:
        end, cpu = now()
        os.write(self.times, LAYOUT.pack(kind, self.turn, start[0], end, cpu - start[1], mark))

    def _is_written(self) -> bool:
        """Whether the recorder has a checkpoint to write: the learner pins its blocks in the recorder's name."""
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
        if self.publications % PUBLICATIONS_OF_A_UNIT == 0:
            start = now()
            self.spare[:] = self.weights.board.read(self.turn)[: len(self.spare)]
            self._record(UNIT, start)
