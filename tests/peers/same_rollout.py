"""One collector's rollouts in library mode, for comparisons of a single update with another trainer's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_trainer import Trainer

import hive.algorithms.ppo
from hive.config import Config

__all__ = ["CLOSE", "ENVS", "STEPS", "Arrays", "Orders", "acting", "one_round", "weights_of"]

ENVS, STEPS = 4, 32
CLOSE = 1e-6

Arrays = Mapping[str, NDArray[Any]]


class Orders:
    """Gives Stable-Baselines3 the order of the samples that hive's generator drew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn: list[NDArray[np.int64]] = []
        draw = hive.algorithms.ppo.PPO.gradients

        def recording(algorithm: Any, rollouts: Any, noise: Any = None) -> Iterator[Any]:
            return draw(algorithm, rollouts, _Recorder(noise, self.drawn))

        monkeypatch.setattr(hive.algorithms.ppo.PPO, "gradients", recording)
        monkeypatch.setattr(np.random, "permutation", self.next)

    def next(self, count: int) -> NDArray[np.int64]:
        """Row t * ENVS + b of hive is row b * STEPS + t of the peer's buffer."""
        if not self.drawn:  # A2C takes the rows as they are
            return np.arange(count)
        rows = self.drawn.pop(0)
        return rows % ENVS * STEPS + rows // ENVS


class _Recorder:
    def __init__(self, generator: np.random.Generator, drawn: list[NDArray[np.int64]]) -> None:
        self.generator = generator
        self.drawn = drawn

    def permutation(self, count: int) -> NDArray[np.int64]:
        rows = self.generator.permutation(count)
        self.drawn.append(rows)
        return rows


def acting(config: Config) -> Trainer:
    """Return a trainer of this config, its environments reset."""
    trainer = Trainer(config)
    trainer.collectors = [trainer.blueprint.collector(0)]  # as in a run: it keeps the log-probabilities
    trainer.collectors[0].reset()
    return trainer


def weights_of(trainer: Trainer) -> dict[str, NDArray[Any]]:
    flat = trainer.blueprint.flat
    return flat.arrays(trainer.weights[trainer.turns % 2][: flat.block_bytes])


def one_round(trainer: Trainer, number: int) -> Arrays:
    """Collects once and makes all gradients of the round; returns the rollout."""
    collector, rollout = trainer.collectors[0], trainer.rollouts[0]
    collector.bind(trainer.weights[trainer.turns % 2])
    collector.collect(rollout, sequence=number, version=trainer.turns)
    for _ in range(trainer.blueprint.gradients_per_round):
        trainer.learn()
    return rollout
