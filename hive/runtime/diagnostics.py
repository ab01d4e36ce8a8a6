"""Notices: what is worth a line in the diary though nothing is broken.

    slow     an actor's environments took longer than SLOW_S for one step or reset of all of them: its rollout waits
    stale    a channel dropped messages because they were older than `max_lag` allows: work that was done for nothing

Either is said at once when it is first seen of an actor or a channel, and then at most once in EVERY_S, with how often
it happened meanwhile. Nothing is judged here: who is stuck is found by hive.runtime.watchdog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hive.runtime.status import ActorStatus

__all__ = ["SLOW_S", "Notice", "Notices"]

SLOW_S = 1.0  # fast environments take microseconds for a step, slow ones milliseconds
EVERY_S = 60.0  # between two lines about the same: a diary is read by people
ENVIRONMENT = "env"  # the phase in which whoever steps environments is in them


@dataclass(frozen=True)
class Notice:
    """A line of the diary."""

    kind: str
    text: str
    actor: str = ""


@dataclass
class _Slow:
    incarnation: int
    call_ns: int | None = None  # when the slow call that goes on began
    call_s: float = 0.0
    times: int = 0  # since the last line
    longest_s: float = 0.0
    told_ns: int | None = None


@dataclass
class _Stale:
    counted: int = 0
    told_ns: int | None = None


class Notices:
    """Is told what is to be seen, and says what is new about it. Times are ns of the monotonic clock."""

    def __init__(self) -> None:
        self._slow: dict[str, _Slow] = {}
        self._stale: dict[str, _Stale] = {}

    def of_actor(self, status: ActorStatus, now_ns: int) -> list[Notice]:
        """Of a look at a page that the actor of today has opened.

        A step is told when it is over, as long as it was when it was last seen. Who dies in one is told as dead.
        """
        in_one = status.phase == ENVIRONMENT and status.doing_s > SLOW_S
        if not in_one and status.name not in self._slow:
            return []
        slow = self._slow.setdefault(status.name, _Slow(status.incarnation))
        if slow.incarnation != status.incarnation:
            slow.incarnation, slow.call_ns = status.incarnation, None
        if slow.call_ns is not None and not (in_one and status.since_ns == slow.call_ns):
            slow.times, slow.longest_s, slow.call_ns = slow.times + 1, max(slow.longest_s, slow.call_s), None
        if in_one:
            slow.call_ns, slow.call_s = status.since_ns, status.doing_s
        if not slow.times or (slow.told_ns is not None and now_ns - slow.told_ns < EVERY_S * 1e9):
            return []
        often = "" if slow.told_ns is None else f", {slow.times} times since this was last said"
        text = f"the environments of {status.name} took {slow.longest_s:.1f} s for one step{often}"
        slow.told_ns, slow.times, slow.longest_s = now_ns, 0, 0.0
        return [Notice("slow", text, status.name)]

    def of_channels(self, accounts: Mapping[str, Mapping[str, Any]], now_ns: int) -> list[Notice]:
        """Of the accounts of a run's channels (hive.runtime.accounting)."""
        found = []
        for name, account in accounts.items():
            count = account["dropped"].get("stale", 0)
            stale = self._stale.setdefault(name, _Stale())
            if count <= stale.counted or (stale.told_ns is not None and now_ns - stale.told_ns < EVERY_S * 1e9):
                continue
            new, stale.counted, stale.told_ns = count - stale.counted, count, now_ns
            text = f"{new:,} of `{name}` were older than max_lag allows and dropped"
            found.append(Notice("stale", f"{text}; more lag or fewer workers waste less"))
        return found
