"""User-defined code that a config names: an algorithm, a sink, an update hook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hive.algorithms import A2C, PPO
from hive.config import A2CConfig, PPOConfig
from hive.training import Update

seen: list[Update] = []


class Cautious(A2C):
    """A2C with the entropy weight of its option, and its own name in the statistics."""

    def __init__(self, config: Any, distribution: Any, workers: int, *, entropy: float = 0.0) -> None:
        super().__init__(A2CConfig(entropy_weight=entropy), distribution, workers)
        self.statistics = ("own_loss", *self.statistics[1:])


class Bolder(PPO):
    """PPO that records the clip range of every table of keys."""

    clipped_at: ClassVar[list[float]] = []

    def reconfigure(self, config: PPOConfig) -> None:
        super().reconfigure(config)
        self.clipped_at.append(config.clip_range)


class NotOne:
    def __init__(self, config: Any, distribution: Any, workers: int) -> None:
        self.distribution = distribution


class LinesSink:
    """Every record as a line of a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.file = (folder / "own_lines.txt").open("w")

    def write(self, record: Any) -> None:
        self.file.write(json.dumps([record.updates, sorted(record.values)]) + "\n")

    def close(self) -> None:
        self.file.close()


def watch(update: Update) -> dict[str, float]:
    seen.append(update)
    return {"own/weight_norm": float(np.sqrt(sum(np.square(array).sum() for array in update.weights.values())))}


def meddles(update: Update) -> None:
    next(iter(update.weights.values()))[...] = 0.0
