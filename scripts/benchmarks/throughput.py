"""`bench throughput`: environment steps per second trained, hive beside its peers, in one run.

The settings are those of `benchmarks.settings`, the programs those of `benchmarks.contender`. Every program counts its
steps between two looks at its own counters, after a warm-up, and both looks are at the end of a round. One setting is
measured after the other.

A peer that was measured with one thread of torch and with more is compared by the
faster of them. These are checked where both sides were measured:

    the best of hive's placements >= the setting's goal x a peer; with no goal, > the peer
    the best of hive's placements >= the setting's least rate, in steps/s
    a collector that is the bottleneck spends >= 85 % of its time in environment + policy   (A2C, 1-collector)
    the runtime takes <= 3 % of the CPU                                                     (A2C, 2-collectors)

A collector is the bottleneck of a run if it waits for others less than 10 % of its time. Otherwise its share depends on
the others' cost and not on its own overhead, and is not checked. Where threads wait for a core, the runtime's share is
an estimate between two bounds; it fails the check only if the lower bound is above 3 %.

The ladder: a CSV file with one row per setting and peer for every change that was measured (`--ladder FILE`).

    date, commit, change, setting, placement, hive_steps_per_s, peer, peer_steps_per_s, ratio, least, most

placement: the fastest of hive's. peer: with the faster number of torch's threads; empty where none was measured, as
are its rate and the ratio. Rates are medians. ratio: the median of the ratios of each repetition, with the least and
the greatest of them; without a peer, least and most are those of hive's rate.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contender import (
    PEERS,
    Contender,
    Measurement,
    Pythons,
    add_python_options,
    contenders_of,
    matches,
    peer_of,
)
from benchmarks.harness import (
    NOTHING,
    QUIET_CORES,
    Bench,
    Check,
    Report,
    Spread,
    aligned,
    append_rows,
    best_of,
    check_csv,
    count,
    duration,
    interleaved,
    medians,
    number,
    percent,
    ratio_of,
    say,
    spread_cells,
    spread_of,
    spread_text,
)
from benchmarks.machine import CpuMeter
from benchmarks.programs import BenchError
from benchmarks.settings import SETTINGS, Setting

EPILOG = """examples:
  scripts/bench throughput --json throughput.json --check
  scripts/bench throughput --only 'a2c-python-16/*' --only 'ppo-*' --no-peers --seconds 4 --repeats 1
  scripts/bench throughput --only ppo-cartpole --python sample-factory=~/sf/bin/python
  scripts/bench throughput --ladder examples/results/ladder.csv --change 'native dense networks'
"""


def contenders(peers: Sequence[str], pythons: Pythons) -> list[Contender]:
    """Return hive's contenders of all settings and those of these peers, in the order of measurement."""
    found = [contender for setting in SETTINGS.values() for contender in contenders_of(setting, pythons)]
    return [contender for contender in found if contender.peer is None or contender.peer in peers]


def chosen(all_of_them: Sequence[Contender], patterns: Sequence[str]) -> list[Contender]:
    """Return the contenders whose name or setting matches one of the shell patterns; all if there is no pattern."""
    return [c for c in all_of_them if matches(c.name, patterns) or matches(c.setting.name, patterns)]


def measure_all(
    selected: Sequence[Contender], repeats: int, seconds: float
) -> tuple[dict[str, list[Measurement]], dict[str, str]]:
    """Return the measurements of each contender by name, one for each repetition, and the errors of those that failed.

    A contender that fails once is not measured again, and has no measurements.
    `others_cores` of a measurement is how many cores other programs used meanwhile, start and end included.
    """
    by_name = {contender.name: contender for contender in selected}

    def measurement_of(name: str, repetition: int) -> Measurement:
        meter = CpuMeter()
        measurement = by_name[name].measure(seconds)
        others = meter.others_cores()
        rate = f"{measurement['steps_per_s']:>11,.0f} steps/s"
        say(f"{repetition + 1}/{repeats}  {name:<36} {rate}  (others used {others:.2f} cores)")
        return {**measurement, "others_cores": others}

    return interleaved(list(by_name), repeats, measurement_of, skip_failed=True)


def measure(options: argparse.Namespace, machine: Mapping[str, object]) -> Report:
    pythons = Pythons(dict(options.python), options.cache)
    selected = _selected(options, pythons)
    if options.list:
        return Report(_listed(selected))
    if (options.ladder is None) != (options.change is None):
        raise BenchError("--ladder and --change need each other")
    if options.ladder is not None:
        check_csv(options.ladder, COLUMNS)
    for peer in {contender.peer for contender in selected if contender.peer is not None}:
        pythons.of(peer)  # installed before the first measurement, which it would disturb
    results: dict[str, list[Measurement]] = {}
    failed: dict[str, str] = {}
    for setting in SETTINGS.values():
        mine = [contender for contender in selected if contender.setting is setting]
        measured, failures = measure_all(mine, options.repeats, options.seconds)
        results |= measured
        failed |= failures
        if options.ladder is not None:  # setting by setting: an interrupted bench has written those that ended
            append_rows(options.ladder, COLUMNS, rows_of(best_pairs(measured, setting), options.change, machine))
    if not results:
        raise BenchError("no contender could be measured")
    shown = [contender for contender in selected if contender.name in results]
    return Report(
        lines_of(shown, results, options.repeats, options.seconds),
        {
            "repeats": options.repeats,
            "seconds": options.seconds,
            "contenders": documents_of(shown, results),
            "failed": failed,
        },
        checks_of(results),
        [f"{name}: {error}" for name, error in failed.items()],
    )


