"""The report of `bench throughput`: the document, the tables and the checks, computed from the measurements.

Pure functions of the measurements. These are checked where both sides were measured:

    hive >= 0.8 x the sketch in the same arrangement           (b), (c), (d)
    the best of hive's arrangements > the sketch's fused rate
    hive > the peer, with each number of threads that it was measured with
    a collector that is the bottleneck spends >= 85 % of its time in environment + policy   (c)
    the runtime takes <= 5 % of the CPU                                                     (b), (c), (d)

The last two are promises of A2C. Tables of settings with a replay memory show instead how busy each group of actors is.

A collector is the bottleneck of a run if it waits for others less than 10 % of its time. Otherwise its share depends on
the others' cost and not on its own overhead, and is not checked. The CPU share of the runtime that hive_run.py measures
is an upper bound; where all cores were in use, a share above 5 % therefore does not fail the check.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.contender import Contender, Measurement, Setting
from benchmarks.figures import Spread, best_of, medians, ratio_of, spread_of
from benchmarks.off_policy import ReplaySetting
from benchmarks.table import NOTHING, aligned, number, percent, ratio, spread_text
from benchmarks.throughput import SETTINGS

__all__ = ["Check", "checks_of", "document_of", "text_of"]

LEAST_OF_SKETCH = 0.8
LEAST_OF_COLLECTOR = 0.85
MOST_OF_CPU = 0.05
QUIET_CORES = 0.1  # cores that other programs may use without a warning in the report: the kernel uses some
SPARE_BELOW = 0.95  # share of all cores in use above which processes share cores
BINDS_BELOW = 0.10  # share of its time that a collector waits, below which it is the bottleneck

SHAPES = {"single": "sketch-fused", "1-collector": "sketch-1-collector", "2-collectors": "sketch-2-collectors"}
"""The sketch's arrangement for each of hive's."""

RIVALS = ("sketch-fused", "sb3", "sb3-1-thread")  # contenders that the best of hive's arrangements must beat

SCALARS = (
    *("collector_share", "collector_wait_share", "gradient_worker_share", "learner_share"),
    *("runtime_cpu_share", "cpu_cores"),
    *("slots_per_s", "messages_per_s", "policy_lag", "gradient_lag", "updates_per_s", "others_cores"),
)

Results = Mapping[str, Sequence[Measurement]]  # name of a contender -> its measurements, one for each repetition
Pair = tuple[str, str]  # the shapes of a contender and of the one that it is compared with


@dataclass(frozen=True)
class Check:
    """One promise and its measurement. `passed` is None where the measurement allows no verdict."""

    promise: str
    measured: str
    passed: bool | None


def rates(results: Results, name: str) -> list[float]:
    return [measurement["steps_per_s"] for measurement in results.get(name, ())]


def hive_rates(results: Results, setting: Setting) -> dict[str, list[float]]:
    """Return the rates of hive's arrangements that were measured in this setting."""
    found = {shape: rates(results, f"{setting.name}/{shape}") for shape in SHAPES}
    return {shape: measured for shape, measured in found.items() if measured}


def ratios_of(results: Results, setting: Setting) -> dict[Pair, Spread]:
    """Return the ratio of every pair of shapes that were both measured in one setting."""
    ours = hive_rates(results, setting)
    pairs = [(shape, other) for shape in ours for other in dict.fromkeys(("bare", SHAPES[shape], *RIVALS))]
    theirs = {other: rates(results, f"{setting.name}/{other}") for _, other in pairs}
    return {(shape, other): ratio_of(ours[shape], theirs[other]) for shape, other in pairs if theirs[other]}


def scalars(measurements: Sequence[Measurement]) -> dict[str, float | None]:
    """Return the medians of all figures but the rate."""
    return medians([{key: measurement.get(key) for key in SCALARS} for measurement in measurements])


def checks_of(results: Results, cores: int) -> list[Check]:
    """Return the checks whose contenders were measured. `cores`: of the machine."""
    found = []
    for setting in SETTINGS:
        ours, ratios = hive_rates(results, setting), ratios_of(results, setting)
        for shape, other in SHAPES.items():
            if spread := ratios.get((shape, other)):
                promise = f"{setting.name}: hive {shape} >= {LEAST_OF_SKETCH} x {other}"
                found.append(Check(promise, spread_text(spread), spread.median >= LEAST_OF_SKETCH))
        best = best_of(ours) if ours else ""
        for other in RIVALS:
            if spread := ratios.get((best, other)):
                promise = f"{setting.name}: the best of hive ({best}) > {other}"
                found.append(Check(promise, spread_text(spread), spread.median > 1.0))
        if not isinstance(setting, ReplaySetting):
            found += _share_checks(results, setting, cores)
    return found


