"""Types for the outcome of a run and for what the supervisor logs on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hive.runtime.wire.messages import Tree


@dataclass(frozen=True)
class Outcome:
    """The final state, error, counters and accounts of a run, as summary.json shows them."""

    state: str  # finished | stopped | failed
    reason: str
    error: str  # "" unless failed
    hint: str
    exact: bool
    restarts: dict[str, int]
    channels: dict[str, dict[str, Any]]
    results: dict[str, float]
    digest: str
    report: str = ""  # path of the crash report of the exit that ended the run
    frames: str = ""  # last frames of user code in the traceback of that exit, as Python prints them


@dataclass(frozen=True)
class CrashReport:
    """The sections of a crash report, as arguments of hive.records.write_crash; "" or [] where unknown."""

    actor: str
    error: str
    doing: str
    traceback: str = ""
    stack: str = ""  # stack of the process itself, if it was stuck
    story: list[str] = field(default_factory=list)  # transition history of the actor, oldest first
    events: list[str] = field(default_factory=list)  # last events of the whole run, including this exit
    stacks: str = ""  # stacks of the other processes, if this exit ends the run


# Appends a line to the event log: (kind, text, fields).
WriteEvent = Callable[[str, str, dict[str, Tree]], None]
# Writes a crash report and returns its path, "" if it could not be written.
WriteCrash = Callable[[CrashReport], str]


@dataclass(frozen=True)
class Journal:
    """The two functions through which the supervisor logs events and writes crash reports."""

    event: WriteEvent
    crash: WriteCrash
