"""Where every message went: produced = consumed + dropped(by reason) + in flight, for each channel.

For slabs the numbers come from the native words and tallies, for message channels from the counters of the producers'
status pages (hive.runtime.channels keeps them). In flight is counted on its own in both, never as a difference, so
the identity can fail, and a test says whether it does. It holds at quiescent points; a live look shows
produced >= consumed + dropped. A run's results are counters too, of one actor that the plan names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hive import _native
from hive.runtime.channels import account_of
from hive.runtime.plan import Plan
from hive.runtime.views import Views

__all__ = ["channel_accounts", "holds", "results_of", "sum_of_accounts"]


def channel_accounts(plan: Plan, views: Views, pages: _native.Status) -> dict[str, dict[str, Any]]:
    """Channel name -> {produced, consumed, dropped: {reason: n}, in_flight}. Boards have no account: latest wins."""
    accounts: dict[str, dict[str, Any]] = {}
    for channel in plan.channels:
        if channel.carrier == "slab":
            parts = [views.slab(name).counts() for name in channel.segments]
        elif channel.carrier == "message":
            parts = [account_of(channel.name, pages.snapshot(producer)["counters"]) for producer in channel.producers]
        else:
            continue
        accounts[channel.name] = sum_of_accounts(parts)
    return accounts


def results_of(plan: Plan, pages: _native.Status) -> dict[str, float]:
    """The counters that the plan says are the run's results."""
    counters: dict[str, float] = {}
    for number, actor in enumerate(plan.actors):
        if actor.name == plan.results_actor:
            counters = pages.snapshot(number)["counters"]
    return {name: counters[name] for name in plan.results if name in counters}


def sum_of_accounts(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One account of several: of a channel's producers, or of a run's stages."""
    dropped: dict[str, int] = {}
    for part in parts:
        for reason, count in part["dropped"].items():
            dropped[reason] = dropped.get(reason, 0) + count
    total = {key: sum(part[key] for part in parts) for key in ("produced", "consumed", "in_flight")}
    return {
        "produced": total["produced"],
        "consumed": total["consumed"],
        "dropped": dropped,
        "in_flight": total["in_flight"],
    }


def holds(account: dict[str, Any]) -> bool:
    """Whether the identity holds for one channel."""
    gone: int = account["consumed"] + sum(account["dropped"].values())
    return bool(account["produced"] == gone + account["in_flight"])