def _share_checks(results: Results, setting: Setting, cores: int) -> list[Check]:
    found = []
    one = scalars(results.get(f"{setting.name}/1-collector", ()))
    share, wait = one.get("collector_share"), one.get("collector_wait_share")
    if share is not None and wait is not None:
        text = f"{setting.name}: a bottleneck collector spends >= {LEAST_OF_COLLECTOR:.0%} in environment + policy"
        binds = wait < BINDS_BELOW
        measured = percent(share) + ("" if binds else f", waits {percent(wait)}: not the bottleneck")
        found.append(Check(text, measured, share >= LEAST_OF_COLLECTOR if binds else None))
    for shape in SHAPES:
        beside = scalars(results.get(f"{setting.name}/{shape}", ()))
        cpu, used, others = (beside.get(key) for key in ("runtime_cpu_share", "cpu_cores", "others_cores"))
        if cpu is not None and used is not None and others is not None:
            text = f"{setting.name}: the runtime of hive {shape} takes <= {MOST_OF_CPU:.0%} of the CPU"
            spare = used + others <= SPARE_BELOW * cores
            measured = percent(cpu) + ("" if spare else ", all cores in use: an upper bound")
            found.append(Check(text, measured, cpu <= MOST_OF_CPU if spare or cpu <= MOST_OF_CPU else None))
    return found


def document_of(
    measured: Sequence[Contender], results: Results, repetitions: int, seconds: float, machine: Mapping[str, object]
) -> dict[str, Any]:
    """Return all results as one JSON document with stable keys. `machine` comes from `machine_facts`."""
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
            for contender in measured
        ],
        "ratios": [
            {"setting": setting.name, "of": one, "to": other, **dataclasses.asdict(spread)}
            for setting in SETTINGS
            for (one, other), spread in ratios_of(results, setting).items()
        ],
        "checks": [dataclasses.asdict(check) for check in checks_of(results, cores)],
    }


REPLAY_HEAD = (
    *("", "steps/s", "least..most", "updates/s", "x sb3", "x sb3 1 thread"),
    *("collector", "worker", "learner"),
)
HEAD = ("", "steps/s", "least..most", "x bare", "x sketch", "collector", "runtime", "slots/s", "messages/s", "lag")

LEGEND = (
    "x bare, x sketch: ratio to (a), and to the line below. collector: share of its time in environment + policy.",
    "runtime: its share of the CPU time. slots/s, messages/s: carried by channels in shared memory, over sockets.",
    "lag: of the policy / of the gradients, in versions.",
)
REPLAY_LEGEND = (
    "With a replay memory: x sb3: hive / Stable-Baselines3 with torch's default number of threads and with one, median",
    "and spread. collector, worker, learner: share of its time in which the actor works, over several the mean.",
)


def text_of(measured: Sequence[Contender], results: Results, repetitions: int, seconds: float, cores: int) -> str:
    """Return the tables and the checks as text."""
    lines = [
        f"Environment steps per second trained: medians of {repetitions} interleaved repetitions, {seconds:g} s each."
    ]
    if any(not isinstance(contender.setting, ReplaySetting) for contender in measured):
        lines += LEGEND
    if any(isinstance(contender.setting, ReplaySetting) for contender in measured):
        lines += REPLAY_LEGEND
    for setting in SETTINGS:
        mine = [contender for contender in measured if contender.setting == setting]
        if mine:
            ratios = ratios_of(results, setting)
            head, row = (REPLAY_HEAD, _replay_row) if isinstance(setting, ReplaySetting) else (HEAD, _row)
            lines += ["", setting.title, *aligned(head, [row(c, results, ratios) for c in mine])]
    checks = checks_of(results, cores)
    if checks:
        words = {True: "pass", False: "FAIL", None: "–"}
        rows = [(check.promise, check.measured, words[check.passed]) for check in checks]
        lines += ["", *aligned(("checks", "measured", ""), rows)]
    others = spread_of([one["others_cores"] for measurements in results.values() for one in measurements])
    if others.most > QUIET_CORES:
        text = f"{others.median:.2f} ({others.least:.2f}..{others.most:.2f})"
        lines += ["", f"Warning: during the measurements, other programs used {text} cores of CPU."]
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


def _replay_row(contender: Contender, results: Results, ratios: Mapping[Pair, Spread]) -> list[str]:
    spread, beside = spread_of(rates(results, contender.name)), scalars(results[contender.name])
    beaten = [ratios.get((contender.shape, peer)) for peer in ("sb3", "sb3-1-thread")]
    return [
        contender.title,
        number(spread.median),
        f"{number(spread.least)}..{number(spread.most)}",
        number(beside["updates_per_s"]),
        *(spread_text(one) if one else NOTHING for one in beaten),
        *(percent(beside[f"{group}_share"]) for group in ("collector", "gradient_worker", "learner")),
    ]
