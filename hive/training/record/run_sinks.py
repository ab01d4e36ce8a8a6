"""Makes the sinks of a run from `record.sinks`, and passes them its config, metrics and videos.

`metrics.jsonl` and `metrics.csv` are written at once. Other sinks have threads of their own, because they may be slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hive.config import Config, is_reference, load_reference
from hive.errors import RecordError
from hive.records import JsonlSink, MetricsRecord, RunDirectory, Sink, SinkSet, Video, read_jsonl
from hive.records.sinks.csv_sink import CsvSink
from hive.records.sinks.new_videos import NewVideos
from hive.records.sinks.sink_thread import SinkThread
from hive.records.sinks.sinks import cause
from hive.records.sinks.tensorboard_sink import TensorBoardSink
from hive.records.sinks.wandb_sink import WandbSink

__all__ = ["RunSinks"]


class RunSinks:
    """The sinks of a run. Only a failure of `metrics.jsonl` raises; others cost one call of `warn`, from any thread."""

    def __init__(self, config: Config, directory: RunDirectory, warn: Callable[[str], None]) -> None:
        """Make the sinks and pass them the config. Raises RecordError if `metrics.jsonl` cannot be opened."""
        self.sinks = SinkSet([JsonlSink(directory.metrics_file)], warn)
        self.videos: NewVideos | None = NewVideos(directory.videos)
        self.last = MetricsRecord(0, 0, 0.0, {})
        self.warn = warn
        for name in config.record.sinks:
            if name == "csv":
                earlier = read_jsonl(directory.metrics_file)
                self.sinks.add("the CSV sink", lambda earlier=earlier: CsvSink(directory.csv_file, earlier))  # type: ignore[misc]
            elif make := _maker(name, directory):
                shown = f"the sink `{name}`"
                self.sinks.add(shown, lambda shown=shown, make=make: SinkThread(shown, make, warn))  # type: ignore[misc]
        self.sinks.write_config(config_tables(config))

    def write(self, record: MetricsRecord) -> None:
        """Write a record, and pass on the videos that appeared since the last one."""
        self.sinks.write(record)
        self.last = record
        self._pass_videos()

    def _pass_videos(self) -> None:
        if self.videos is None:
            return
        try:
            for path in self.videos.take():
                self.sinks.write_video(Video(path, self.last.updates, self.last.env_steps))
        except (OSError, RecordError) as error:
            self.videos = None
            self.warn(f"videos no longer reach the sinks: {cause(error)}")

    def close(self) -> None:
        """Pass on the last videos and close all sinks, which takes at most a few seconds for each."""
        self._pass_videos()
        self.sinks.close()


def config_tables(config: Config) -> dict[str, Mapping[str, Any]]:
    """Return the config as table -> key -> value, with the values that TOML has; `[custom.<group>]` is a table."""
    tables: dict[str, dict[str, Any]] = {}
    for entry in config.entries():
        table, _, name = entry.name.rpartition(".")
        tables.setdefault(table, {})[name] = list(entry.value) if isinstance(entry.value, tuple) else entry.value
    return {**tables}


def _maker(name: str, directory: RunDirectory) -> Callable[[], Sink] | None:
    """Return the function that makes a sink other than "jsonl" and "csv"; None for these."""
    if name == "tensorboard":
        return lambda: TensorBoardSink(directory.path / "tensorboard")
    if name == "wandb":
        return lambda: WandbSink(directory.path)
    if is_reference(name):
        # The folder in which a user-defined sink writes: that of the run.
        return lambda: load_reference(name)(directory.path)
    return None
