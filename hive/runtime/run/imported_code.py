"""What the collectors of a run have imported, on all hosts and in all parts of the run, and what of it differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hive.runtime.process.user_code.code_of_run import differences


class ImportedCode:
    """Compares what later collectors have imported with what the first have. logged: events of the run so far."""

    def __init__(self, logged: Iterable[Mapping[str, Any]]) -> None:
        self.found: dict[str, str] = {}  # name -> digest or version
        self.others: list[str] = []  # names of what a later one has found otherwise
        for event in logged:
            self.add(event)
        self.others.clear()  # of earlier parts of the run, whose end has named it

    def add(self, event: Mapping[str, Any]) -> list[str] | None:
        """Take what a collector has imported; return the names of what differs, and None if nothing of it is new."""
        found = event.get("code")
        if not isinstance(found, Mapping):
            return []
        others = [name for name in differences(self.found, found) if name not in self.others]
        is_new = bool(others or found.keys() - self.found.keys())
        self.found |= {str(name): str(value) for name, value in found.items()}
        self.others += others
        return others if is_new else None


def cause_of(who: str, names: Sequence[str]) -> str:
    """Return how the user's files of a collector, or another machine, differ from those before it; "" if none does."""
    modules = [name for name in names if name.startswith("module ")]
    return f"{' and '.join(modules)} of {who} differs from that with which the run began" if modules else ""
