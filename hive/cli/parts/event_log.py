"""Prints new events of a run's event log, for the foreground view of `hive up`.

`events.jsonl` grows by whole lines. Events from before a resume are not printed again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from hive.monitor import StatusLine, event_text
from hive.records import RunDirectory
from hive.records.jsonl import parse_line, read_jsonl
from hive.records.run_warnings import RECOVERED, WARNING, RunWarning, active, warnings_of
from hive.records.tail import Tail

SHOWN = (
    "running",
    "scaled",
    "not scaled",
    "not started",
    "died",
    "restarted",
    "killed",
    "lost",
    "slow",
    "stale",
    "not finite",
    "warning",
    "recovered",
    "saved",
    "videos off",
    "set",
    "not done",
    "paused",
    "resumed",
    "draining",
)  # kinds of events that are printed, except checkpoints that are due by a schedule


class NewEvents:
    """Prints the events that are logged after this object was created."""

    def __init__(self, directory: RunDirectory) -> None:
        self.tail = Tail(directory.events_file, 0)
        self.tail.skip()
        logged = warnings_of(read_jsonl(directory.events_file))
        self.warned = {warning.kind: warning.text for warning in active(logged.values())}

    def show(self, line: StatusLine, warnings: Iterable[RunWarning] = ()) -> None:
        """Print the events logged since the last call, above the status line.

        `warnings` are those of a status that was requested before this call. One that holds and is not in the event
        log is printed too: a full disk takes no line.
        """
        for event in filter(None, map(parse_line, self.tail.lines())):
            if event.get("kind") in SHOWN and event.get("routine") is not True:
                line.say(event_text(event))
                self._remember(event)
        for warning in active(warnings):
            if self.warned.get(warning.kind) != warning.text:
                self.warned[warning.kind] = warning.text
                line.say(event_text({"kind": WARNING, "text": warning.line, "t": time.time()}))

    def _remember(self, event: Mapping[str, Any]) -> None:
        for warning in warnings_of([event]).values():
            self.warned[warning.kind] = warning.text
        if event["kind"] == RECOVERED:
            self.warned.pop(str(event.get("warning")), None)
