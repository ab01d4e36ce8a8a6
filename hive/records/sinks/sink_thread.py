"""Runs a sink in a thread of its own, so that a slow one delays neither metrics nor checkpoints.

    recorder ── write, write_config, ... ──> queue of at most MOST_QUEUED ──> thread: makes the sink, calls it

The sink is made and called in its thread only. If it raises anything, also while it is made, it is closed and dropped
with one warning. Records that do not fit in the queue are left out and counted.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from hive.records.sinks.sinks import (
    ConfigSink,
    ConfigTables,
    Episode,
    EpisodeSink,
    MetricsRecord,
    Sink,
    Video,
    VideoSink,
    cause,
)

MOST_QUEUED = 1000  # records: a quarter of an hour at one a second, and a few MB
CLOSE_S = 5.0  # limit for writing the queue at the end: two stuck sinks fit into the recorder's default of 15 s


class Episodes(NamedTuple):
    """Episodes that the run has counted together."""

    all: tuple[Episode, ...]


Item: TypeAlias = MetricsRecord | ConfigTables | Video | Episodes


class SinkThread:
    """A sink that passes everything to the sink that `make` returns, in another thread. Its methods never raise.

    name: what warnings call the sink. warn: called from the thread, and must allow it; logging does.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Sink],
        warn: Callable[[str], None],
        *,
        most_queued: int = MOST_QUEUED,
        close_s: float = CLOSE_S,
    ) -> None:
        self.left_out = 0
        self._name, self._factory, self._warn, self._close_s = name, make, warn, close_s
        self._queue: queue.Queue[Item | None] = queue.Queue(most_queued)
        self._thread = threading.Thread(target=self._run, name=f"sink {name}", daemon=True)
        self._thread.start()

    def write(self, record: MetricsRecord) -> None:
        self._put(record)

    def write_config(self, config: ConfigTables) -> None:
        self._put(config)

    def write_video(self, video: Video) -> None:
        self._put(video)

    def write_episodes(self, episodes: Sequence[Episode]) -> None:
        self._put(Episodes(tuple(episodes)))

    def close(self) -> None:
        """Wait until the queue is written and the sink is closed, for at most `close_s`; warn if it takes longer."""
        if self.left_out:
            self._warn(f"{self._name} was too slow: {self.left_out:,} records were left out")
        deadline = time.monotonic() + self._close_s
        try:
            self._queue.put(None, timeout=self._close_s)
        except queue.Full:
            pass  # the thread is stuck, as reported below
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._warn(f"{self._name} did not close within {self._close_s:g} s: its last records may be missing")

    def _put(self, item: Item) -> None:
        if not self._thread.is_alive():
            return  # dropped, which has been reported
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self.left_out += 1

    def _run(self) -> None:
        sink = None
        try:
            sink = self._factory()
            while (item := self._queue.get()) is not None:
                _pass(sink, item)
        except BaseException as error:  # also SystemExit of user code: it must not end the recorder
            self._warn(f"{self._name} is dropped: {cause(error)}")
            _close_quietly(sink)
            self._discard()
            return
        try:
            sink.close()
        except BaseException as error:
            self._warn(f"{self._name} did not close: {cause(error)}")

    def _discard(self) -> None:
        """Empty the queue, so that a caller that waits in `close` continues."""
        while True:
            try:
                self._queue.get_nowait()
            except queue.Empty:
                return


def _pass(sink: Sink, item: Item) -> None:
    if isinstance(item, MetricsRecord):
        sink.write(item)
    elif isinstance(item, Video):
        if isinstance(sink, VideoSink):
            sink.write_video(item)
    elif isinstance(item, Episodes):
        if isinstance(sink, EpisodeSink):
            for episode in item.all:
                sink.write_episode(episode)
    elif isinstance(sink, ConfigSink):
        sink.write_config(item)


def _close_quietly(sink: Sink | None) -> None:
    try:
        if sink is not None:
            sink.close()
    except BaseException:
        pass  # the sink's failure has been reported
