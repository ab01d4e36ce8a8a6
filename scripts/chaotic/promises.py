"""What must hold under chaos, judged from what was observed. Pure: an outcome in, promises out.

A promise that could not be judged (too few samples, no summary) is neither kept nor broken, and says why. Only those
about the end of a run need its summary; a run without one has broken the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaotic.leaks import growth_of
from chaotic.trial import Observation

__all__ = ["BACK_S", "Outcome", "Promise", "promises_of"]

BACK_S = 30.0  # for one process to come back: a fork server imports torch first, and may be hit again meanwhile
MOST_GROWTH = 0.05
SHOWN = 3  # examples in a line
WITHOUT_TRACE = frozenset({"learner", "evaluator", "recorder", "fork-server"})  # their deaths change no weights
LOST_UPDATES = 1  # a kill of the learner may cost the one in progress


@dataclass(frozen=True)
class Outcome:
    """One run under chaos, from outside, when it is over. `summary` is None where there is none."""

    config: str
    sets: list[str]
    target: int  # steps
    calm_steps_per_s: float
    seen: Observation
    summary: dict[str, Any] | None
    left: Mapping[str, Sequence[str]] = field(default_factory=dict)
    strikes_wanted: int = 0
    beside: dict[str, Any] | None = None  # the summary of an undisturbed run with the same steps


@dataclass(frozen=True)
class Promise:
    """`kept` is None where it could not be judged."""

    text: str
    measured: str
    kept: bool | None


def promises_of(outcome: Outcome) -> list[Promise]:
    """All of them, in the order of the report."""
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
        Promise(f"it ends at its target of {outcome.target:,} steps", ended, reached),
    ]
    wrong = wrong_accounts(summary["channels"]) if summary is not None else []
    measured = listed(wrong) if summary is not None else "no summary.json"
    found.append(Promise("every channel's account holds, nothing in flight", measured, _kept(wrong, summary)))
    found.append(Promise("live accounts hold", listed(seen.accounts), not seen.accounts))
    found.append(Promise("the supervisor answers", listed(seen.silent), not seen.silent))
    left = [f"{what}: {', '.join(items)}" for what, items in outcome.left.items() if items]
    found.append(Promise("no process, socket or segment is left", listed(left), not left))
    return found


def _kept(wrong: Sequence[str], known: object) -> bool | None:
    return None if known is None else not wrong


def wrong_accounts(channels: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """produced == consumed + dropped + in flight, and nothing in flight once the run has ended."""
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
        Promise(f"whoever is hit is back within {BACK_S:.0f} s", listed(away), not away),
        Promise("nobody else dies", listed(others), not others),
        Promise("versions and counters never go back", listed(seen.back), not seen.back),
    ]
    if wanted:
        text = f"{len(seen.strikes)} of {wanted}"
        found.append(Promise("as many strikes as asked for", text, len(seen.strikes) >= wanted))
    if seen.lost_updates:
        most = max(seen.lost_updates)
        measured = f"at most {most}, in {len(seen.lost_updates)} kills that could be followed"
        found.append(
            Promise(f"a kill of the learner costs at most {LOST_UPDATES} update", measured, most <= LOST_UPDATES)
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
    """Beside an undisturbed run: the same weights, where nobody was hit whose death may change them."""
    summary, beside = outcome.summary, outcome.beside
    if summary is None or beside is None:
        return []
    returns = f"mean return {summary['mean_return_100']}, undisturbed {beside['mean_return_100']}"
    roles = {strike.victim.role for strike in outcome.seen.strikes}
    same = bool(summary["weights_sha256"] == beside["weights_sha256"])
    judged = roles <= WITHOUT_TRACE and beside["exact"]
    measured = f"{'the same' if same else 'others'}; {returns}"
    return [Promise("the weights are those of an undisturbed run", measured, same if judged else None)]


def lasting_strangers(seen: Observation) -> list[str]:
    """Processes that nobody knew in two samples running: in one alone they may be about to be announced."""
    found: dict[int, str] = {}
    for one, following in zip(seen.samples, seen.samples[1:], strict=False):
        for pid in one.strangers.keys() & following.strangers.keys():
            found.setdefault(pid, f"{one.strangers[pid]} ({pid}, since {one.at_s:.1f} s)")
    return list(found.values())


def listed(items: Sequence[str]) -> str:
    """The first few of what is wrong."""
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return "; ".join(items[:SHOWN]) + more if items else "all"
