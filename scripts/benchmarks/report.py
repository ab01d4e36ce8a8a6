"""The report of `bench throughput`: the document, the tables and the checks, computed from the measurements.

Pure functions of the measurements. A peer that was measured with one thread of torch and with more is compared by the
faster of them. These are checked where both sides were measured:

    the best of hive's placements >= the setting's goal x a peer; with no goal, > the peer
    the best of hive's placements >= the setting's least rate, in steps/s
    a collector that is the bottleneck spends >= 85 % of its time in environment + policy   (A2C, 1-collector)
    the runtime takes <= 3 % of the CPU                                                     (A2C, 2-collectors)

A collector is the bottleneck of a run if it waits for others less than 10 % of its time. Otherwise its share depends on
the others' cost and not on its own overhead, and is not checked. Where threads wait for a core, the runtime's share is
an estimate between two bounds; it fails the check only if the lower bound is above 3 %.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.contender import Contender, Measurement, peer_of
from benchmarks.figures import Spread, best_of, medians, ratio_of, spread_of
from benchmarks.settings import SETTINGS, Setting
from benchmarks.table import NOTHING, aligned, number, percent, ratio, spread_text

__all__ = ["Check", "Pair", "best_pairs", "checks_of", "document_of", "text_of"]

LEAST_OF_COLLECTOR = 0.85
MOST_OF_CPU = 0.03
QUIET_CORES = 0.1  # cores that other programs may use without a warning in the report: the kernel uses some
BINDS_BELOW = 0.10  # share of its time that a collector waits, below which it is the bottleneck

SCALARS = (
    *("collector_share", "collector_wait_share", "gradient_worker_share", "learner_share"),
    *("runtime_cpu_share", "helpers_cpu_share", "cpu_cores"),
    *("runtime_cpu_share_least", "runtime_cpu_share_most"),
    *("slots_per_s", "messages_per_s", "policy_lag", "gradient_lag", "updates_per_s", "others_cores"),
)

Results = Mapping[str, Sequence[Measurement]]  # name of a contender -> its measurements, one for each repetition


@dataclass(frozen=True)
class Check:
    """One promise and its measurement. `passed` is None where the measurement allows no verdict."""

    promise: str
    measured: str
    passed: bool | None


@dataclass(frozen=True)
class Pair:
    """A placement of hive beside a peer, or without one where none was measured. Shapes, and rates in steps/s."""

    setting: Setting
    placement: str
    hive: Spread
    peer: str | None = None
    theirs: Spread | None = None
    ratio: Spread | None = None


def rates(results: Results, name: str) -> list[float]:
    return [measurement["steps_per_s"] for measurement in results.get(name, ())]


def _measured(results: Results, setting: Setting, shapes: Sequence[str]) -> dict[str, list[float]]:
    """Return the rates of those shapes that were measured in this setting."""
    found = {shape: rates(results, f"{setting.name}/{shape}") for shape in shapes}
    return {shape: values for shape, values in found.items() if values}


def rivals_of(results: Results, setting: Setting) -> dict[str, str]:
    """Return the shapes to compare with: "bare", and of every peer the one with the faster number of threads."""
    found = {"bare": "bare"} if rates(results, f"{setting.name}/bare") else {}
    for peer in setting.peers:
        if measured := _measured(results, setting, (f"{peer}-1-thread", peer)):
            found[peer] = best_of(measured)
    return found


def pairs_of(results: Results, setting: Setting) -> list[Pair]:
    """Return every placement of hive beside every rival that was measured in one setting."""
    found = []
    rivals = rivals_of(results, setting)
    for placement, ours in _measured(results, setting, setting.placements).items():
        for shape in rivals.values():
            theirs = rates(results, f"{setting.name}/{shape}")
            found.append(Pair(setting, placement, spread_of(ours), shape, spread_of(theirs), ratio_of(ours, theirs)))
    return found


def best_pairs(results: Results, setting: Setting) -> list[Pair]:
    """Return the fastest placement beside each peer; beside None where no peer was measured, [] without a placement."""
    ours = _measured(results, setting, setting.placements)
    if not ours:
        return []
    best = best_of(ours)
    found = [pair for pair in pairs_of(results, setting) if pair.placement == best and pair.peer != "bare"]
    return found or [Pair(setting, best, spread_of(ours[best]))]


def scalars(measurements: Sequence[Measurement]) -> dict[str, float | None]:
    """Return the medians of all figures but the rate."""
    return medians([{key: measurement.get(key) for key in SCALARS} for measurement in measurements])


def checks_of(results: Results) -> list[Check]:
    """Return the checks whose contenders were measured."""
    found = []
    for setting in SETTINGS.values():
        pairs = best_pairs(results, setting)
        for pair in pairs:
            if pair.peer is not None and pair.ratio is not None:
                goal = setting.goals.get(str(peer_of(pair.peer)))
                wanted = f"> {pair.peer}" if goal is None else f">= {goal:g} x {pair.peer}"
                passed = pair.ratio.median > 1.0 if goal is None else pair.ratio.median >= goal
                found.append(Check(f"{setting.name}: hive {pair.placement} {wanted}", spread_text(pair.ratio), passed))
        if pairs and setting.least_steps_per_s is not None:
            promise = f"{setting.name}: hive {pairs[0].placement} >= {setting.least_steps_per_s:,.0f} steps/s"
            best = pairs[0].hive.median
            found.append(Check(promise, number(best), best >= setting.least_steps_per_s))
        if setting.name.startswith("a2c-"):  # not IMPALA, whose peers have the work of A2C
            found += _share_checks(results, setting)
    return found


def _share_checks(results: Results, setting: Setting) -> list[Check]:
    found = []
    one = scalars(results.get(f"{setting.name}/1-collector", ()))
    share, wait = one.get("collector_share"), one.get("collector_wait_share")
    if share is not None and wait is not None:
        text = f"{setting.name}: a bottleneck collector spends >= {LEAST_OF_COLLECTOR:.0%} in environment + policy"
        binds = wait < BINDS_BELOW
        measured = percent(share) + ("" if binds else f", waits {percent(wait)}: not the bottleneck")
        found.append(Check(text, measured, share >= LEAST_OF_COLLECTOR if binds else None))
    two = scalars(results.get(f"{setting.name}/2-collectors", ()))
    cpu, least, most = (two.get(f"runtime_cpu_share{end}") for end in ("", "_least", "_most"))
    if cpu is not None and least is not None:
        text = f"{setting.name}: the runtime of hive 2-collectors takes <= {MOST_OF_CPU:.0%} of the CPU"
        passed = True if cpu <= MOST_OF_CPU else False if least > MOST_OF_CPU else None
        found.append(Check(text, f"{percent(cpu)} ({percent(least)}..{percent(most)})", passed))
    return found


def document_of(
    measured: Sequence[Contender],
    results: Results,
    failed: Mapping[str, str],
    repeats: int,
    seconds: float,
    machine: Mapping[str, object],
) -> dict[str, Any]:
    """Return all results as one JSON document with stable keys.

    failed: name of a contender -> why it could not be measured. machine: from `machine_facts`.
    """
    return {
        "bench": "throughput",
        "machine": dict(machine),
        "repeats": repeats,
        "seconds": seconds,
        "contenders": [
            {
                "name": contender.name,
                "setting": contender.setting.name,
                "shape": contender.shape,
                "steps_per_s": dataclasses.asdict(spread_of(rates(results, contender.name))),
                "medians": scalars(results[contender.name]),
                "measurements": list(results[contender.name]),
            }
            for contender in measured
        ],
        "ratios": [
            {"setting": setting.name, "of": pair.placement, "to": pair.peer, **dataclasses.asdict(pair.ratio)}
            for setting in SETTINGS.values()
            for pair in pairs_of(results, setting)
            if pair.ratio is not None
        ],
        "checks": [dataclasses.asdict(check) for check in checks_of(results)],
        "failed": dict(failed),
    }


LEGEND = (
    "x bare: ratio to environments and policy alone. x sb3, ...: ratio to this peer with its faster number of threads;",
    "the checks show the spread. working: share of its time in which a collector / gradient worker / learner works.",
    "runtime: its share of the CPU time. lag: of the policy, in versions.",
)
FIXED = ("", "steps/s", "least..most", "updates/s")
FIGURES = ("working", "runtime", "lag")


def text_of(
    measured: Sequence[Contender], results: Results, repeats: int, seconds: float, machine: Mapping[str, object]
) -> str:
    """Return the tables, the checks and warnings as text. `machine` comes from `machine_facts`."""
    head = "Environment steps per second trained: medians of"
    lines = [f"{head} {repeats} interleaved repetitions (A B B A), {seconds:g} s each.", *LEGEND]
    for setting in SETTINGS.values():
        mine = [contender for contender in measured if contender.setting is setting]
        if mine:
            lines += ["", setting.title, *_table(setting, mine, results)]
    checks = checks_of(results)
    if checks:
        words = {True: "pass", False: "FAIL", None: NOTHING}
        rows = [(check.promise, check.measured, words[check.passed]) for check in checks]
        lines += ["", *aligned(("checks", "measured", ""), rows)]
    others = spread_of([one["others_cores"] for measurements in results.values() for one in measurements])
    if others.most > QUIET_CORES:
        text = f"{others.median:.2f} ({others.least:.2f}..{others.most:.2f})"
        lines += ["", f"Warning: during the measurements, other programs used {text} cores of CPU."]
    for shape, torch in sorted(_other_torches(results, machine)):
        lines += ["", f"Warning: {shape} has torch {torch}, hive {machine['torch']}."]
    return "\n".join(lines)


def _other_torches(results: Results, machine: Mapping[str, object]) -> set[tuple[str, str]]:
    """Return (shape, version) of the peers whose torch is not that of hive."""
    found = {
        (name.rpartition("/")[2], str(one["versions"]["torch"]))
        for name, measurements in results.items()
        for one in measurements
        if "versions" in one
    }
    return {(shape, torch) for shape, torch in found if torch != str(machine["torch"])}


def _table(setting: Setting, mine: Sequence[Contender], results: Results) -> list[str]:
    """Return the lines of one setting's table; it has a column for each rival that was measured."""
    rivals = rivals_of(results, setting)
    ratios = {(pair.placement, pair.peer): pair.ratio for pair in pairs_of(results, setting)}
    head = (*FIXED, *(f"x {name}" for name in rivals), *FIGURES)
    return aligned(head, [_row(one, results, [ratios.get((one.shape, r)) for r in rivals.values()]) for one in mine])


def _row(contender: Contender, results: Results, ratios: Sequence[Spread | None]) -> list[str]:
    spread, beside = spread_of(rates(results, contender.name)), scalars(results[contender.name])
    shares = [beside[f"{group}_share"] for group in ("collector", "gradient_worker", "learner")]
    return [
        contender.title,
        number(spread.median),
        f"{number(spread.least)}..{number(spread.most)}",
        number(beside["updates_per_s"]),
        *(ratio(one.median if one else None) for one in ratios),
        " / ".join(NOTHING if share is None else f"{share:.0%}" for share in shares) if any(shares) else NOTHING,
        percent(beside["runtime_cpu_share"]),
        number(beside["policy_lag"], 2),
    ]
