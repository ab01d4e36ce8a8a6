"""Define the actions of the supervisor: what its decisions return, as data, in the order of execution.

    decision(state, input) -> [action, ...]

The decisions are the functions of exits, joining, inbox, changes, pausing, ending and watchdog in this package. They
change only the SupervisorState. hive.runtime.supervise.effects executes the actions, except Restart, AwaitRest and
AnnounceLater, which begin with a wait: the supervisor executes these. Actions identify a process by its name, and an
actor by its number in the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from hive.runtime.wire.messages import Message, Tree


@dataclass(frozen=True)
class Send:
    """Post a message to the mailboxes of these processes."""

    to: tuple[str, ...]
    message: Message


@dataclass(frozen=True)
class Kill:
    """Send SIGKILL to a process. Its exit is confirmed later by the process table."""

    process: str


@dataclass(frozen=True)
class Restart:
    """Start the next incarnation of a process after `delay_s` seconds, unless the run ends before."""

    process: str
    delay_s: float


@dataclass(frozen=True)
class Reclaim:
    """Repair the page, slabs and boards of an actor whose process has exited; `why` is one of the drop reasons."""

    actor: int
    incarnation: int
    why: str


@dataclass(frozen=True)
class Retire:
    """Repair the slabs and boards of a finished actor whose process continues."""

    actor: int
    incarnation: int
    why: str


@dataclass(frozen=True)
class Forget:
    """Drop the messages queued for a mailbox whose process has exited."""

    address: str


@dataclass(frozen=True)
class Log:
    """Log an event, and keep it for crash reports."""

    kind: str
    text: str
    fields: Mapping[str, Tree] = field(default_factory=dict)


@dataclass(frozen=True)
class Diagnose:
    """Log an event that crash reports leave out, where it would displace the events that explain the crash."""

    kind: str
    text: str
    fields: Mapping[str, Tree] = field(default_factory=dict)


@dataclass(frozen=True)
class AnnounceLater:
    """Announce the new processes after a short delay, together with those that send Hello until then."""


@dataclass(frozen=True)
class AwaitRest:
    """Check repeatedly whether the run is at rest, until it is or the pause with this number is no longer wanted."""

    pause: int


@dataclass(frozen=True)
class DropInFlight:
    """Drop all messages still in flight as `run_ended`, after all actors have exited."""


Action: TypeAlias = (
    Send | Kill | Restart | Reclaim | Retire | Forget | Log | Diagnose | AnnounceLater | AwaitRest | DropInFlight
)