def _selected(options: argparse.Namespace, pythons: Pythons) -> list[Contender]:
    """Return the contenders that the options choose. Raises BenchError if there are none."""
    selected = chosen(contenders(options.peers, pythons), options.only)
    if "sample-factory" not in pythons.given and any(one.peer == "sample-factory" for one in selected):
        say("sample-factory is left out: it needs an environment of its own, --python sample-factory=PATH")
        selected = [one for one in selected if one.peer != "sample-factory"]
    if not selected:
        raise BenchError(f"no contender matches --only; settings: {', '.join(SETTINGS)} (--list shows all contenders)")
    return selected


def _listed(selected: Sequence[Contender]) -> list[str]:
    lines = []
    for setting in SETTINGS.values():
        shapes = [contender.shape for contender in selected if contender.setting is setting]
        lines += [setting.name, f"    {setting.title}", f"    {' '.join(shapes)}"] if shapes else []
    return lines


# --- report

LEAST_OF_COLLECTOR = 0.85
MOST_OF_CPU = 0.03
BINDS_BELOW = 0.10  # share of its time that a collector waits, below which it is the bottleneck

SCALARS = (
    *("collector_share", "collector_wait_share", "gradient_worker_share", "learner_share", "updates_per_s"),
    *("runtime_cpu_share", "runtime_cpu_share_least", "runtime_cpu_share_most", "policy_lag", "others_cores"),
)

Results = Mapping[str, Sequence[Measurement]]  # name of a contender -> its measurements, one for each repetition


@dataclass(frozen=True)
class Pair:
    """A placement of hive beside a peer, or without one where none was measured. Shapes, and rates in steps/s."""

    setting: Setting
    placement: str
    hive: Spread
    peer: str | None = None
    theirs: Spread | None = None
    ratio: Spread | None = None


def rates(results: Results, setting: Setting, shapes: Sequence[str]) -> dict[str, list[float]]:
    """Return the rates of those shapes that were measured in this setting."""
    measured = {shape: results.get(f"{setting.name}/{shape}", ()) for shape in shapes}
    return {shape: [found["steps_per_s"] for found in values] for shape, values in measured.items() if values}


def rivals_of(results: Results, setting: Setting) -> dict[str, list[float]]:
    """Return for each peer the shape with the faster number of threads, and its rates."""
    both = [rates(results, setting, (f"{peer}-1-thread", peer)) for peer in setting.peers]
    return {best_of(shapes): shapes[best_of(shapes)] for shapes in both if shapes}


def best_pairs(results: Results, setting: Setting) -> list[Pair]:
    """Return the fastest placement beside each peer; beside None where no peer was measured, [] without a placement."""
    ours = rates(results, setting, setting.placements)
    if not ours:
        return []
    best = best_of(ours)
    hive = spread_of(ours[best])
    pairs = [
        Pair(setting, best, hive, shape, spread_of(theirs), ratio_of(ours[best], theirs))
        for shape, theirs in rivals_of(results, setting).items()
    ]
    return pairs or [Pair(setting, best, hive)]


def scalars(measurements: Sequence[Measurement]) -> dict[str, float | None]:
    """Return the medians of all figures but the rate."""
    return medians([{key: measurement.get(key) for key in SCALARS} for measurement in measurements])


def checks_of(results: Results) -> list[Check]:
    """Return the checks whose contenders were measured."""
    checks = []
    for setting in SETTINGS.values():
        pairs = best_pairs(results, setting)
        for pair in pairs:
            if pair.peer is not None and pair.ratio is not None:
                goal = setting.goals.get(str(peer_of(pair.peer)))
                wanted = f"> {pair.peer}" if goal is None else f">= {goal:g} x {pair.peer}"
                passed = pair.ratio.median > 1.0 if goal is None else pair.ratio.median >= goal
                checks.append(Check(f"{setting.name}: hive {pair.placement} {wanted}", spread_text(pair.ratio), passed))
        if pairs and setting.least_steps_per_s is not None:
            promise = f"{setting.name}: hive {pairs[0].placement} >= {setting.least_steps_per_s:,.0f} steps/s"
            best = pairs[0].hive.median
            checks.append(Check(promise, number(best), best >= setting.least_steps_per_s))
        if setting.name.startswith("a2c-"):  # not IMPALA, whose peers have the work of A2C
            checks += _share_checks(results, setting)
    return checks


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


