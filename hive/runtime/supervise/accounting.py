"""Account for every message of a channel: produced = consumed + dropped (by reason) + in flight.

For slots the numbers come from the native words and tallies, for message channels from the counters on the producers'
status pages (hive.runtime.carriers.messages maintains them). Both count messages in flight separately instead of
subtracting, so the identity can fail, and tests check it. It holds at quiescent points; while actors run, a reader sees
produced >= consumed + dropped. A run's results are counters too, of the actor that the plan
names, or of those that report progress.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from hive import _native
from hive.runtime.memory.status import PROGRESS_SCORE, PROGRESS_STEPS
from hive.runtime.process.processes import SharedMemory
from hive.runtime.topology.plan import Plan


def channel_accounts(plan: Plan, memory: SharedMemory) -> dict[str, dict[str, Any]]:
    """Return channel name -> {produced, consumed, dropped: {reason: n}, in_flight}, all in messages.

    Boards have no account: a newer version replaces the older one, read or not.
    """
    parts = {channel.name: channel.description.accounts(channel, memory) for channel in plan.channels}
    return {name: sum_of_accounts(of_producers) for name, of_producers in parts.items() if of_producers}


def output_of(plan: Plan, memory: SharedMemory, actor: int) -> tuple[float, ...]:
    """Return what an actor has produced since the run began; it grows whenever the actor makes progress.

    It consists of the messages and versions that it sent, and its own counters. An actor that sends no messages makes
    progress by receiving them; in a channel with other consumers, the progress of those counts too.
    """
    sent: list[float] = []
    received: list[float] = []
    output: list[float] = []
    for channel in plan.channels:
        description = channel.description
        produced = dict(zip(channel.producers, description.produced(channel, memory), strict=False))
        sent += [produced[actor]] if actor in produced else []
        if actor in channel.producers:
            output.append(description.version(channel, memory))
        if actor in channel.consumers:
            received.append(sum(account["consumed"] for account in description.accounts(channel, memory)))
    counters = memory.pages.snapshot(actor)["counters"]
    output += [value for name, value in counters.items() if ":" not in name]  # with `:`, those of a channel
    return (*(sent or received), *output)


def results_of(plan: Plan, pages: _native.Status) -> dict[str, float]:
    """Return the run's results: the counters that the plan names, or what actors report with `progress`.

    A counter without a value is left out.
    """
    if not plan.results_actor:
        return _progress_of(plan, pages)
    counters = pages.snapshot(plan.numbers[plan.results_actor])["counters"]
    return {name: counters[name] for name in plan.results if name in counters}


def digest_of(plan: Plan, memory: SharedMemory) -> str:
    """Return the sha256, in hex, of the latest version of the plan's digest board; "" if there is none."""
    if not plan.digest_segment:
        return ""
    board = memory.views.board(plan.digest_segment)
    block = board.words.find(board.latest) if board.latest >= 0 else -1
    return hashlib.sha256(board.blocks[block][: plan.digest_bytes].data).hexdigest() if block >= 0 else ""


def _progress_of(plan: Plan, pages: _native.Status) -> dict[str, float]:
    """Return the sum of the steps and the highest score of all actors that report, under the names of a learner."""
    counters = [pages.snapshot(number)["counters"] for number in range(len(plan.actors))]
    steps = [page[PROGRESS_STEPS] for page in counters if PROGRESS_STEPS in page]
    scores = [page[PROGRESS_SCORE] for page in counters if math.isfinite(page.get(PROGRESS_SCORE, math.nan))]
    return ({"env_steps": sum(steps)} if steps else {}) | ({"mean_return_100": max(scores)} if scores else {})


def sum_of_accounts(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up several accounts with the same keys, of a channel's producers or of a run's stages."""
    dropped: dict[str, int] = {}
    for part in parts:
        for reason, count in part["dropped"].items():
            dropped[reason] = dropped.get(reason, 0) + count
    return {key: dropped if key == "dropped" else sum(part[key] for part in parts) for key in parts[0]}


def holds(account: dict[str, Any]) -> bool:
    """Return whether produced = consumed + dropped + in flight in this account."""
    finished: int = account["consumed"] + sum(account["dropped"].values())
    return bool(account["produced"] == finished + account["in_flight"])
