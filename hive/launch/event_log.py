"""Prints new events of a run's event log, for the foreground view of `hive up`.

`events.jsonl` grows by whole lines. Events from before a resume are not printed again. Of warnings at most SHOWN are
printed at the start, the worst first; later each once, and again if its cause is another one. The status line says
which hold.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from hive.monitor import StatusLine, event_text
from hive.records import RunDirectory
from hive.records.jsonl import parse_line
from hive.records.run_warnings import WARNING, RunWarning, active, logged_warnings, shown, warnings_of
from hive.records.tail import Tail
from hive.warning_names import SHOWN

NUMBER = re.compile(r"[-+]?\d[\d,.]*(e[-+]?\d+)?%?")
EVENTS = (
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
        self.name = directory.name
        self.warned: dict[str, str] = {}  # name -> cause, without its numbers, of each warning that was printed
        self.begins = not directory.run_file.exists()  # the warnings of a new config are in the log already
        self.tail = Tail(directory.events_file, None if self.begins else 0)
        if not self.begins:
            self.tail.skip()
            for warning in active(logged_warnings(directory)):
                self._is_new(warning)

    def show(self, line: StatusLine, warnings: Iterable[RunWarning] = ()) -> None:
        """Print the events logged since the last call, above the status line.

        `warnings` are those of a status that was requested before this call. One that holds and is not in the event
        log is printed too: a full disk takes no line.
        """
        logged: list[RunWarning] = []
        for event in filter(None, map(parse_line, self.tail.lines())):
            kind = event.get("kind")
            if kind == WARNING:
                logged += warnings_of([event]).values()
            elif kind in EVENTS and event.get("routine") is not True:
                line.say(event_text(event))
                self.begins = self.begins and kind != "running"
        self._show_warnings(line, [*logged, *warnings])

    def _show_warnings(self, line: StatusLine, warnings: Iterable[RunWarning]) -> None:
        latest = {warning.kind: warning for warning in warnings}
        new = [warning for warning in shown(latest.values()) if self._is_new(warning)]
        room = max(SHOWN - len(self.warned) + len(new), 0) if self.begins else len(new)
        for warning in new[:room]:
            line.say(event_text({"kind": WARNING, "text": f"warning: {warning.line}", "t": time.time()}))
        if new[room:]:
            line.say(f"and {len(new) - room} more: hive doctor {self.name}")

    def _is_new(self, warning: RunWarning) -> bool:
        """Return whether a warning has not been printed with this cause, and note that it is now."""
        cause = NUMBER.sub("", warning.text)
        is_new = self.warned.get(warning.kind) != cause
        self.warned[warning.kind] = cause
        return is_new
