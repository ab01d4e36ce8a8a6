"""Judge the promises that must hold under chaos, by the observations of a run. Pure functions of an outcome.

A promise that could not be judged (too few samples, no summary) is neither kept nor broken, and its text gives the
reason. Only promises about the end of a run need its summary; a run without one has broken the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaotic.leaks import growth_of
from chaotic.trial import Observation

BACK_S = 30.0  # seconds for a process to recover: a fork server imports torch, and may be struck again meanwhile
MOST_GROWTH = 0.05  # relative growth of memory that is allowed
SHOWN = 3  # examples printed in a line
WITHOUT_TRACE = frozenset({"learner", "evaluator", "recorder", "fork-server"})  # roles whose loss changes no weights
LOST_UPDATES = 1  # updates that a kill of the learner may lose: the one in progress


@dataclass(frozen=True)
class Outcome:
    """The observations of one run under chaos after its end. `summary` is None where there is none."""

    config: str
    sets: list[str]
    target: int  # environment steps
    calm_steps_per_s: float
    seen: Observation
    summary: dict[str, Any] | None
    left: Mapping[str, Sequence[str]] = field(default_factory=dict)
    strikes_wanted: int = 0
    beside: dict[str, Any] | None = None  # the summary of an undisturbed run with the same steps


@dataclass(frozen=True)
class Promise:
    """One promise and its measurement. `kept` is None where it could not be judged."""

    text: str
    measured: str
    kept: bool | None


def promises_of(outcome: Outcome) -> list[Promise]:
    """Return all promises in the order of the report."""
    return [
        *_of_the_end(outcome),
        *_of_strikes(outcome.seen, outcome.strikes_wanted),
        *_of_leaks(outcome),
        *_of_learning(outcome),
    ]


def _of_the_end(outcome: Outcome) -> list[Promise]:
    summary, seen = outcome.summary, outcome.seen
    ended = "no summary.json"
    if summary is not None:
        ended = f"{summary['state']}: {summary['stop_reason']}, {summary['env_steps']:,} steps"
        ended += f"; error: {summary['error']}" if summary["error"] else ""
    reached = summary is not None and summary["state"] == "finished" and summary["env_steps"] >= outcome.target
    found = [
        Promise("the run does not hang", seen.hung or "it did not", not seen.hung),
        Promise(f"the run reaches its target of {outcome.target:,} steps", ended, reached),
    ]
    wrong = wrong_accounts(summary["channels"]) if summary is not None else []
    measured = listed(wrong) if summary is not None else "no summary.json"
    found.append(Promise("every channel's account balances, nothing in flight", measured, _kept(wrong, summary)))
    found.append(Promise("accounts balance during the run", listed(seen.accounts), not seen.accounts))
    found.append(Promise("the supervisor answers", listed(seen.silent), not seen.silent))
    left = [f"{what}: {', '.join(items)}" for what, items in outcome.left.items() if items]
    found.append(Promise("no process, socket or segment is left", listed(left), not left))
    return found


def _kept(wrong: Sequence[str], known: object) -> bool | None:
    return None if known is None else not wrong


def wrong_accounts(channels: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return channels of an ended run with produced != consumed + dropped + in flight, or messages in flight."""
    return [
        f"{name} {dict(account)}"
        for name, account in channels.items()
        if account["produced"] != account["consumed"] + sum(account["dropped"].values()) + account["in_flight"]
        or account["in_flight"]
    ]


def _of_strikes(seen: Observation, wanted: int) -> list[Promise]:
    away = [
        f"{strike.victim.name} ({strike.signal} at {strike.at_s:.1f} s)"
        + (f" took {strike.back_ms / 1e3:.1f} s" if strike.back_ms is not None else "")
        for strike in seen.strikes
        if strike.pending or (strike.back_ms or 0.0) > BACK_S * 1e3
    ]
    struck = {strike.victim.pid for strike in seen.strikes}
    others = [f"{event['text']}" for event in seen.deaths if event.get("pid", 0) not in struck and "actor" in event]
    found = [
        Promise(f"every victim recovers within {BACK_S:.0f} s", listed(away), not away),
        Promise("no other process dies", listed(others), not others),
        Promise("versions and counters never decrease", listed(seen.back), not seen.back),
    ]
    if wanted:
        text = f"{len(seen.strikes)} of {wanted}"
        found.append(Promise("all requested strikes were made", text, len(seen.strikes) >= wanted))
    if seen.lost_updates:
        most = max(seen.lost_updates)
        measured = f"at most {most}, in {len(seen.lost_updates)} kills that could be followed"
        found.append(
            Promise(f"a kill of the learner loses at most {LOST_UPDATES} update", measured, most <= LOST_UPDATES)
        )
    return found


def _of_leaks(outcome: Outcome) -> list[Promise]:
    samples, found = outcome.seen.samples, []
    memory, descriptors = growth_of(samples, "rss_bytes"), growth_of(samples, "descriptors")
    few = f"{len(samples)} samples, too few calm ones"
    text = f"memory grows by at most {MOST_GROWTH:.0%}"
    if memory is None:
        found.append(Promise(text, few, None))
    else:
        most = max(one.pss_bytes for one in samples)
        mib = f"{memory.second / 2**20:.0f} -> {memory.last / 2**20:.0f} MiB ({memory.share:+.1%})"
        mib += f", at most {most / 2**20:.0f} MiB with shared pages counted once"
        found.append(Promise(text, mib, memory.share <= MOST_GROWTH))
    text = "the supervisor's descriptors do not grow"
    if descriptors is None:
        found.append(Promise(text, few, None))
    else:
        count = f"{descriptors.second:g} -> {descriptors.last:g}"
        found.append(Promise(text, count, descriptors.last <= descriptors.second))
    strangers = lasting_strangers(outcome.seen)
    found.append(Promise("the supervisor knows every process", listed(strangers), not strangers))
    return found


def _of_learning(outcome: Outcome) -> list[Promise]:
    """Compare with an undisturbed run: weights must be equal if no victim's loss may change them."""
    summary, beside = outcome.summary, outcome.beside
    if summary is None or beside is None:
        return []
    returns = f"mean return {summary['mean_return_100']}, undisturbed {beside['mean_return_100']}"
    roles = {strike.victim.role for strike in outcome.seen.strikes}
    same = bool(summary["weights_sha256"] == beside["weights_sha256"])
    judged = roles <= WITHOUT_TRACE and beside["exact"]
    measured = f"{'equal' if same else 'different'}; {returns}"
    return [Promise("the weights are those of an undisturbed run", measured, same if judged else None)]


def lasting_strangers(seen: Observation) -> list[str]:
    """Return strangers in two consecutive samples; in one sample alone, a new process may not be listed yet."""
    found: dict[int, str] = {}
    for one, following in zip(seen.samples, seen.samples[1:], strict=False):
        for pid in one.strangers.keys() & following.strangers.keys():
            found.setdefault(pid, f"{one.strangers[pid]} ({pid}, since {one.at_s:.1f} s)")
    return list(found.values())


def listed(items: Sequence[str]) -> str:
    """Join the first `SHOWN` items and the number of the others; "all" (hold) if there are none."""
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return "; ".join(items[:SHOWN]) + more if items else "all"
