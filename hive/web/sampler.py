"""One sampler for each watched run: a thread that polls the run and sends every sample to all viewers of the run.

    thread:  Poller.wait -> Poller.take -> sample (encoded once) ──> every viewer's queue ──> its stream

The first viewer starts the sampler. It ends `LINGER_S` after the last one has left, so that a page that reconnects
finds it. A viewer first receives everything (curves, events, page) or, with a position, the lines that it lacks; then
samples with the lines added since the sample before. A viewer that reads too slowly is disconnected. It reconnects with
its last event id, and misses nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hive.errors import HiveError, UsageError
from hive.monitor.log_view import MergedLog
from hive.monitor.poller import EVENTS_BACK, Poller
from hive.monitor.snapshot import Snapshot
from hive.records import RunDirectory
from hive.records.documents import json_text
from hive.records.jsonl import parse_line
from hive.web.curves import LineTimes, curves_document
from hive.web.page import page_document
from hive.web.positions import SEPARATOR, Position, RecordingTail, flat, lines_between

AGAIN_S = 2.0  # seconds between two polls of a run that sends nothing
LINGER_S = 10.0  # seconds that a sampler outlives its last viewer; reloading a page takes less
QUEUED_SAMPLES = 64  # samples that may wait for a slow viewer: a minute of one run, or seconds of many
MOST_VIEWERS = 64  # maximum streams: each is a connection and a queue
MOST_RUNS = 32  # maximum runs of one stream: more curves than a chart can show


class Viewer:
    """One stream: a queue of samples of its runs. `runs` must keep the order of the URL, to which event ids refer."""

    def __init__(self, runs: Sequence[str], positions: Sequence[Position | None]) -> None:
        self.runs = tuple(runs)
        self.ids = [position.text if position else "0" for position in positions]
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[tuple[int, str, str] | None] = asyncio.Queue(QUEUED_SAMPLES)

    def offer(self, run: str, position: str, sample: str) -> None:
        """Queue a sample; called by the threads of samplers."""
        self._soon(self._put, (self.runs.index(run), position, sample))

    def disconnect(self) -> None:
        """End the stream, as `end` does; called by any thread."""
        self._soon(self.end)

    def _soon(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            pass  # the server has ended

    def _put(self, item: tuple[int, str, str]) -> None:
        if self.queue.full():
            self.end()
        else:
            self.queue.put_nowait(item)

    def end(self) -> None:
        """End the stream. The browser reconnects, unless the server has ended."""
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)

    async def message(self, timeout_s: float) -> str | None:
        """Return the next message of the stream; a comment after `timeout_s` without one; None at the end."""
        try:
            item = await asyncio.wait_for(self.queue.get(), timeout_s)
        except TimeoutError:
            return ": nothing new\n\n"
        if item is None:
            return None
        number, position, sample = item
        self.ids[number] = position or self.ids[number]
        return f"id: {SEPARATOR.join(self.ids)}\ndata: {sample}\n\n"


class Sampler:
    """Samples one run for all its viewers."""

    def __init__(self, key: str, directory: RunDirectory, clock: Callable[[], float] = time.monotonic) -> None:
        """key: the name of the run in requests (hive.web.catalogue)."""
        self.key = key
        self.directory = directory
        self.clock = clock
        self.lock = threading.Lock()  # held while the curves change, and while a viewer joins
        self.wake = threading.Event()
        self.log = MergedLog(directory.logs)
        self.log_lock = threading.Lock()
        self.viewers: list[Viewer] = []
        self.joining: list[tuple[Viewer, Position | None]] = []
        self.left_t = clock()  # when the last viewer left
        self.stopped = False
        self.page: dict[str, Any] | None = None
        self.problem = ""
        self.thread = threading.Thread(target=self._run, name=f"sampler of {key}", daemon=True)
        self.poller = Poller(directory)
        self.metrics = self.poller.series.tail = RecordingTail(directory.metrics_file)
        self.events = self.poller.event_log = RecordingTail(directory.events_file, EVENTS_BACK)
        self.times = LineTimes()

    def start(self) -> None:
        self.thread.start()

    def join(self, viewer: Viewer, position: Position | None) -> bool:
        """Add a viewer that has read up to `position`. False if this sampler has ended: start another one."""
        with self.lock:
            if self.stopped:
                return False
            self.viewers.append(viewer)
            if self.page is None and not self.problem:
                self.joining.append((viewer, position))
            else:
                viewer.offer(self.key, *self._first(position))
            return True

    def leave(self, viewer: Viewer) -> None:
        with self.lock:
            self.viewers.remove(viewer)
            self.joining = [pair for pair in self.joining if pair[0] is not viewer]
            self.left_t = self.clock()

    def _run(self) -> None:
        try:
            while not self._over():
                if self.sample():
                    self.wake.wait(AGAIN_S)
        except Exception as error:  # a fault of hive: the pages must not wait for samples forever
            self._fail(error)
        self.poller.close()

    def _fail(self, error: Exception) -> None:
        """End the sampler and send the error to all viewers; the next viewer starts another sampler."""
        with self.lock:
            self.stopped = True
            self.page, self.problem = None, f"this run cannot be shown: {type(error).__name__}: {error}"
            self._to_all(self.viewers, "", self._sample((), ()))

    def _over(self) -> bool:
        with self.lock:
            self.stopped |= not self.viewers and self.clock() - self.left_t >= LINGER_S
            return self.stopped

    def stop(self) -> None:
        """End the sampler at once."""
        with self.lock:
            self.stopped = True
        self.wake.set()

    def sample(self) -> bool:
        """Poll the run once, and send the sample to all viewers. Return whether the run sends nothing by itself."""
        snapshot: Snapshot | None = None
        problem = ""
        try:
            self.poller.wait()
        except HiveError as error:
            problem = error.render()
        with self.lock:
            try:
                snapshot = None if problem else self.poller.take()
            except HiveError as error:
                problem = error.render()
            self._send(snapshot, problem)
        return snapshot is None or bool(snapshot.supervisor) or self.poller.client is None

    def _send(self, snapshot: Snapshot | None, problem: str) -> None:
        page = self.page if snapshot is None else page_document(snapshot)
        metrics, metrics_replaced = self.metrics.take()
        events, events_replaced = self.events.take()
        if metrics_replaced:
            self.times = LineTimes()
        lines = _parsed(metrics)
        for line in lines:
            self.times.add(line)
        joining, self.joining = self.joining, []
        before, self.page, self.problem = (self.page, self.problem), page, problem
        if metrics_replaced or events_replaced:
            self._to_all(self.viewers, *self._everything())
            return
        if before != (page, problem) or lines or events:
            fresh = {id(viewer) for viewer, _ in joining}
            sample = self._sample(lines, _parsed(events))
            self._to_all([v for v in self.viewers if id(v) not in fresh], self.position.text, sample)
        for viewer, position in joining:
            viewer.offer(self.key, *self._first(position))

    def _to_all(self, viewers: Iterable[Viewer], position: str, sample: str) -> None:
        for viewer in viewers:
            viewer.offer(self.key, position, sample)

    @property
    def position(self) -> Position:
        metrics, events = self.metrics, self.events
        return Position(metrics.inode, metrics.position, events.inode, events.position)

    def _sample(self, lines: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> str:
        return json_text(
            {"run": self.key, "page": self.page, "problem": self.problem, "lines": lines, "events": events}
        )

    def _first(self, position: Position | None) -> tuple[str, str]:
        """Return the first sample of a viewer: the lines that it lacks, or everything."""
        now = self.position
        if position is None:
            return self._everything()
        metrics = lines_between(
            self.directory.metrics_file, position.metrics_inode, position.metrics_offset, now.metrics_offset
        )
        events = lines_between(
            self.directory.events_file, position.events_inode, position.events_offset, now.events_offset
        )
        same = position.metrics_inode == now.metrics_inode and position.events_inode == now.events_inode
        if metrics is None or events is None or not same:
            return self._everything()
        return now.text, self._sample(_parsed(metrics), _parsed(events))

    def _everything(self) -> tuple[str, str]:
        sample = {
            "run": self.key,
            "page": self.page,
            "problem": self.problem,
            "curves": curves_document(self.poller.series, self.times),
            "events": [flat(event) for event in self.poller.events],
        }
        return self.position.text, json_text(sample)


def _parsed(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    return [flat(line) for line in map(parse_line, lines) if line is not None]


class Samplers:
    """The samplers of all watched runs, and the viewers of all streams."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.samplers: dict[str, Sampler] = {}
        self.viewers: set[Viewer] = set()

    def join(self, viewer: Viewer, directories: Mapping[str, RunDirectory], ids: Sequence[Position | None]) -> None:
        """Send samples of these runs to the viewer. Raises UsageError if there are too many viewers."""
        with self.lock:
            if len(self.viewers) >= MOST_VIEWERS:
                raise UsageError(f"{MOST_VIEWERS} pages are open, which is the limit", hint="close some of them")
            self.viewers.add(viewer)
            for (name, directory), position in zip(directories.items(), ids, strict=True):
                sampler = self.samplers.get(name)
                if sampler is not None and sampler.directory != directory:
                    sampler.stop()
                    for other in sampler.viewers:
                        other.disconnect()  # it reconnects, to the sampler of the directory that the name means now
                if sampler is None or not sampler.join(viewer, position):
                    sampler = self.samplers[name] = Sampler(name, directory)
                    sampler.join(viewer, position)
                    sampler.start()

    def leave(self, viewer: Viewer) -> None:
        with self.lock:
            if viewer in self.viewers:
                self.viewers.remove(viewer)
                for sampler in self.samplers.values():
                    if viewer in sampler.viewers:
                        sampler.leave(viewer)
            self.samplers = {name: sampler for name, sampler in self.samplers.items() if not sampler.stopped}

    def log_of(self, key: str, directory: RunDirectory) -> tuple[MergedLog, threading.Lock]:
        """Return the merged log of a run, with the lock that its readers hold: the sampler's, if there is one."""
        with self.lock:
            sampler = self.samplers.get(key)
        return (sampler.log, sampler.log_lock) if sampler else (MergedLog(directory.logs), threading.Lock())

    def close(self) -> None:
        """End all streams and samplers."""
        with self.lock:
            for viewer in self.viewers:
                viewer.end()
            for sampler in self.samplers.values():
                sampler.stop()
