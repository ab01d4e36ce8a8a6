"""Where metrics go. `metrics.jsonl` is the truth; every other sink gets a copy.

All records carry all three axes (updates, environment steps, seconds), so that any plot can be drawn from
any line. A sink that fails is dropped with one warning: metrics never end a run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hive.errors import UsageError
from hive.records.jsonl import JsonlWriter

__all__ = ["JsonlSink", "MetricsRecord", "Sink", "SinkSet", "TensorBoardSink"]


@dataclass(frozen=True)
class MetricsRecord:
    """The metrics of one moment. `seconds` is the run's age; names of values are stable: `role/what_unit`."""

    updates: int
    env_steps: int
    seconds: float
    values: dict[str, float]


class Sink(Protocol):
    """May raise anything; a SinkSet then drops it."""

    def write(self, record: MetricsRecord) -> None: ...

    def close(self) -> None: ...


class JsonlSink:
    """Lines of {"t", "steps", "updates", "seconds", values ...}; t is in seconds since 1970."""

    def __init__(self, path: Path, wall: Callable[[], float] = time.time) -> None:
        self._writer = JsonlWriter(path)
        self._wall = wall

    @property
    def lost(self) -> int:
        """Lines that the disk did not take."""
        return self._writer.lost

    def write(self, record: MetricsRecord) -> None:
        axes = {"steps": record.env_steps, "updates": record.updates, "seconds": round(record.seconds, 3)}
        self._writer.write({"t": round(self._wall(), 3), **axes, **record.values})

    def close(self) -> None:
        self._writer.close()


class TensorBoardSink:
    """Scalars over environment steps, through tensorboardX. Values that are not finite are left out."""

    def __init__(self, folder: Path) -> None:
        """Raises UsageError when tensorboardX is not installed."""
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            hint = "pip install 'hive[tensorboard]'"
            raise UsageError("the TensorBoard sink needs tensorboardX", hint=hint) from error
        self._writer = SummaryWriter(logdir=str(folder))

    def write(self, record: MetricsRecord) -> None:
        for name, value in record.values.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, record.env_steps)

    def close(self) -> None:
        self._writer.close()


class SinkSet:
    """Several sinks as one that never raises. `warn` hears of each sink that was dropped, once."""

    def __init__(self, sinks: Iterable[Sink], warn: Callable[[str], None]) -> None:
        self._sinks = list(sinks)
        self._warn = warn

    def write(self, record: MetricsRecord) -> None:
        for sink in list(self._sinks):
            try:
                sink.write(record)
            except Exception as error:
                self._drop(sink, error)

    def close(self) -> None:
        for sink in list(self._sinks):
            try:
                self._sinks.remove(sink)
                sink.close()
            except Exception as error:
                self._warn(f"{type(sink).__name__} did not close: {type(error).__name__}: {error}")

    def _drop(self, sink: Sink, error: Exception) -> None:
        self._sinks.remove(sink)
        self._warn(f"{type(sink).__name__} is dropped: {type(error).__name__}: {error}")
        try:
            sink.close()
        except Exception:
            pass  # it was said already that this sink is broken
