"""TorchRL's side of `bench tree`: `torchrl_tree.py SECONDS` prints its rates, without hive.

PrioritizedSampler: update_priority and sample, which computes the weights too.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torchrl.data import LazyTensorStorage, PrioritizedSampler

from benchmarks.tree_rates import ALPHA, BATCH, BETA, EPSILON, ROWS, print_rates


class PrioritizedReplay:
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    print_rates(PrioritizedReplay, float(sys.argv[1]))
