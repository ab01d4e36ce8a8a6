"""How a run ended, and where the supervisor writes what happened on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hive.runtime.messages import Tree
from hive.runtime.protocol import Failed
from hive.runtime.status import ActorStatus

__all__ = ["Journal", "Outcome"]


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


# (kind, text, fields): a line of the diary. (failure, status, story): a crash report; returns where it lies.
Event = Callable[[str, str, dict[str, Tree]], None]
Crash = Callable[[Failed, ActorStatus, list[str]], str]


@dataclass(frozen=True)
class Journal:
    """Where the supervisor writes what happened."""

    event: Event
    crash: Crash
