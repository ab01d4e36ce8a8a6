"""`bench tree`: priorities of a replay memory of a million rows, in batches of 512, on one core.

Every way is a separate program (tree_ways.py, peers/torchrl_tree.py). Required of what a trainer calls: 5 million
priorities written a second and 2 million rows drawn a second.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.harness import (
    Bench,
    Check,
    Report,
    add_repetitions,
    aligned,
    interleaved,
    load_warning,
    ratio_of,
    say,
    spread_cells,
    spread_of,
    spread_text,
)
from benchmarks.machine import load_average
from benchmarks.peer_environments import add_peer_options, peer_python
from benchmarks.programs import here, importing, run_program

LEAST = {"updates_per_s": 5e6, "samples_per_s": 2e6}
TITLES = {"updates_per_s": "priorities written", "samples_per_s": "rows drawn"}
KINDS = {"whole": "what a trainer calls: powers and weights too", "tree": "the tree alone"}
WAYS = [f"{kind}/{who}" for kind in KINDS for who in ("hive", "TorchRL", "NumPy")]

Results = Mapping[str, Sequence[Mapping[str, float]]]  # way -> the rates that it printed, one for each repetition


def measure(options: argparse.Namespace, machine: Mapping[str, object]) -> Report:
    if options.peers:
        peer_python("torchrl", options.cache)
    names = [name for name in WAYS if options.peers or not name.endswith("/TorchRL")]

    def rates(name: str, repetition: int) -> dict[str, float]:
        say(f"{repetition + 1}/{options.repetitions} {name}")
        command = _command(name, options.seconds, options.cache)
        return run_program(command, options.seconds, importing(), rate="samples_per_s")

    results, _ = interleaved(names, options.repetitions, rates)
    lines = [
        "Prioritized replay of 1,000,000 rows in batches of 512, one core.",
        f"Million rows a second, medians of {options.repetitions} interleaved repetitions; x: how much faster hive is.",
        *tables(results),
        *load_warning(load_average()),
    ]
    return Report(lines, {"seconds": options.seconds, "measured": results}, checks_of(results))


def _command(name: str, seconds: float, cache: Path) -> list[object]:
    kind, _, who = name.partition("/")
    if who == "TorchRL":
        return [peer_python("torchrl", cache), "-P", here("peers", "torchrl_tree.py"), kind, seconds]
    return [sys.executable, "-P", here("tree_ways.py"), name, seconds]


def _rates(results: Results, name: str, rate: str) -> list[float]:
    return [one[rate] / 1e6 for one in results[name]]


def checks_of(results: Results) -> list[Check]:
    checks = []
    for rate, least in LEAST.items():
        median = spread_of(_rates(results, "whole/hive", rate)).median
        promise = f"{TITLES[rate]}: >= {least / 1e6:g} M/s on one core"
        checks.append(Check(promise, f"{median:.1f} M/s", median >= least / 1e6))
    return checks


def tables(results: Results) -> list[str]:
    lines = []
    for kind, title in KINDS.items():
        for rate, what in TITLES.items():
            ours, rows = _rates(results, f"{kind}/hive", rate), []
            for name in (name for name in results if name.startswith(f"{kind}/")):
                values = _rates(results, name, rate)
                faster = spread_text(ratio_of(ours, values))
                rows.append((f"  {name.partition('/')[2]}", *spread_cells(values, 2), faster))
            lines += ["", *aligned((f"{what}, {title}", "M/s", "least..most", "x"), rows)]
    return lines


def _options(parser: argparse.ArgumentParser) -> None:
    add_peer_options(parser, "TorchRL")
    add_repetitions(parser, 5, 2.0)


BENCH = Bench(
    "tree",
    "priorities of a replay memory of 1,000,000 rows on one core: hive, TorchRL, a NumPy sum tree",
    "example: scripts/bench tree --no-peers --json tree.json --check",
    _options,
    measure,
)
