"""Updates of an agent of several networks in a plain loop: batches, gradient slots and the learner, without actors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive.algorithms import Batch
from hive.algorithms.agents import ActorWithCritics
from hive.config import load_config
from hive.gradients import clear, gradient_layout
from hive.learning import SharedTarget
from hive.networks import aligned_block
from hive.networks.build.agents import AgentNetwork
from hive.training import Blueprint
from hive.training.gradient.gradient_slot import GradientSlot
from hive.training.run_start import write_first_state
from hive.training.update.learner import LearnerStep

PENDULUM = "Pendulum-v1"


def blueprint_of(scheme: str, id: str = PENDULUM, **values: Any) -> Blueprint:
    """A blueprint of small networks; `algorithm__critic_first="true"` sets algorithm.critic_first."""
    given = {"network.middleware": [8, 8], **{name.replace("__", "."): value for name, value in values.items()}}
    text = f'[run]\nscheme = "{scheme}"\n[env]\nid = "{id}"\n'
    return Blueprint(load_config("small.toml", [f"{name}={value}" for name, value in given.items()], text=text))


class AgentLoop:
    """An agent, its learner, and two blocks of each state, between which turns alternate."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.networks = blueprint.wrapper()
        self.learner = blueprint.learner()
        self.flat = self.networks.online_network.flat
        network = self.networks.online_network.module
        assert isinstance(network, AgentNetwork)
        self.network = network
        algorithm = blueprint.algorithm()
        assert isinstance(algorithm, ActorWithCritics)
        self.algorithm = algorithm
        self.slot = GradientSlot(self.flat, blueprint.codec)
        assert self.networks.target_network is not None
        self.target = self.networks.target_network.module
        self.algorithm.connect(network, self.slot, SharedTarget(network, self.target))
        elements, parameters = self.flat.parameter_elements, len(self.flat.parameters)
        layout = gradient_layout(elements, parameters, len(algorithm.statistics), 0)
        self.gradient = layout.views(aligned_block(layout.bytes))
        self.weights = [aligned_block(blueprint.state.bytes) for _ in range(2)]
        self.optimizer_states = [aligned_block(blueprint.optimizer_state_bytes) for _ in range(2)]
        write_first_state(blueprint, self.weights[0], self.optimizer_states[0])
        self.turns = 0
        self.bind()

    @property
    def state(self) -> NDArray[np.uint8]:
        """The block of weights of the present turn."""
        return self.weights[self.turns % 2]

    @property
    def optimizer_state(self) -> Any:
        return self.learner.views(self.optimizer_states[self.turns % 2])

    def bind(self) -> None:
        self.networks.bind(self.state)
        self.slot.rebound()

    def make(self, batch: Batch) -> None:
        """Make the gradient of the batch."""
        clear(self.gradient, 0)
        torch.default_generator.manual_seed(batch.number)
        with self.slot.filling(self.gradient):
            self.algorithm.gradient(batch)

    def apply(self) -> LearnerStep:
        """Make a turn of this gradient."""
        now, following = self.turns % 2, (self.turns + 1) % 2
        states = self.optimizer_states
        step = self.learner.turn(
            [self.gradient], self.weights[now], states[now], self.weights[following], states[following]
        )
        self.turns += 1
        self.bind()
        return step

    def update(self, batch: Batch) -> dict[str, float]:
        """Make all gradients of a batch, one after the other, and return the statistics of the last."""
        per_batch = self.algorithm.gradients_per_batch
        for part in range(per_batch):
            self.make(numbered(batch, batch.number * per_batch + part))
            self.apply()
        return dict(zip(self.algorithm.statistics, self.gradient["statistics"].tolist(), strict=True))


def numbered(batch: Batch, number: int) -> Batch:
    return Batch(
        batch.observations,
        batch.actions,
        batch.returns,
        batch.discounts,
        batch.next_observations,
        batch.importance,
        batch.errors,
        number,
    )


def batch_for(blueprint: Blueprint, size: int = 16, seed: int = 0, number: int = 0) -> Batch:
    """Random transitions, of which every fourth is the last of its episode."""
    generator = np.random.default_rng(seed)
    action = blueprint.environment.action
    shape = tuple(blueprint.environment.observation.shape)

    def rows() -> torch.Tensor:
        if blueprint.environment.observation.dtype == "uint8":
            return torch.from_numpy(generator.integers(0, 256, (size, *shape), np.uint8))
        return torch.from_numpy(generator.standard_normal((size, *shape), np.float32))

    if action.dtype == "int64":
        actions = torch.from_numpy(generator.integers(0, action.n, size))  # type: ignore[union-attr]
    else:
        drawn = generator.uniform(-2.0, 2.0, (size, *action.shape)).astype(np.float32)
        actions = torch.from_numpy(drawn)
    discounts = np.where(np.arange(size) % 4 == 3, 0.0, 0.99).astype(np.float32)
    return Batch(
        rows(),
        actions,
        torch.from_numpy(generator.standard_normal(size, np.float32)),
        torch.from_numpy(discounts),
        rows(),
        torch.ones(size),
        np.zeros(size, np.float32),
        number,
    )
