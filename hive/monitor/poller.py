"""Looking at one run: a snapshot a second, from its supervisor while it lives and from its files after.

    run lives       the supervisor tells its status once a second (hive.runtime.control, `Watch`)
    it is silent    the last document is shown, with what is wrong: stopped, or busy; the run may well go on
    run has ended   its directory (hive.monitor.replay), until somebody resumes it

Leaving is closing the line. Nothing here asks the run for anything but its status, which costs it a page read for each
actor and a second, however many look.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from hive.config import load_config
from hive.errors import HiveError, UsageError
from hive.monitor.history import History
from hive.monitor.processes import ProcessLook
from hive.monitor.replay import replayed
from hive.monitor.rows import STOPPED, ProcessFacts
from hive.monitor.series import RETURN, Points, Series
from hive.monitor.snapshot import Extras, Snapshot, snapshot_of
from hive.monitor.tail import Tail
from hive.records import RunDirectory, RunFacts, read_run_facts, run_state
from hive.records.documents import parse_object
from hive.runtime.control import ControlClient, OtherProtocol, open_run

__all__ = ["Look", "look_once"]

SILENT_S = 3.0  # without a document: what comes once a second is late for good
EVENTS_BACK = 1 << 17  # bytes of the diary read at first: a thousand events
EVENTS = 200  # kept
RETURNS = 240  # points of the curve that a snapshot carries: two for each column of a wide screen


class Look:
    """One view on one run, for one thread; another one may read `series` while this one is not in `take`."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.history = History()
        self.series = Series(directory.metrics_file)
        self.processes = ProcessLook()
        self.diary = Tail(directory.events_file, EVENTS_BACK)
        self.events: deque[Mapping[str, Any]] = deque(maxlen=EVENTS)
        self.client: ControlClient | None = None
        self.news: dict[str, Any] | None = None  # a document that was not taken yet
        self.status: dict[str, Any] | None = None  # the last one
        self.told_t = 0.0  # when it came
        self.goal_steps = 0

    def next(self) -> Snapshot:
        """The next snapshot: at once the first time, then when the supervisor has told, at most `SILENT_S` later."""
        self.wait()
        return self.take()

    def wait(self) -> None:
        """The part of `next` that may take long: until the supervisor has told. Raises OtherProtocol."""
        self.news = None
        if run_state(self.directory) != "running":
            self.close()
            return
        try:
            self.news = self._told()
            self.told_t = time.time()
        except OtherProtocol:
            raise  # it will never say anything that can be understood
        except HiveError:
            self.close()

    def take(self) -> Snapshot:
        """The other part: what has been told, and what the files say. Raises UsageError."""
        if self.news is None:
            if run_state(self.directory) == "running":
                return self._silent()
            return replayed(self.directory, self._extras(time.time(), {}), self._goal())
        status = self.status = self.news
        self.series.read(self.history if not self.history.documents else None)
        self.history.see(status, self.told_t)
        pids = [status["pid"], *(row["pid"] for row in (*status["helpers"], *status["actors"]))]
        extras = self._extras(self.told_t, self.processes.facts(pids, self.told_t))
        snapshot = snapshot_of(status, self.history, extras)
        self._see_groups(snapshot)
        return snapshot

    def _told(self) -> dict[str, Any]:
        if self.client is not None:
            return self.client.next_status()
        self.client = open_run(self.directory)
        self.client.line.settimeout(SILENT_S)
        return self.client.watch()

    def _facts(self) -> RunFacts:
        return read_run_facts(self.directory)

    def _silent(self) -> Snapshot:
        """The supervisor lives and says nothing. Raises UsageError where it never said anything."""
        pid = self._facts().pid
        facts = self.processes.facts([pid], time.time())
        stopped = pid in facts and facts[pid].state == STOPPED
        what = "stopped (SIGSTOP): training goes on unsupervised" if stopped else "does not answer"
        if self.status is None:
            raise UsageError(f"the supervisor of {self.directory.name} {what}", hint=f"its pid is {pid}")
        clock = time.strftime("%H:%M:%S", time.localtime(self.told_t))
        snapshot = snapshot_of(self.status, self.history, self._extras(time.time(), {}))
        return dataclasses.replace(snapshot, supervisor=f"{what}, since {clock}", bound_by="not known")

    def _extras(self, t: float, processes: Mapping[int, ProcessFacts]) -> Extras:
        self.series.read()
        for raw in self.diary.lines():
            event = parse_object(raw)
            if event is not None:
                self.events.append(event)
        return Extras(
            t,
            processes,
            tuple(thinned(self._returns())),
            tuple(self.events),
            len(self.processes.cores),
            self.processes.cores_busy(),
        )

    def _returns(self) -> Points:
        curve = self.series.curve(RETURN)
        return curve.points("steps") if curve else []

    def _goal(self) -> int:
        if not self.goal_steps:
            try:
                self.goal_steps = load_config(self.directory.resolved_file).run.steps
            except HiveError:
                pass  # it is not known, and nothing else depends on it
        return self.goal_steps

    def _see_groups(self, snapshot: Snapshot) -> None:
        """Curves of what the recorder does not write: how every group works, with a band over its actors."""
        for name, rows in snapshot.groups.items():
            if snapshot.window_s:
                self.series.see(f"{name}/busy", [row.busy for row in rows if row.busy is not None])
                rates = [row.rate for row in rows if row.rate is not None]
                self.series.see(f"{name}/{rows[0].rate_of}_per_s", rates if rows[0].rate_of else [])

    def close(self) -> None:
        """Leaves. The run goes on."""
        if self.client is not None:
            self.client.close()
            self.client = None


def thinned(points: Points) -> Points:
    """At most `RETURNS` of them, the first and the last among these."""
    stride = -(-len(points) // RETURNS)
    return points if stride <= 1 else [*points[:-1:stride], points[-1]]


def look_once(directory: RunDirectory) -> Snapshot:
    """One snapshot with the shares and rates of a second; of an ended run at once. Raises UsageError."""
    look = Look(directory)
    try:
        first = look.next()
        return look.next() if first.state == "running" else first
    finally:
        look.close()
