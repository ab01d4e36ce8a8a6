"""TorchRL's side of `bench tree`: `torchrl_tree.py whole|tree SECONDS` prints its rates, without hive.

whole   PrioritizedSampler: update_priority and sample, which computes the weights too
tree    its tree of sums in C++ alone, with priorities and random points that exist already
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torchrl._torchrl import SumSegmentTreeFp32
from torchrl.data import LazyTensorStorage, PrioritizedSampler

from benchmarks.tree_rates import ALPHA, BATCH, BETA, EPSILON, ROWS, print_rates

STORED = 2_000  # batches of random points that the tree alone gets


class Whole:
    """The calls of a trainer."""

    def __init__(self) -> None:
        self.storage = LazyTensorStorage(ROWS)
        self.storage.set(range(ROWS), torch.zeros(ROWS, dtype=torch.uint8))
        self.sampler = PrioritizedSampler(ROWS, alpha=ALPHA, beta=BETA, eps=EPSILON)
        self.sampler.extend(torch.arange(ROWS))
        errors = np.random.default_rng(1).exponential(size=ROWS).astype(np.float32)
        self.sampler.update_priority(torch.arange(ROWS), torch.from_numpy(errors))

    def write(self, rows: Any, errors: Any) -> None:
        self.sampler.update_priority(torch.from_numpy(rows), torch.from_numpy(errors))

    def draw(self, number: int) -> Any:
        return self.sampler.sample(self.storage, BATCH)[0]


class Tree:
    """The tree alone."""

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self.tree = SumSegmentTreeFp32(ROWS)
        self.tree[torch.arange(ROWS)] = torch.from_numpy(random.exponential(size=ROWS).astype(np.float32))
        self.points = random.random((STORED, BATCH), np.float32)

    def write(self, rows: Any, errors: Any) -> None:
        self.tree[torch.from_numpy(rows)] = torch.from_numpy(errors)

    def draw(self, number: int) -> Any:
        return self.tree.scan_lower_bound(self.points[number % STORED] * self.tree.query(0, ROWS))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print_rates(Whole if sys.argv[1] == "whole" else Tree, float(sys.argv[2]))
