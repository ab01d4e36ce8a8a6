"""Looking at a run from outside, without costing it anything that counts.

    state, incarnations, accounts    the supervisor's answer on its control socket, as `hive ps` asks
    versions, updates                the actors' status pages, mapped here: a microsecond, and nobody is asked
    who died and who came back       new lines of events.jsonl

A page outlives its actor: between a death and the next incarnation it says what the dead one said last.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hive import _native
from hive.errors import HiveError, UsageError
from hive.records import RunDirectory, is_alive, read_run_facts
from hive.records.documents import parse_object
from hive.runtime.control import ControlClient, open_control
from hive.runtime.memory import Segment
from hive.runtime.status import ActorStatus, read_status

__all__ = ["Events", "Pages", "Watched", "results_of"]

STATUS = "memfd:hive-status"  # the segment of the status pages, as the kernel calls it


class Pages:
    """The status pages of a live run, by the actors' numbers."""

    def __init__(self, supervisor: int) -> None:
        fd = next(fd for fd in Path(f"/proc/{supervisor}/fd").iterdir() if os.readlink(fd).startswith(f"/{STATUS} "))
        self.pages = _native.Status(Segment.open(supervisor, int(fd.name)).memory)

    def read(self, number: int) -> ActorStatus:
        return read_status(self.pages, number)


class Events:
    """A run's diary, as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        self.all: list[dict[str, Any]] = []

    def fresh(self) -> list[dict[str, Any]]:
        """What was added since the last call."""
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
    """A live run: its facts, its control socket, its pages, its diary."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.facts = read_run_facts(directory)
        self.client: ControlClient = open_control(Path(self.facts.socket_folder))
        self.pages = Pages(self.facts.pid)
        self.events = Events(directory.events_file)
        self.names: list[str] = [actor["name"] for actor in self.client.status()["actors"]]

    def status(self) -> dict[str, Any] | None:
        """The supervisor's answer; None once it has ended. Raises UsageError when it is there and does not answer."""
        try:
            return self.client.status()
        except UsageError as error:
            if "does not answer" in str(error) and is_alive(self.facts):
                raise
            return None

    def number(self, name: str) -> int:
        return self.names.index(name)

    def reconnect(self) -> None:
        """After an answer that did not come: it might come now, to another question. Raises UsageError."""
        self.client.close()
        self.client = open_control(Path(self.facts.socket_folder))

    def close(self) -> None:
        self.client.close()


def results_of(status: Mapping[str, Any]) -> Mapping[str, float]:
    """The counters of the actor that counts for the whole run; empty before it has begun."""
    actors: Sequence[Mapping[str, Any]] = status["actors"]
    return next((a["counters"] for a in actors if a["name"] == status.get("results_actor")), {})


def wait_for_steps(watched: Watched, steps: float, limit_s: float) -> Mapping[str, float]:
    """Waits until so many environment steps are applied. Raises HiveError where that takes too long, or never comes."""
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
