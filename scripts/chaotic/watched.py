"""Observe a run from outside at a negligible cost to it.

    state, incarnations, accounts    the supervisor's reply on its control socket, as for `hive ps`
    versions, updates                the actors' status pages, mapped into this process: a microsecond, no request
    exits and restarts               new lines of events.jsonl

A page outlives its actor: until the next incarnation starts, it keeps the last values of the killed one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hive import _native
from hive.errors import HiveError, UsageError
from hive.records import RunDirectory, is_alive, read_run_facts
from hive.records.documents import parse_object
from hive.runtime.memory.segments import Segment
from hive.runtime.memory.status import ActorStatus, read_status
from hive.runtime.run.control import ControlClient, open_control

STATUS = "memfd:hive-status"  # the kernel's name of the segment of status pages


class Pages:
    """The status pages of a live run, by the actors' numbers."""

    def __init__(self, supervisor: int) -> None:
        fd = next(fd for fd in Path(f"/proc/{supervisor}/fd").iterdir() if os.readlink(fd).startswith(f"/{STATUS} "))
        self.pages = _native.Status(Segment.open(supervisor, int(fd.name)).memory)

    def read(self, number: int) -> ActorStatus:
        return read_status(self.pages, number)


class Events:
    """A run's event log, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        self.all: list[dict[str, Any]] = []

    def fresh(self) -> list[dict[str, Any]]:
        """Return the events added since the last call."""
        found = list(self._lines())
        self.all += found
        return found

    def _lines(self) -> Iterator[dict[str, Any]]:
        with self.path.open("rb") as file:
            file.seek(self.position)
            for raw in file:
                if not raw.endswith(b"\n"):
                    return
                self.position += len(raw)
                event = parse_object(raw)
                if event is not None:
                    yield event


class Watched:
    """A live run: its facts, control socket, status pages and event log."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.facts = read_run_facts(directory)
        self.client: ControlClient = open_control(Path(self.facts.socket_folder))
        self.pages = Pages(self.facts.pid)
        self.events = Events(directory.events_file)
        self.names: list[str] = [actor["name"] for actor in self.client.status()["actors"]]

    def status(self) -> dict[str, Any] | None:
        """Return the supervisor's status; None once it has exited. Raises UsageError while it does not answer."""
        try:
            return self.client.status()
        except UsageError as error:
            if "does not answer" in str(error) and is_alive(self.facts):
                raise
            return None

    def number(self, name: str) -> int:
        return self.names.index(name)

    def reconnect(self) -> None:
        """Open a new connection after a timeout, whose late reply would answer the next request. Raises UsageError."""
        self.client.close()
        self.client = open_control(Path(self.facts.socket_folder))

    def close(self) -> None:
        self.client.close()


def results_of(status: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the results of the run so far; empty before it has begun."""
    results: Mapping[str, float] = status.get("results", {})
    return results


def wait_for_steps(watched: Watched, steps: float, limit_s: float) -> Mapping[str, float]:
    """Wait until `steps` environment steps are applied; return the counters. Raises HiveError where they are not."""
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        status = watched.status()
        if status is None:
            break
        results = results_of(status)
        if results.get("env_steps", 0.0) >= steps:
            return results
        time.sleep(0.02)
    raise HiveError(f"the run did not reach {steps:,.0f} steps within {limit_s:.0f} s")
