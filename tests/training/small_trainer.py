"""The trainer in library mode: collectors, gradient workers and a learner in a plain loop, without actors."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hive import _native
from hive.config import Config, load_config
from hive.networks import FlatParameters, NetworkParameters, Spaces, aligned_block
from hive.networks.weights.state import StateLayout
from hive.networks.weights.wrapper import NetworkWrapper
from hive.runtime import Layout, Status
from hive.runtime.memory.status import PAGE_BYTES, ActorStatus, read_status
from hive.training import Blueprint, Collector, GWorker
from hive.training.run_start import write_first_state
from hive.training.update.learner import Count, LearnerStep, mean_return

Arrays = Mapping[str, NDArray[Any]]

LIMIT_S = 240.0  # for a whole run, which takes a second or less: one that hangs is stopped, and so fails


def config_of(id: str, **values: Any) -> Config:
    """A small config; `collection__envs=2` sets collection.envs."""
    by_a2c = "algorithm__name" not in values and values.get("run__scheme", '"single"') == '"single"'
    small = {
        "run.scheme": "a2c",
        "collection.envs": 2,
        "collection.rollout": 8,
        "collection.communication": '"synchronous"',
        "network.middleware": [8],
        "network.separate_networks": "false",
        "network.normalize_observations": "false",
        "network.normalize_rewards": "false",
        **({"algorithm.learning_rate_schedule": '"constant"', "algorithm.gae_lambda": 1.0} if by_a2c else {}),
        **{name.replace("__", "."): value for name, value in values.items()},
    }
    text = f'[env]\nid = "{id}"\n'
    return load_config("small.toml", [f"{name}={value}" for name, value in small.items()], text=text)


def allocate(layout: Layout) -> Arrays:
    """The arrays of a layout in memory of their own, which is full of garbage at first, as slots are."""
    block = aligned_block(layout.bytes)
    block[:] = 0xA5
    return layout.views(block)


def copies(arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {name: array.copy() for name, array in arrays.items()}


def same_bytes(one: Arrays, other: Arrays) -> bool:
    """Also where NaN is."""
    return all(np.array_equal(one[name].view(np.uint8), other[name].view(np.uint8)) for name in one)


class Page:
    """A status page of our own: `status` for the one who works, `read()` for the one who looks."""

    def __init__(self, name: str = "tester-0") -> None:
        self.pages = _native.Status(aligned_block(PAGE_BYTES))
        self.status = Status(self.pages.page(0), name, 1, 0)

    def read(self) -> ActorStatus:
        return read_status(self.pages, 0)


def wrapper_of(module: nn.Module, *, has_target: bool = False) -> NetworkWrapper:
    """The networks of a run's process around a module, whatever it returns: the wrapper makes copies of it."""
    flat = FlatParameters(module)
    state = StateLayout(flat, has_target=has_target)
    wrapper = NetworkWrapper(NetworkParameters(), Spaces({}, None), state, torch.Generator())
    online = iter([module])

    def built() -> Any:
        own = next(online, None) or copy.deepcopy(module)
        return SimpleNamespace(module=own, flat=FlatParameters(own))

    wrapper._built = built
    return wrapper


def weights_of(blueprint: Blueprint) -> NDArray[np.uint8]:
    """A block with the initial weights."""
    block = aligned_block(blueprint.state.bytes)
    write_first_state(blueprint, block, aligned_block(blueprint.optimizer_state_bytes))
    return block


def collector_of(blueprint: Blueprint, source: int = 0, **options: Any) -> Collector:
    """Its environments have been reset."""
    collector = Collector(
        blueprint.vector(),
        blueprint.environment.observation,
        blueprint.wrapper(),
        blueprint.distribution,
        **{"seed": blueprint.config.run.seed, "source": source, **options},
    )
    collector.reset()
    return collector


def worker_of(blueprint: Blueprint, source: int = 0, **options: Any) -> GWorker:
    """As in a run. options: as of GWorker."""
    return GWorker(blueprint, source, **options)


class Trainer:
    """One collector for each rollout of a round, one gradient worker, one learner; lag 0."""

    def __init__(self, config: Config, collectors: int = 1) -> None:
        self.blueprint = blueprint = Blueprint(config)
        self.collectors = [collector_of(blueprint, source) for source in range(collectors)]
        self.worker = worker_of(blueprint)
        self.learner = blueprint.learner()
        self.rollouts = [allocate(blueprint.rollout_layout) for _ in self.collectors]
        self.gradient = allocate(blueprint.gradient_layout(collectors))
        self.weights = [weights_of(blueprint), aligned_block(blueprint.state.bytes)]
        self.optimizer_states = [aligned_block(blueprint.optimizer_state_bytes) for _ in range(2)]
        self.turns = 0

    def round(self) -> LearnerStep:
        """Collect, differentiate, apply."""
        for collector, rollout in zip(self.collectors, self.rollouts, strict=True):
            collector.bind(self.weights[self.turns % 2])
            collector.collect(rollout, sequence=self.turns, version=self.turns)
        return self.learn()

    def learn(self) -> LearnerStep:
        """Differentiate and apply, on the rollouts that were collected last."""
        now, following = self.turns % 2, (self.turns + 1) % 2
        self.worker.bind(self.weights[now])
        self.worker.compute(self.rollouts, self.gradient, sequence=self.turns, version=self.turns)
        turn = self.learner.turn(
            [self.gradient],
            self.weights[now],
            self.optimizer_states[now],
            self.weights[following],
            self.optimizer_states[following],
        )
        self.turns += 1
        return turn

    def train(self, rounds: int) -> None:
        for _ in range(rounds):
            self.round()

    @property
    def optimizer_state(self) -> Arrays:
        return self.learner.layout.views(self.optimizer_states[self.turns % 2])

    def mean_return(self) -> float:
        """Return the mean return of the last 100 episodes."""
        return mean_return(self.optimizer_state["returns"], int(self.optimizer_state["counters"][Count.episodes]))
