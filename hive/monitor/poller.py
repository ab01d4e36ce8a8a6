"""Poll one run: a snapshot a second, from its supervisor while the run is alive and from its files afterwards.

    the run is alive            the supervisor sends its status once a second (hive.runtime.run.control, `Watch`)
    the supervisor is silent    the last snapshot with the reason, stopped or busy; training may well continue
    the run has ended           its directory (hive.monitor.replay), until the run is resumed

Closing the connection is all that leaving takes. A view requests the status and nothing else. That costs the supervisor
one read of each actor's status page per second, however many views are open.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from hive.config import Config, load_config
from hive.errors import HiveError, UsageError
from hive.gpus import Gpu, gpus_here
from hive.monitor.history import History
from hive.monitor.live import snapshot_of
from hive.monitor.replay import snapshot_from_files
from hive.monitor.rows import STOPPED
from hive.monitor.series import RETURN, Points, Series
from hive.monitor.snapshot import Extras, Snapshot
from hive.records import RunDirectory, policies_of, read_run_facts, run_state
from hive.records.environments import environments_of
from hive.records.jsonl import parse_line
from hive.records.tail import Tail
from hive.runtime.run.control import ControlClient, OtherProtocol, open_run
from hive.runtime.run.process_facts import ProcessFacts, ProcessPoller

SILENT_S = 3.0  # seconds without a document, of which one is due each second, until the supervisor counts as silent
EVENTS_BACK = 1 << 17  # bytes of the event log that the first read takes: a thousand events
EVENTS = 200  # events kept
FREQUENT = "saved"  # kind of the events that are left out first: a fast run writes a checkpoint a second
RETURNS = 240  # maximum points of a snapshot's curve of returns: two for each column of a wide screen


class Poller:
    """Returns snapshots of one run to one thread. Another thread may read `series` while no `take` is executing."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.history = History()
        self.series = Series(directory.metrics_file)
        self.policies: dict[str, Series] = {}  # of the policies after the first, once they are known
        self.processes = ProcessPoller()
        self.event_log = Tail(directory.events_file, EVENTS_BACK)
        self.events: list[Mapping[str, Any]] = []
        self.client: ControlClient | None = None
        self.received: dict[str, Any] | None = None  # the document that the last `wait` received
        self.status: dict[str, Any] | None = None  # the last document that `take` used
        self.received_t = 0.0  # when it was received, in seconds since 1970
        self.config: Config | None = None  # that of the run, once it can be read

    def next(self) -> Snapshot:
        """Return the next snapshot: the first at once, later ones when the supervisor sends its status.

        Takes at most `SILENT_S`. Raises OtherProtocol and UsageError, as `wait` and `take`.
        """
        self.wait()
        return self.take()

    def wait(self) -> None:
        """Wait until the supervisor sends its status, at most `SILENT_S`; the slow half of `next`.

        Raises OtherProtocol where the supervisor is of another version of hive, or is none.
        """
        self.received = None
        if run_state(self.directory) != "running":
            self.close()
            return
        try:
            self.received = self._receive()
            self.received_t = time.time()
        except OtherProtocol:
            self.close()
            raise  # trying again cannot help: no message of this supervisor can be decoded
        except HiveError:
            self.close()

    def take(self) -> Snapshot:
        """Make a snapshot from the document received, or from the files; the fast half of `next`.

        Raises UsageError where the supervisor is silent and has never sent its status.
        """
        if self.received is None:
            if run_state(self.directory) == "running":
                return self._silent()
            return snapshot_from_files(self.directory, self._extras(time.time(), {}), self._goal())
        status = self.status = self.received
        self.series.read(self.history if not self.history.documents else None)
        self.history.add(status, self.received_t)
        rows = (row for row in (*status["helpers"], *status["actors"]) if not row.get("host"))
        pids = [status["pid"], *(row["pid"] for row in rows)]
        extras = self._extras(self.received_t, self.processes.facts(pids, self.received_t))
        snapshot = snapshot_of(status, self.history, extras)
        self._add_groups(snapshot)
        return snapshot

    def _receive(self) -> dict[str, Any]:
        if self.client is not None:
            return self.client.next_status()
        self.client = open_run(self.directory)
        self.client.line.settimeout(SILENT_S)
        return self.client.watch()

    def _silent(self) -> Snapshot:
        """Return the last snapshot, marked with the reason of the silence. Raises UsageError where there is none."""
        pid = read_run_facts(self.directory).pid
        facts = self.processes.facts([pid], time.time())
        stopped = pid in facts and facts[pid].state == STOPPED
        what, note = "does not answer", ""
        if stopped:
            what, note = "is stopped (SIGSTOP)", "; training continues unsupervised"
        if self.status is None:
            raise UsageError(f"the supervisor of {self.directory.name} {what}{note}", hint=f"its pid is {pid}")
        clock = time.strftime("%H:%M:%S", time.localtime(self.received_t))
        snapshot = snapshot_of(self.status, self.history, self._extras(time.time(), {}))
        return dataclasses.replace(snapshot, supervisor=f"{what}, since {clock}{note}", bound_by="unknown")

    def _extras(self, t: float, processes: Mapping[int, ProcessFacts]) -> Extras:
        self.series.read()
        for raw in self.event_log.lines():
            event = parse_line(raw)
            if event is not None:
                self._keep(event)
        return Extras(
            t,
            processes,
            tuple(thinned(_returns_in(self.series))),
            tuple(self.events),
            self.processes.cores,
            self.processes.cores_busy(),
            self._gpus(),
            self._policy_returns(),
            environments_of(self.directory),
        )

    def _keep(self, event: Mapping[str, Any]) -> None:
        """Add an event. Beyond `EVENTS`, the oldest checkpoint is left out, or else the oldest event."""
        self.events.append(event)
        if len(self.events) > EVENTS:
            kinds = [event.get("kind") for event in self.events[:-1]]
            del self.events[kinds.index(FREQUENT) if FREQUENT in kinds else 0]

    def _policy_returns(self) -> dict[str, tuple[tuple[float, float], ...]]:
        """Return the curves of returns of the policies after the first, whose series is that of the run."""
        if not self.policies:
            with contextlib.suppress(HiveError):  # the other parts of a snapshot do not depend on it
                others = [*policies_of(self.directory).items()][1:]
                self.policies = {name: Series(folder.metrics_file) for name, folder in others}
        for series in self.policies.values():
            series.read()
        return {name: tuple(thinned(_returns_in(series))) for name, series in self.policies.items()}

    def _config(self) -> Config | None:
        if self.config is None:
            with contextlib.suppress(HiveError):  # the other parts of a snapshot do not depend on it
                self.config = load_config(self.directory.resolved_file)
        return self.config

    def _goal(self) -> int:
        config = self._config()
        return 0 if config is None else config.run.steps

    def _gpus(self) -> tuple[Gpu, ...]:
        config = self._config()
        return () if config is None or config.gradients.device == "cpu" else tuple(gpus_here() or ())

    def _add_groups(self, snapshot: Snapshot) -> None:
        """Add each group's busy share and rate to the curves: the recorder does not write these."""
        for name, rows in snapshot.groups.items():
            if snapshot.window_s:
                self.series.add_group(f"{name}/busy", [row.busy for row in rows if row.busy is not None])
                rates = [row.rate for row in rows if row.rate is not None]
                self.series.add_group(f"{name}/{rows[0].rate_of}_per_s", rates if rows[0].rate_of else [])

    def close(self) -> None:
        """Close the connection. The run continues."""
        if self.client is not None:
            self.client.close()
            self.client = None


def _returns_in(series: Series) -> Points:
    curve = series.curve(RETURN)
    return curve.points("steps") if curve else []


def thinned(points: Points) -> Points:
    """Return at most `RETURNS` of the points, evenly spaced, including the first and the last."""
    stride = -(-len(points) // RETURNS)
    return points if stride <= 1 else [*points[:-1:stride], points[-1]]


def poll_once(directory: RunDirectory) -> Snapshot:
    """Return one snapshot; of a live run after a second, over which shares and rates are measured.

    Raises UsageError where the supervisor does not answer.
    """
    poller = Poller(directory)
    try:
        first = poller.next()
        return poller.next() if first.state == "running" else first
    finally:
        poller.close()
