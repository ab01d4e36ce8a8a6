"""Sinks, the destinations of metrics. hive itself reads only `metrics.jsonl`; other sinks get copies.

Every record has all three axes (updates, environment steps, seconds), so that each line is sufficient for any plot. A
sink that raises an error is dropped with one warning, because metrics must never end a run. A sink may also have the
methods of `ConfigSink`, `VideoSink` and `EpisodeSink`; one without them does not receive the config, videos or
episodes.

    records.sinks.sinks          the interface of a sink; JsonlSink; SinkSet, which combines the sinks of a run
    records.sinks.sink_thread    a thread of its own for each sink that may be slow
    records.sinks.csv_sink, records.sinks.episodes_sink, records.sinks.tensorboard_sink, records.sinks.wandb_sink
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from hive.errors import HiveError
from hive.records.jsonl import JsonlWriter

ConfigTables: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The resolved config: table -> key -> value, as in TOML; None for a key that is not set."""


@dataclass(frozen=True)
class MetricsRecord:
    """The metrics at one time. `seconds` counts from the start of the run. Names have the form `role/what_unit`.

    An evaluation is a record too, with the names `evaluation/...` and the axes of the version that was evaluated.
    """

    updates: int
    env_steps: int
    seconds: float
    values: dict[str, float]


@dataclass(frozen=True)
class Video:
    """A complete file in the run's folder `videos/`, and the steps and updates of the run when it was found there."""

    path: Path
    updates: int
    env_steps: int


class Episode(NamedTuple):
    """One training episode of one environment, or of one of its agents.

    number: among those that the run has counted, from 1. environment: from 0, collector by collector. info: the values
    of `env.info` that it has.
    """

    number: int
    steps: int  # environment steps of the run when it was counted, at the end of its round
    updates: int  # of the run at that time
    seconds: float  # of training at that time
    environment: int
    agent: str | None  # None: the only one
    episode_return: float  # sum of its rewards
    length: int  # in steps
    info: dict[str, float]


class Sink(Protocol):
    """A destination of metrics. `record.sinks` names it; it is called with the folder of the run.

    It may also have `write_config(tables)`, which receives the config as table -> key -> value, `write_video(video)`
    and `write_episode(episode)`. If a method raises, the sink is dropped with a warning, and the run continues.
    """

    def write(self, record: MetricsRecord) -> None:
        """Write one record."""

    def close(self) -> None:
        """Called once, at the end of the run."""


@runtime_checkable
class ConfigSink(Protocol):
    """A sink that receives the config: before the first record, and again after a restart or resume."""

    def write_config(self, config: ConfigTables) -> None: ...


@runtime_checkable
class VideoSink(Protocol):
    """A sink that receives each video of the run once."""

    def write_video(self, video: Video) -> None: ...


@runtime_checkable
class EpisodeSink(Protocol):
    """A sink that receives each training episode once, in the order in which the run counts them."""

    def write_episode(self, episode: Episode) -> None: ...


@runtime_checkable
class EpisodeListSink(Protocol):
    """A sink of hive, which receives the episodes that were counted since the last call."""

    def write_episodes(self, episodes: Sequence[Episode]) -> None: ...


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


class SinkSet:
    """Combines several sinks; its methods never raise. `warn` is called once for each sink that is dropped."""

    def __init__(self, sinks: Iterable[Sink], warn: Callable[[str], None]) -> None:
        self._sinks = list(sinks)
        self._warn = warn

    def add(self, name: str, make: Callable[[], Sink]) -> None:
        """Add the sink that `make` returns. If it raises, warn instead."""
        try:
            self._sinks.append(make())
        except Exception as error:
            self._warn(f"{name} is dropped: {cause(error)}")

    @property
    def lost(self) -> int:
        """Number of lines that the sinks with files of lines could not write."""
        return sum(sink.lost for sink in self._sinks if isinstance(sink, JsonlSink))

    def write(self, record: MetricsRecord) -> None:
        self._call(lambda sink: sink.write(record))

    def write_config(self, config: ConfigTables) -> None:
        """Pass the config to each sink that has a method for it."""
        self._call(lambda sink: sink.write_config(config) if isinstance(sink, ConfigSink) else None)

    def write_video(self, video: Video) -> None:
        """Pass a video to each sink that has a method for it."""
        self._call(lambda sink: sink.write_video(video) if isinstance(sink, VideoSink) else None)

    def write_episodes(self, episodes: Sequence[Episode]) -> None:
        """Pass episodes to each sink that has a method for them."""
        self._call(lambda sink: sink.write_episodes(episodes) if isinstance(sink, EpisodeListSink) else None)

    def close(self) -> None:
        for sink in list(self._sinks):
            try:
                self._sinks.remove(sink)
                sink.close()
            except Exception as error:
                self._warn(f"{type(sink).__name__} did not close: {cause(error)}")

    def _call(self, call: Callable[[Sink], None]) -> None:
        for sink in list(self._sinks):
            try:
                call(sink)
            except Exception as error:
                self._drop(sink, error)

    def _drop(self, sink: Sink, error: Exception) -> None:
        self._sinks.remove(sink)
        self._warn(f"{type(sink).__name__} is dropped: {cause(error)}")
        try:
            sink.close()
        except Exception:
            pass  # the sink's failure has been reported


def cause(error: BaseException) -> str:
    """Return an error as part of one line of the log: that of hive with its hint, others with their type."""
    if isinstance(error, HiveError):
        text = f"{error}; {error.hint}" if error.hint else str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    return " ".join(text.split())
