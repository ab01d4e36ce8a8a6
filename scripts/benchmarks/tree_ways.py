"""The ways of `bench tree` in hive's own environment: `tree_ways.py NAME SECONDS` prints their rates.

whole/hive     what a trainer calls: leaves of errors, writes; random words, draws, importance weights
tree/hive      its tree alone, with leaves and words that exist already
whole/NumPy, tree/NumPy     the same with a binary tree of float64 sums, vectorised in NumPy as in stable-baselines
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.tree_rates import ALPHA, BATCH, BETA, EPSILON, ROWS, Way, print_rates
from hive.experience import PriorityTree, importance_weights, priority_leaves, replay_words

STORED = 2_000  # batches of leaves and words that the tree alone gets


class WholeHive:
    """The calls of a trainer."""

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


class HiveTree(WholeHive):
    """The tree alone."""

    def __init__(self, rows: int = ROWS) -> None:
        super().__init__(rows)
        random = np.random.default_rng(2)
        self.words = random.bit_generator.random_raw((STORED, BATCH))
        self.leaves = random.integers(1, 2**24, (STORED, BATCH)).astype(np.uint32)
        self.written = 0

    def write(self, rows: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        self.written += 1
        self.tree.write(rows, self.leaves[self.written % STORED])

    def draw(self, number: int) -> NDArray[np.int64]:
        return self.tree.draw(self.words[number % STORED])[0]


class NumpyTree:
    """Sums of two nodes each: node i has the children 2 i and 2 i + 1; the leaves begin at `first`."""

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

    def find(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the row into which each point between 0 and the total falls."""
        nodes = np.ones(len(points), np.int64)
        for _ in range(self.first.bit_length() - 1):
            nodes *= 2
            left = self.sums[nodes]
            right = points >= left
            points = np.where(right, points - left, points)
            nodes += right
        found: NDArray[np.int64] = np.minimum(nodes - self.first, self.rows - 1)
        return found

    def write(self, rows: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        self.put(rows, errors)

    def draw(self, number: int) -> NDArray[np.int64]:
        return self.find((np.arange(BATCH) + self.random.random(BATCH)) * (self.sums[1] / BATCH))


class WholeNumpy(NumpyTree):
    """The calls of a trainer. The least priority of the batch, rather than of the memory, saves a second tree."""

    def write(self, rows: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        self.put(rows, (errors + EPSILON) ** ALPHA)

    def draw(self, number: int) -> NDArray[np.int64]:
        rows = super().draw(number)
        leaves = self.sums[rows + self.first]
        _ = (leaves / leaves.min()) ** -BETA
        return rows


WAYS: Mapping[str, Callable[[], Way]] = {
    "whole/hive": WholeHive,
    "whole/NumPy": WholeNumpy,
    "tree/hive": HiveTree,
    "tree/NumPy": NumpyTree,
}


if __name__ == "__main__":
    print_rates(WAYS[sys.argv[1]], float(sys.argv[2]))
