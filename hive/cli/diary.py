"""What is new in a run's diary, as the foreground of `hive up` prints it.

`events.jsonl` grows by whole lines. Of a run that is resumed nobody wants to read again what was there before.
"""

from __future__ import annotations

from hive.monitor import StatusLine, event_text
from hive.records import RunDirectory
from hive.records.documents import parse_object

__all__ = ["SHOWN", "NewEvents"]

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
    "saved",
    "set",
    "not done",
    "paused",
    "resumed",
    "draining",
)  # events a foreground prints


class NewEvents:
    """Prints what is new in the diary: not what is there already when a run is resumed."""

    def __init__(self, directory: RunDirectory) -> None:
        self.path = directory.events_file
        self.position = self.path.stat().st_size if self.path.exists() else 0

    def show(self, line: StatusLine) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.position)
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                self.position += len(raw)
                event = parse_object(raw)  # None: cut short by a full disk
                if event is not None and event.get("kind") in SHOWN:
                    line.say(event_text(event))