def documents_of(measured: Sequence[Contender], results: Results) -> list[dict[str, Any]]:
    """Return the results of each contender for the JSON document."""
    return [
        {
            "name": contender.name,
            "setting": contender.setting.name,
            "shape": contender.shape,
            "steps_per_s": dataclasses.asdict(spread_of([one["steps_per_s"] for one in results[contender.name]])),
            "medians": scalars(results[contender.name]),
            "measurements": list(results[contender.name]),
        }
        for contender in measured
    ]


LEGEND = (
    "x sb3, ...: ratio to this peer with its faster number of threads; the checks show the spread.",
    "working: share of its time in which a collector / gradient worker / learner works.",
    "runtime: its share of the CPU time. lag: of the policy, in versions.",
)


def lines_of(measured: Sequence[Contender], results: Results, repeats: int, seconds: float) -> list[str]:
    """Return the tables and the warning of a busy machine."""
    head = "Environment steps per second trained: medians of"
    lines = [f"{head} {repeats} interleaved repetitions (A B B A), {seconds:g} s each.", *LEGEND]
    for setting in SETTINGS.values():
        rows = [contender for contender in measured if contender.setting is setting]
        if rows:
            lines += ["", setting.title, *_table(setting, rows, results)]
    others = spread_of([one["others_cores"] for measurements in results.values() for one in measurements])
    if others.most > QUIET_CORES:
        lines += ["", f"Warning: during the measurements, other programs used {spread_text(others)} cores of CPU."]
    return lines


def _table(setting: Setting, contenders: Sequence[Contender], results: Results) -> list[str]:
    """Return the lines of one setting's table; it has a column for each rival that was measured."""
    rivals = rivals_of(results, setting)
    names = [f"x {peer_of(shape)}" for shape in rivals]
    head = ("", "steps/s", "least..most", "updates/s", *names, "working", "runtime", "lag")
    return aligned(head, [_row(contender, results, rivals) for contender in contenders])


def _row(contender: Contender, results: Results, rivals: Mapping[str, Sequence[float]]) -> list[str]:
    measurements = results[contender.name]
    ours, beside = [one["steps_per_s"] for one in measurements], scalars(measurements)
    shares = [beside[f"{group}_share"] for group in ("collector", "gradient_worker", "learner")]
    return [
        contender.title,
        *spread_cells(ours, 0),
        number(beside["updates_per_s"]),
        *(NOTHING if contender.peer else f"{ratio_of(ours, theirs).median:.2f}" for theirs in rivals.values()),
        " / ".join(NOTHING if share is None else f"{share:.0%}" for share in shares) if any(shares) else NOTHING,
        percent(beside["runtime_cpu_share"]),
        number(beside["policy_lag"], 2),
    ]


# --- ladder

COLUMNS = (
    *("date", "commit", "change", "setting", "placement", "hive_steps_per_s"),
    *("peer", "peer_steps_per_s", "ratio", "least", "most"),
)


def rows_of(pairs: Sequence[Pair], change: str, machine: Mapping[str, object]) -> list[dict[str, str]]:
    """Return a row for each pair. machine: date and commit, from `machine_facts`."""
    shared = {
        "date": str(machine["date"]).partition(" ")[0],
        "commit": str(machine["commit"] or ""),
        "change": change,
    }
    return [shared | _ladder_row(pair) for pair in pairs]


def _ladder_row(pair: Pair) -> dict[str, str]:
    row = {
        "setting": pair.setting.name,
        "placement": pair.placement,
        "hive_steps_per_s": f"{pair.hive.median:.0f}",
    }
    if pair.theirs is None or pair.ratio is None:
        return row | {"least": f"{pair.hive.least:.0f}", "most": f"{pair.hive.most:.0f}"}
    return row | {
        "peer": pair.peer or "",
        "peer_steps_per_s": f"{pair.theirs.median:.0f}",
        "ratio": f"{pair.ratio.median:.2f}",
        "least": f"{pair.ratio.least:.2f}",
        "most": f"{pair.ratio.most:.2f}",
    }


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", action="store_true", help="print settings and contenders, and measure nothing")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="default: all")
    none = "neither install nor measure peers"
    parser.add_argument("--no-peers", dest="peers", action="store_const", const=[], help=none)
    names = "contenders or settings whose name matches"
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help=names)
    parser.add_argument("--repeats", type=count, default=4, help="measurements of each (default %(default)d)")
    parser.add_argument("--seconds", type=duration, default=8.0, help="duration of each (default %(default)g)")
    add_python_options(parser)
    rows = "append a row per setting and peer to this CSV file"
    parser.add_argument("--ladder", type=Path, metavar="FILE", help=rows)
    parser.add_argument("--change", metavar="TEXT", help="with --ladder: what was changed before these measurements")


BENCH = Bench(
    "throughput",
    "environment steps per second trained by A2C, PPO, IMPALA, PQN, DQN and SAC: hive and its peers",
    EPILOG,
    _options,
    measure,
)
