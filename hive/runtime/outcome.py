"""How a run ended, and where the supervisor writes what happened on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hive.runtime.messages import Tree

__all__ = ["Death", "Journal", "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    state: str  # finished | stopped | failed
    reason: str
    error: str  # "" unless failed
    hint: str
    exact: bool
    restarts: dict[str, int]
    channels: dict[str, dict[str, Any]]
    results: dict[str, float]
    digest: str
    report: str = ""  # where the crash report of what ended it lies


@dataclass(frozen=True)
class Death:
    """What is known of one death, for a crash report."""

    actor: str
    error: str
    doing: str
    traceback: str = ""
    stack: str = ""  # its own, of one that was stuck
    story: list[str] = field(default_factory=list)  # its last transitions
    events: list[str] = field(default_factory=list)  # the last of the whole run, this one among them
    stacks: str = ""  # of the others, where the death ends the run


# (kind, text, fields): a line of the diary.
Event = Callable[[str, str, dict[str, Tree]], None]
# Writes a crash report; returns where it lies.
Crash = Callable[[Death], str]


@dataclass(frozen=True)
class Journal:
    """Where the supervisor writes what happened."""

    event: Event
    crash: Crash
