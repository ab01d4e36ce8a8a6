"""Detect slow environments and wasted messages, which are worth a line in the event log but are not errors.

    slow     one step or reset of all environments of an actor took longer than SLOW_S, and delays its rollout
    stale    a channel dropped messages older than `max_lag`: the work that produced them was wasted

Each is logged when it is first seen for an actor or a channel, and then at most once per EVERY_S with a count.
Processes that are stuck are the concern of hive.runtime.supervise.watchdog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hive.runtime.memory.status import ActorStatus

SLOW_S = 1.0  # duration of a slow call: fast environments take microseconds for a step, slow ones milliseconds
EVERY_S = 60.0  # minimum interval between two lines about the same actor or channel, to keep the log readable
ENVIRONMENT = "env"  # name of the phase in which an actor steps or resets its environments


@dataclass(frozen=True)
class Diagnostic:
    """A line for the event log. `actor` is "" if it concerns a channel."""

    kind: str
    text: str
    actor: str = ""


@dataclass
class _Slow:
    incarnation: int
    call_ns: int | None = None  # start of the slow call in progress
    call_s: float = 0.0  # its duration when last seen
    times: int = 0  # slow calls since the last line
    longest_s: float = 0.0  # longest of them
    logged_ns: int | None = None  # time of the last line


@dataclass
class _Stale:
    counted: int = 0  # stale messages up to the last line
    logged_ns: int | None = None


class Diagnostics:
    """Remembers the state of each actor and channel, and returns a line for each change. Times: ns, monotonic clock."""

    def __init__(self) -> None:
        self._slow: dict[str, _Slow] = {}
        self._stale: dict[str, _Stale] = {}

    def of_actor(self, status: ActorStatus, now_ns: int) -> list[Diagnostic]:
        """Return new lines about an actor, from its status page, which its current incarnation has opened.

        A slow call is reported after it has ended, with its duration when last seen. A call during which the actor
        exits is not reported: the exit is.
        """
        in_slow_call = status.phase == ENVIRONMENT and status.doing_s > SLOW_S
        if not in_slow_call and status.name not in self._slow:
            return []
        slow = self._slow.setdefault(status.name, _Slow(status.incarnation))
        if slow.incarnation != status.incarnation:
            slow.incarnation, slow.call_ns = status.incarnation, None
        if slow.call_ns is not None and not (in_slow_call and status.since_ns == slow.call_ns):
            slow.times, slow.longest_s, slow.call_ns = slow.times + 1, max(slow.longest_s, slow.call_s), None
        if in_slow_call:
            slow.call_ns, slow.call_s = status.since_ns, status.doing_s
        if not slow.times or (slow.logged_ns is not None and now_ns - slow.logged_ns < EVERY_S * 1e9):
            return []
        count = "" if slow.logged_ns is None else f", {slow.times} slow steps since the last report"
        text = f"the environments of {status.name} took {slow.longest_s:.1f} s for one step{count}"
        slow.logged_ns, slow.times, slow.longest_s = now_ns, 0, 0.0
        return [Diagnostic("slow", text, status.name)]

    def of_channels(self, accounts: Mapping[str, Mapping[str, Any]], now_ns: int) -> list[Diagnostic]:
        """Return new lines about dropped messages, from the accounts of all channels
        (hive.runtime.supervise.accounting)."""
        found = []
        for name, account in accounts.items():
            count = account["dropped"].get("stale", 0)
            stale = self._stale.setdefault(name, _Stale())
            if count <= stale.counted or (stale.logged_ns is not None and now_ns - stale.logged_ns < EVERY_S * 1e9):
                continue
            new, stale.counted, stale.logged_ns = count - stale.counted, count, now_ns
            text = f"{new:,} messages of `{name}` were older than max_lag allows and were dropped"
            found.append(Diagnostic("stale", f"{text}; a larger max_lag or fewer workers waste less"))
        return found
