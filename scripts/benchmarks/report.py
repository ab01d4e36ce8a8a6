"""The report of `bench throughput`: the document, the table and the checks, from what was measured.

Pure: measurements in, data and text out. The promises that are checked, each where what it compares was measured:

    hive >= 0.8 x the sketch in the same arrangement           (b), (c), (d)
    the best of hive's arrangements > the sketch's fused rate
    hive > the peer
    a collector that binds the run spends >= 85 % of its time in environment + policy       (c)
    the runtime takes <= 5 % of the CPU                                                     (b), (c), (d)

A collector binds a run if it waits for others less than 10 % of its time. Elsewhere the share says what the others
cost, not what the collector does beside its work, and is not judged. Neither is the CPU of the runtime where all cores
were taken and the upper bound that hive_run.py measures is too high: it says little there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import Spread, best_of, medians, ratio_of, spread_of
from benchmarks.table import aligned, number, percent, ratio
from benchmarks.throughput import SETTINGS, Contender, Measurement, Setting

__all__ = ["Check", "checks_of", "document_of", "text_of"]

LEAST_OF_SKETCH = 0.8
LEAST_OF_COLLECTOR = 0.85
MOST_OF_CPU = 0.05
QUIET_CORES = 0.1  # of CPU that others may take before the report says so: a kernel takes some
SPARE_BELOW = 0.95  # of all cores in use: above, processes take turns
BINDS_BELOW = 0.10  # of its time waiting: a collector that nobody holds up waits for next to nothing

SHAPES = {"single": "sketch-fused", "1-collector": "sketch-1-collector", "2-collectors": "sketch-2-collectors"}
"""hive's arrangements -> the sketch's."""

RIVALS = ("sketch-fused", "sb3")  # what the best of hive's arrangements is to beat

SCALARS = (
    *("collector_share", "collector_wait_share", "runtime_cpu_share", "cpu_cores"),
    *("slots_per_s", "messages_per_s", "policy_lag", "gradient_lag", "updates_per_s", "others_cores"),
)

Results = Mapping[str, Sequence[Measurement]]  # name of a contender -> one of each repetition
Pair = tuple[str, str]  # the shape of a contender, and that which it is compared with


@dataclass(frozen=True)
class Check:
    """One promise and what was measured of it. `passed` is None where it was not to be judged."""

    promise: str
    measured: str
    passed: bool | None


def rates(results: Results, name: str) -> list[float]:
    return [measurement["steps_per_s"] for measurement in results.get(name, ())]


def hive_rates(results: Results, setting: Setting) -> dict[str, list[float]]:
    """hive's arrangements that were measured in this setting -> their rates."""
    found = {shape: rates(results, f"{setting.name}/{shape}") for shape in SHAPES}
    return {shape: measured for shape, measured in found.items() if measured}


def ratios_of(results: Results, setting: Setting) -> dict[Pair, Spread]:
    """(shape, compared with) -> ratio, of everything that was measured in one setting."""
    ours = hive_rates(results, setting)
    pairs = [(shape, other) for shape in ours for other in ("bare", SHAPES[shape])]
    pairs += [(best_of(ours), other) for other in RIVALS] if ours else []
    theirs = {other: rates(results, f"{setting.name}/{other}") for _, other in pairs}
    return {(shape, other): ratio_of(ours[shape], theirs[other]) for shape, other in pairs if theirs[other]}


def scalars(measurements: Sequence[Measurement]) -> dict[str, float | None]:
    """The medians of the figures beside the rate."""
    return medians([{key: measurement.get(key) for key in SCALARS} for measurement in measurements])


def checks_of(results: Results, cores: int) -> list[Check]:
    """The promises of which something was measured, on a machine of so many cores."""
    found = []
    for setting in SETTINGS:
        ours, ratios = hive_rates(results, setting), ratios_of(results, setting)
        for shape, other in SHAPES.items():
            if spread := ratios.get((shape, other)):
                promise = f"{setting.name}: hive {shape} >= {LEAST_OF_SKETCH} x {other}"
                found.append(Check(promise, _spread_text(spread), spread.median >= LEAST_OF_SKETCH))
        best = best_of(ours) if ours else ""
        for other in RIVALS:
            if spread := ratios.get((best, other)):
                promise = f"{setting.name}: the best of hive ({best}) > {other}"
                found.append(Check(promise, _spread_text(spread), spread.median > 1.0))
        found += _share_checks(results, setting, cores)
    return found


def _spread_text(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.least:.2f}..{spread.most:.2f})"


