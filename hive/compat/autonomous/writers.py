"""Writers, to which an Approximation logs the losses and learning rates of its updates.

A writer is any object with the three members of `Writer`; the writers and loggers of autonomous-learning-library have
them. `DummyWriter`, the default, drops everything. `SinkWriter` writes to a sink of hive.records, for
example TensorBoard's:

    SinkWriter(TensorBoardSink(Path("runs/a")), log_dir="runs/a")

An Approximation named `q` writes `loss/q` and, if it has a scheduler, `schedule/q/lr`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from hive.records.sinks.sinks import MetricsRecord, Sink


class Writer(Protocol):
    """The interface of a writer. `log_dir` is also the folder of checkpoints."""

    @property
    def log_dir(self) -> str: ...

    def add_loss(self, name: str, value: Tensor | float) -> object:
        """Log the loss, a scalar, of one update (or accumulation) of the approximation `name`."""

    def add_schedule(self, name: str, value: float) -> object:
        """Log a scheduled number, such as `q/lr`."""


class DummyWriter:
    """Drops everything. Its `log_dir` is `runs`, as in autonomous-learning-library."""

    log_dir = "runs"

    def add_loss(self, name: str, value: Tensor | float) -> None:
        pass

    def add_schedule(self, name: str, value: float) -> None:
        pass


class SinkWriter:
    """Writes every number as a separate record to a sink.

    The record's `updates` counts the losses of that name. Its `env_steps` is the attribute `frames`, which the program
    must update. `now_s` is a clock in seconds; the age of a record is the time since the writer was constructed.
    """

    def __init__(self, sink: Sink, log_dir: str = "runs", *, now_s: Callable[[], float] = time.monotonic) -> None:
        self.log_dir = log_dir
        self.frames = 0
        self._sink = sink
        self._updates: Counter[str] = Counter()
        self._now_s = now_s
        self._start_s = now_s()

    def add_loss(self, name: str, value: Tensor | float) -> None:
        self._updates[name] += 1
        self._write(f"loss/{name}", value, self._updates[name])

    def add_schedule(self, name: str, value: float) -> None:
        self._write(f"schedule/{name}", value, self._updates[name.partition("/")[0]])

    def close(self) -> None:
        self._sink.close()

    def _write(self, name: str, value: Tensor | float, updates: int) -> None:
        record = MetricsRecord(updates, self.frames, self._now_s() - self._start_s, {name: float(value)})
        self._sink.write(record)
