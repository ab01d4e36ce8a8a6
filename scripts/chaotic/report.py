"""The report: times to recover as a table, promises and figures, as text and as one JSON document."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness import VERDICTS, aligned, number

from chaotic.leaks import growth_of
from chaotic.promises import Outcome, promises_of
from chaotic.strikes import Strike

HEAD = ("role", "signal", "strikes", "back", "p50 ms", "p99 ms", "max ms", "p50 alone", "p99 alone")
ALL = "all"


@dataclasses.dataclass(frozen=True)
class Recovery:
    """One line of the table. Times in ms, None without strikes; `alone`: no other process was recovering meanwhile."""

    role: str
    signal: str
    strikes: int
    back: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    alone_p50_ms: float | None
    alone_p99_ms: float | None


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the quantile `share` of the values by nearest rank; None if there are none."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1] if ordered else None


def recoveries_of(strikes: Sequence[Strike]) -> list[Recovery]:
    """Return one line for every role and signal that occurred, and one for all together if there are several."""
    kinds = sorted({(strike.victim.role, strike.signal) for strike in strikes})
    lines = [_recovery(*kind, [s for s in strikes if (s.victim.role, s.signal) == kind]) for kind in kinds]
    return [*lines, _recovery(ALL, "", strikes)] if len(lines) > 1 else lines


def _recovery(role: str, signal: str, strikes: Sequence[Strike]) -> Recovery:
    back = [strike for strike in strikes if strike.back_ms is not None]
    times, alone = ([strike.back_ms or 0.0 for strike in some] for some in (back, [s for s in back if s.alone]))
    (p50, p99), (alone_p50, alone_p99) = ([quantile(ms, share) for share in (0.5, 0.99)] for ms in (times, alone))
    return Recovery(role, signal, len(strikes), len(back), p50, p99, max(times, default=None), alone_p50, alone_p99)


def outcome_of(outcome: Outcome) -> dict[str, Any]:
    """Return the results of one run as data."""
    seen = outcome.seen
    return {
        "config": outcome.config,
        "sets": outcome.sets,
        "target_steps": outcome.target,
        "calm_steps_per_s": outcome.calm_steps_per_s,
        "table": [dataclasses.asdict(line) for line in recoveries_of(seen.strikes)],
        "promises": [dataclasses.asdict(promise) for promise in promises_of(outcome)],
        **{name: value for name, value in dataclasses.asdict(seen).items() if name != "strikes"},
        "strikes": [_strike(strike) for strike in seen.strikes],
        "growth": {what: _growth(outcome, what) for what in ("rss_bytes", "pss_bytes", "descriptors")},
        "left": {what: list(items) for what, items in outcome.left.items()},
        "summary": outcome.summary,
        "beside": outcome.beside,
    }


def _strike(strike: Strike) -> dict[str, Any]:
    flat = dataclasses.asdict(strike)
    return {**flat.pop("victim"), "role": strike.victim.role, **flat}


def _growth(outcome: Outcome, what: str) -> dict[str, float] | None:
    growth = growth_of(outcome.seen.samples, what)
    return None if growth is None else {**dataclasses.asdict(growth), "share": growth.share}


def document_of(
    outcomes: Sequence[Outcome], options: Mapping[str, Any], machine: Mapping[str, object]
) -> dict[str, Any]:
    """Return all results as one JSON document with stable keys. `machine` comes from `machine_facts`."""
    broken = [
        f"{outcome.config}: {promise.text}: {promise.measured}"
        for outcome in outcomes
        for promise in promises_of(outcome)
        if promise.kept is False
    ]
    return {
        "chaos": "actors killed and stopped at random",
        "machine": dict(machine),
        "options": dict(options),
        "broken": broken,
        "runs": [outcome_of(outcome) for outcome in outcomes],
    }


def text_of(outcome: Outcome) -> str:
    """Return the results of one run as text."""
    seen, summary = outcome.seen, outcome.summary
    lines = [
        f"{outcome.config}: {len(seen.strikes)} strikes in {seen.chaos_s:.0f} s of chaos",
        *aligned(HEAD, [_row(line) for line in recoveries_of(seen.strikes)]),
        "back: recovered before the run's end. alone: no other process was recovering meanwhile.",
        "",
        *aligned(("promise", ""), [(promise.text, VERDICTS[promise.kept]) for promise in promises_of(outcome)]),
        "",
    ]
    lines += [f"{p.text}: {p.measured}" for p in promises_of(outcome) if p.kept is not True or p.measured != "all"]
    if summary is not None:
        rate = number(summary["env_steps"] / summary["train_s"] if summary["train_s"] else None)
        lines.append(f"ran {summary['wall_s']:.1f} s; {rate} steps/s, calm {outcome.calm_steps_per_s:,.0f}")
        lines.append(f"mean return {number(summary['mean_return_100'], 1)} after {summary['updates']:,} updates")
    return "\n".join(lines)


def _row(line: Recovery) -> list[str]:
    times = (line.p50_ms, line.p99_ms, line.max_ms, line.alone_p50_ms, line.alone_p99_ms)
    return [line.role, line.signal, str(line.strikes), str(line.back), *map(number, times)]