def _share_checks(results: Results, setting: Setting, cores: int) -> list[Check]:
    found = []
    one = scalars(results.get(f"{setting.name}/1-collector", ()))
    share, wait = one.get("collector_share"), one.get("collector_wait_share")
    if share is not None and wait is not None:
        text = f"{setting.name}: a collector that binds spends >= {LEAST_OF_COLLECTOR:.0%} in environment + policy"
        binds = wait < BINDS_BELOW
        measured = percent(share) + ("" if binds else f", waits {percent(wait)}: does not bind")
        found.append(Check(text, measured, share >= LEAST_OF_COLLECTOR if binds else None))
    for shape in SHAPES:
        beside = scalars(results.get(f"{setting.name}/{shape}", ()))
        cpu, used, others = (beside.get(key) for key in ("runtime_cpu_share", "cpu_cores", "others_cores"))
        if cpu is not None and used is not None and others is not None:
            text = f"{setting.name}: the runtime of hive {shape} takes <= {MOST_OF_CPU:.0%} of the CPU"
            spare = used + others <= SPARE_BELOW * cores
            measured = percent(cpu) + ("" if spare else ", no core to spare: an upper bound")
            found.append(Check(text, measured, cpu <= MOST_OF_CPU if spare or cpu <= MOST_OF_CPU else None))
    return found


def document_of(
    those: Sequence[Contender], results: Results, repetitions: int, seconds: float, machine: Mapping[str, object]
) -> dict[str, Any]:
    """Everything as one JSON document with stable keys. `machine` as `machine_facts` tells it."""
    cores = int(str(machine["cores"]))
    return {
        "bench": "throughput",
        "machine": dict(machine),
        "repetitions": repetitions,
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
            for contender in those
        ],
        "ratios": [
            {"setting": setting.name, "of": one, "to": other, **dataclasses.asdict(spread)}
            for setting in SETTINGS
            for (one, other), spread in ratios_of(results, setting).items()
        ],
        "checks": [dataclasses.asdict(check) for check in checks_of(results, cores)],
    }


HEAD = ("", "steps/s", "least..most", "x bare", "x sketch", "collector", "runtime", "slots/s", "messages/s", "lag")


def text_of(those: Sequence[Contender], results: Results, repetitions: int, seconds: float, cores: int) -> str:
    """The table and the checks, for people."""
    lines = [
        f"Environment steps per second trained: medians of {repetitions} interleaved repetitions, {seconds:g} s each.",
        "x bare, x sketch: ratio to (a), and to the line below. collector: its time in environment + policy, of all.",
        "runtime: its part of the CPU time. slots/s, messages/s: what channels carried in shared memory, over sockets.",
        "lag: of the policy / of the gradients, in versions.",
    ]
    for setting in SETTINGS:
        mine = [contender for contender in those if contender.setting == setting]
        if mine:
            ratios = ratios_of(results, setting)
            lines += ["", setting.title, *aligned(HEAD, [_row(c, results, ratios) for c in mine])]
    checks = checks_of(results, cores)
    if checks:
        words = {True: "pass", False: "FAIL", None: "–"}
        rows = [(check.promise, check.measured, words[check.passed]) for check in checks]
        lines += ["", *aligned(("checks", "measured", ""), rows)]
    others = spread_of([one["others_cores"] for measurements in results.values() for one in measurements])
    if others.most > QUIET_CORES:
        text = f"{others.median:.2f} ({others.least:.2f}..{others.most:.2f})"
        lines += ["", f"Not a quiet machine: while this was measured, other programs took {text} cores of CPU."]
    return "\n".join(lines)


def _row(contender: Contender, results: Results, ratios: Mapping[Pair, Spread]) -> list[str]:
    spread, beside = spread_of(rates(results, contender.name)), scalars(results[contender.name])
    of_bare = ratios.get((contender.shape, "bare"))
    of_sketch = ratios.get((contender.shape, SHAPES.get(contender.shape, "")))
    return [
        contender.title,
        number(spread.median),
        f"{number(spread.least)}..{number(spread.most)}",
        ratio(of_bare.median if of_bare else None),
        ratio(of_sketch.median if of_sketch else None),
        percent(beside["collector_share"]),
        percent(beside["runtime_cpu_share"]),
        number(beside["slots_per_s"]),
        number(beside["messages_per_s"], 1),
        number(beside["policy_lag"], 2)
        + ("" if beside["policy_lag"] is None else f"/{number(beside['gradient_lag'], 2)}"),
    ]
