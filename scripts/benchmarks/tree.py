"""`bench tree`: priorities of a replay memory of a million rows, in batches of 512, on one core.

    tree.py WAY SECONDS    prints the rates of one way as a trainer calls it: powers of errors and writes of priorities;
                           random points, draws and importance weights

Required: 5 million priorities written a second and 2 million rows drawn a second.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import (
    Bench,
    Check,
    Report,
    add_repetitions,
    load_warning,
    measured_programs,
    spread_of,
    ways_table,
)
from benchmarks.machine import load_average
from benchmarks.peer_environments import add_peer_options, peer_python
from benchmarks.programs import here
from benchmarks.tree_rates import ALPHA, BATCH, BETA, EPSILON, ROWS, Way, print_rates
from hive.experience import PriorityTree, importance_weights, priority_leaves, replay_words

LEAST = {"updates_per_s": 5e6, "samples_per_s": 2e6}
TITLES = {"updates_per_s": "priorities written", "samples_per_s": "rows drawn"}

Results = Mapping[str, Sequence[Mapping[str, float]]]  # way -> the rates that it printed, one for each repetition


class HiveTree:
    """hive's tree of integer sums."""

    def __init__(self, rows: int = ROWS) -> None:
        errors = np.random.default_rng(1).exponential(size=rows).astype(np.float32)
        self.tree = PriorityTree(priority_leaves(errors + np.float32(EPSILON), ALPHA)[0])

    def write(self, rows: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        leaves, _ = priority_leaves(errors + np.float32(EPSILON), ALPHA)
        self.tree.write(rows, leaves)

    def draw(self, number: int) -> NDArray[np.int64]:
        positions, leaves = self.tree.draw(replay_words(0, 0, number, BATCH))
        importance_weights(leaves, BETA)
        return positions


class NumpyTree:
    """A binary tree of float64 sums, vectorized in NumPy as in stable-baselines.

    Node i has the children 2 i and 2 i + 1; the leaves begin at `first`.
    """

    def __init__(self, rows: int = ROWS) -> None:
        self.rows, self.first = rows, 1 << (rows - 1).bit_length()
        self.sums = np.zeros(2 * self.first)
        self.random = np.random.default_rng(1)
        self.put(np.arange(rows), self.random.exponential(size=rows) ** ALPHA)

    def put(self, rows: NDArray[np.int64], leaves: NDArray[Any]) -> None:
        nodes = rows + self.first
        self.sums[nodes] = leaves
        while nodes[0] > 1:
            nodes = np.unique(nodes >> 1)
            self.sums[nodes] = self.sums[2 * nodes] + self.sums[2 * nodes + 1]

    def rows_at(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the row into which each point between 0 and the total falls."""
        nodes = np.ones(len(points), np.int64)
        for _ in range(self.first.bit_length() - 1):
            nodes *= 2
            left = self.sums[nodes]
            right = points >= left
            points = np.where(right, points - left, points)
            nodes += right
        rows: NDArray[np.int64] = np.minimum(nodes - self.first, self.rows - 1)
        return rows

    def write(self, rows: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        self.put(rows, (errors + EPSILON) ** ALPHA)

    def draw(self, number: int) -> NDArray[np.int64]:
        rows = self.rows_at((np.arange(BATCH) + self.random.random(BATCH)) * (self.sums[1] / BATCH))
        leaves = self.sums[rows + self.first]
        _ = (leaves / leaves.min()) ** -BETA  # the least of the batch, rather than of the memory, saves a second tree
        return rows


WAYS: dict[str, Callable[[], Way]] = {"hive": HiveTree, "NumPy": NumpyTree}


def measure(options: argparse.Namespace, machine: Mapping[str, object]) -> Report:
    commands: dict[str, list[object]] = {way: [sys.executable, "-P", here("tree.py"), way] for way in WAYS}
    if options.peers:
        commands["TorchRL"] = [peer_python("torchrl", options.cache), "-P", here("peers", "torchrl_tree.py")]
    results = measured_programs(commands, options.repetitions, options.seconds, "samples_per_s")
    lines = [
        "Prioritized replay of 1,000,000 rows in batches of 512, one core, as a trainer calls it.",
        f"Million rows a second, medians of {options.repetitions} interleaved repetitions; x: how much faster hive is.",
    ]
    for rate, title in TITLES.items():
        lines += ways_table(title, "M/s", {way: _rates(results, way, rate) for way in results}, 2, "hive")
    figures = {"seconds": options.seconds, "measured": results}
    return Report([*lines, *load_warning(load_average())], figures, checks_of(results))


def _rates(results: Results, way: str, rate: str) -> list[float]:
    return [printed[rate] / 1e6 for printed in results[way]]


def checks_of(results: Results) -> list[Check]:
    checks = []
    for rate, least in LEAST.items():
        median = spread_of(_rates(results, "hive", rate)).median
        promise = f"{TITLES[rate]}: >= {least / 1e6:g} M/s on one core"
        checks.append(Check(promise, f"{median:.1f} M/s", median >= least / 1e6))
    return checks


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

if __name__ == "__main__":
    print_rates(WAYS[sys.argv[1]], float(sys.argv[2]))
