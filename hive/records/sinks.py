"""Sinks, the destinations of metrics. hive itself reads only `metrics.jsonl`; other sinks get copies.

Every record has all three axes (updates, environment steps, seconds), so that each line is sufficient for any plot. A
sink that raises an error is dropped with one warning, because metrics must never end a run.
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
    """The metrics at one time. `seconds` counts from the start of the run. Names have the form `role/what_unit`."""

    updates: int
    env_steps: int
    seconds: float
    values: dict[str, float]


class Sink(Protocol):
    """A destination of metrics. Its methods may raise any exception; a SinkSet then drops the sink."""

    def write(self, record: MetricsRecord) -> None: ...

    def close(self) -> None: ...


class JsonlSink:
    """Writes lines {"t", "steps", "updates", "seconds", values ...} to a file; t is in seconds since 1970."""

    def __init__(self, path: Path, wall: Callable[[], float] = time.time) -> None:
        self._writer = JsonlWriter(path)
        self._wall = wall

    @property
    def lost(self) -> int:
        """Number of lines that could not be written."""
        return self._writer.lost

    def write(self, record: MetricsRecord) -> None:
        axes = {"steps": record.env_steps, "updates": record.updates, "seconds": round(record.seconds, 3)}
        self._writer.write({"t": round(self._wall(), 3), **axes, **record.values})

    def close(self) -> None:
        self._writer.close()


class TensorBoardSink:
    """Writes scalars over environment steps with tensorboardX. Values that are not finite are left out."""

    def __init__(self, folder: Path) -> None:
        """Create a writer to `folder`. Raises UsageError if tensorboardX is not installed."""
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
    """Combines several sinks; its methods never raise. `warn` is called once for each sink that is dropped."""

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
            pass  # the sink's failure has been reported
