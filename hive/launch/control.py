"""Requests to the supervisor of a live run, and reports of a long wait for it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from hive.records import RunDirectory
from hive.runtime.run.control import ControlClient, open_run

POLL_S = 0.02  # interval between two status requests: most requests are done within tens of milliseconds

REPORT_S = 2.0  # interval between two reports of a wait: slow environments and disks can take long


@contextmanager
def connected(directory: RunDirectory) -> Iterator[ControlClient]:
    """Connect to the run's supervisor. Raises UsageError if it cannot be reached."""
    with closing(open_run(directory)) as client:
        yield client


def print_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class WaitReporter:
    """Reports every `every_s` seconds what a command waits for, by calling `say` with a line of text."""

    def __init__(self, say: Callable[[str], object] = print_to_stderr, every_s: float | None = None) -> None:
        self.say = say
        self.every_s = REPORT_S if every_s is None else every_s
        self.next_s = time.monotonic() + self.every_s

    def see(self, what: Callable[[], str]) -> None:
        """Report if a line is due. `what` returns the text, and is only called then."""
        if time.monotonic() >= self.next_s:
            self.next_s = time.monotonic() + self.every_s
            self.say(f"still waiting for {what()}")

    def wait(self, what: Callable[[], str]) -> None:
        """Report if a line is due, then sleep for POLL_S seconds."""
        self.see(what)
        time.sleep(POLL_S)


def late_actors(status: Mapping[str, Any], states: Collection[str] = ("running", "draining")) -> str:
    """Return the actors in these states, by default those that have not stopped yet, as text.

    Each is given with its activity and the seconds spent in it, unless it begins that activity again and again.
    """
    late = [row for row in status["actors"] if row["state"] in states]
    since = (f", {row['since_s']:.0f} s" if row["since_s"] >= 1 else "" for row in late)
    return ", ".join(
        f"{row['name']} (in {row['activity'] or 'start'}{text})" for row, text in zip(late, since, strict=True)
    )
