"""One run of `hive up --seeds`: from its turn to start to its row in the table.

waiting -> running -> finished, failed or stopped
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from hive.errors import HiveError
from hive.launch.starting import ask_to_end, began, clear_failure, discard_unbegun, raise_failure, start
from hive.monitor import Snapshot, snapshot_of
from hive.monitor.poller import poll_once
from hive.records import RunDirectory, Summary
from hive.records.failed_starts import has_results
from hive.records.return_text import return_text
from hive.records.standings import returns_text
from hive.runtime.process.stop_signals import FORCED
from hive.runtime.run.control import ControlClient, open_run

WAITING, RUNNING, FAILED, STOPPED = "waiting", "running", "failed", "stopped"


@dataclass(frozen=True)
class Counts:
    """The counts in a row: environment steps, updates, and the mean return of 100 training episodes as text."""

    env_steps: int
    updates: int
    mean_return: str


class SeedRun:
    """One run. `start` begins it, `update` follows it, and `end` judges it once `has_ended`.

    directory: None before the start, and for a run of which nothing is left because it never began. counts: the last
    known ones. summary: that of a run that ended in order. error: why a run without a summary failed.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.state = WAITING
        self.directory: RunDirectory | None = None
        self.counts: Counts | None = None
        self.summary: Summary | None = None
        self.error: HiveError | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_fd = -1  # becomes readable when the supervisor exits
        self._client: ControlClient | None = None
        self._signals: Counter[int] = Counter()  # that asked the run to end
        self._started = 0.0
        self._wall_s = 0.0

    @property
    def name(self) -> str:
        return "–" if self.directory is None else self.directory.name

    @property
    def seconds(self) -> float | None:
        """The seconds since its start, or those that it took; None while it waits."""
        if self.summary is not None:
            return self.summary.wall_s
        if self.state == RUNNING:
            return time.monotonic() - self._started
        return self._wall_s or None

    @property
    def forced(self) -> bool:
        """Whether it was ended at once, without saving."""
        return self._process is not None and self._process.returncode == FORCED

    @property
    def has_begun(self) -> bool:
        """Whether it did not fail before it had collected anything."""
        return self.directory is not None and (self.summary is not None or has_results(self.directory))

    @property
    def has_ended(self) -> bool:
        """Whether its supervisor has exited."""
        return self._process is not None and self._process.poll() is not None

    def start(self, directory: RunDirectory) -> None:
        """Start the supervisor of the run in this directory. Raises RecordError."""
        clear_failure(directory)
        self.directory, self._started = directory, time.monotonic()
        self._process = start(directory)
        self._exit_fd = os.pidfd_open(self._process.pid)
        self.state = RUNNING

    def refuse(self, error: HiveError) -> None:
        """Note that the run could not be started."""
        self.state, self.error = FAILED, error

    def ask_to_end(self, number: int) -> None:
        """Ask the run to end after this signal; the second signal of a kind ends it at once."""
        assert self.directory is not None
        assert self._process is not None
        ask_to_end(self.directory, self._process, number, self._signals)

    def update(self) -> None:
        """Take over the statuses that the supervisor has sent. Does not wait for one: a supervisor may be stopped."""
        assert self.directory is not None
        try:
            if self._client is None:
                self._client = open_run(self.directory)
                self._client.request_watch()
            while _readable([self._client.line.fileno()], 0.0):
                self.counts = _counts_of(snapshot_of(self._client.next_status()))
        except HiveError:
            self._disconnect()  # starting or ending; the next call tries again

    def end(self) -> None:
        """Take over how the run has ended."""
        assert self.directory is not None
        assert self._process is not None
        self._disconnect()
        os.close(self._exit_fd)
        self._wall_s = time.monotonic() - self._started
        directory = self.directory
        try:
            self._take_result(directory, self._process)
        except HiveError as error:
            self.refuse(error)
            with suppress(HiveError):
                self.counts = _counts_of(poll_once(directory)) if directory.path.exists() else None
        if not directory.path.exists():
            self.directory = None  # its name is free again

    def _take_result(self, directory: RunDirectory, process: subprocess.Popen[bytes]) -> None:
        """Take over the summary. Raises the error of a run that did not end in order, and RecordError."""
        if self._signals and discard_unbegun(directory):
            self.state = STOPPED
        elif began(directory):
            self.take_result(directory)
        else:
            raise_failure(directory, process.returncode, process.pid)

    def take_result(self, directory: RunDirectory) -> None:
        """Take over the summary of a run that has ended in order. Raises RecordError."""
        self.directory = directory
        self.summary = summary = Summary.read(directory.summary_file)
        self.state = summary.state
        self.counts = Counts(summary.env_steps, summary.updates, summary.return_text)

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def wait_for_end(runs: list[SeedRun], seconds: float) -> None:
    """Wait until one of these runs has ended, at most `seconds`."""
    _readable([run._exit_fd for run in runs], seconds)


def _readable(descriptors: list[int], seconds: float) -> bool:
    """Wait until one can be read, at most `seconds`. With poll, because select refuses descriptors above 1023."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def _counts_of(snapshot: Snapshot) -> Counts:
    mean = returns_text(snapshot.policies) or return_text(snapshot.mean_return)
    return Counts(snapshot.env_steps, snapshot.updates, mean)
