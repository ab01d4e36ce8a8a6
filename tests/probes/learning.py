"""Trains on a probe environment in a whole inline run, and reads what was learned from the run's last checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import hive
from hive.config import Config, load_config
from hive.config.values import toml_text
from hive.records import RunDirectory
from hive.schemes import build
from hive.testing import run_inline
from hive.training import Blueprint

LIMIT_S = 30.0  # for a run of a tenth of a second: one that hangs is stopped, and so fails

Settings = Mapping[str, Any]
Floats = NDArray[np.float32]

# One process, no lag, and a table: the only layer has a weight for every state. Plain gradient descent, because Adam
# would hide the size of a gradient. Three steps of four environments end in the middle of most episodes, and swapped
# axes are of different lengths.
TABLE: Settings = {
    "env.scale_actions": False,  # closed forms are in the environment's units
    "collection.workers": 0,
    "collection.envs": 4,
    "collection.rollout": 3,
    "collection.communication": "synchronous",
    "gradients.workers": 0,
    "gradients.communication": "synchronous",
    "network.middleware": [],
    "network.normalize_observations": False,
    "network.normalize_rewards": False,
    "algorithm.optimizer": "sgd",
    "algorithm.learning_rate": 1.0,
    "algorithm.learning_rate_schedule": "constant",
    "algorithm.clip_gradients": 0.0,
    "checkpoint.every": {},
}
ALWAYS: Mapping[str, Settings] = {
    "a2c": {"algorithm.entropy_weight": 0.0, "algorithm.gae_lambda": 1.0},
    "ppo": {"algorithm.entropy_weight": 0.0, "algorithm.normalize_advantages": False},
    "impala": {"algorithm.entropy_weight": 0.0},
    "nstep-q": {"algorithm.exploration_end": 1.0, "algorithm.huber_loss": False},
    "pqn": {"algorithm.exploration_end": 1.0, "algorithm.huber_loss": False},
}
"""Algorithm, which is also the name of its scheme -> settings for closed forms.

Action values are learned from random actions: all of them are taken equally often.
"""
IN_MINIBATCHES = {**TABLE, "algorithm.epochs": 1, "algorithm.minibatches": 2, "collection.rollout": 6}
IN_A_TABLE: Mapping[str, Settings] = {
    "a2c": TABLE,
    "ppo": IN_MINIBATCHES,
    "impala": TABLE,
    "nstep-q": {**TABLE, "algorithm.n_step": 2, "algorithm.target_interval": 1, "algorithm.target_rate": 1.0},
    "pqn": {**IN_MINIBATCHES, "algorithm.q_lambda": 0.5},
}
ALGORITHMS = tuple(ALWAYS)
POLICIES = ("a2c", "ppo", "impala")
ACTION_VALUES = tuple(name for name in ALGORITHMS if name not in POLICIES)


@dataclass(frozen=True)
class Learned:
    """The values and policy that a network has learned. Axis 0 of all arrays is the state."""

    outputs: tuple[torch.Tensor, ...]
    """The network's: (policy, values), or (action values,)."""

    @property
    def values(self) -> Floats:
        """The critic's values, or those of the best actions, [states]."""
        return self.outputs[1].numpy() if len(self.outputs) > 1 else self.action_values.max(-1)

    @property
    def action_values(self) -> Floats:
        """[states, actions], for algorithms that learn them."""
        (values,) = self.outputs
        return values.numpy()

    @property
    def probabilities(self) -> Floats:
        """Those of the actions, [states, actions], for algorithms with a policy."""
        policy, _ = self.outputs
        return policy.softmax(-1).numpy()

    @property
    def gaussians(self) -> tuple[Floats, Floats]:
        """Means and standard deviations of a continuous action, [states] each."""
        means, logarithms = self.outputs[0].unbind(-1)
        return means.numpy(), logarithms.exp().numpy()


def settings_of(changes: Mapping[str, Any]) -> Settings:
    """Return changes as settings: `collection__envs=2` sets collection.envs."""
    return {name.replace("__", "."): value for name, value in changes.items()}


def configure(algorithm: str, environment: str, rounds: int, settings: Settings) -> Config:
    """Return the config of a run of so many full rounds with the scheme of the algorithm's name."""
    text = f'[run]\nscheme = "{algorithm}"\n[env]\nid = "environments:{environment}"\n'
    sets = [f"{name}={toml_text(value)}" for name, value in {**ALWAYS[algorithm], **settings}.items()]
    shape = load_config("probe.toml", sets, text=text).collection
    steps = rounds * max(shape.workers, 1) * shape.envs * shape.rollout
    return load_config("probe.toml", [*sets, f"run.steps={steps}"], text=text)


def outputs_of(network: nn.Module, states: int) -> Learned:
    """Return what a network says about states 0 to states - 1."""
    with torch.inference_mode():
        return Learned(network(torch.eye(states)))


def initial(config: Config) -> Learned:
    """Return the outputs of a run's initial weights."""
    blueprint = Blueprint(config)
    return outputs_of(blueprint.network(), *blueprint.environment.observation.shape)


def trained(folder: Path, config: Config) -> hive.Policy:
    """Train to the end and return the policy."""
    directory = RunDirectory.create(folder, "probe")
    outcome = run_inline(build(config, directory.path), seconds=LIMIT_S)
    assert (outcome.state, outcome.reason) == ("finished", f"{config.run.steps:,} steps")
    return hive.load(str(directory.path))


def train(folder: Path, config: Config) -> Learned:
    """Train to the end."""
    policy = trained(folder, config)
    return outputs_of(policy.network, *policy.observation.shape)


def mean_return(folder: Path, config: Config) -> float:
    """Train to the end, and return the mean return of the last 100 episodes."""
    directory = RunDirectory.create(folder, "probe")
    return run_inline(build(config, directory.path), seconds=LIMIT_S).results["mean_return_100"]


def in_a_table(algorithm: str, environment: str, updates: int, **changes: Any) -> Config:
    """Return the config of a run of about so many updates of a table."""
    settings = {**IN_A_TABLE[algorithm], **settings_of(changes)}
    per_round = int(settings.get("algorithm.epochs", 1)) * int(settings.get("algorithm.minibatches", 1))
    return configure(algorithm, environment, -(-updates // per_round), settings)


def learn(folder: Path, algorithm: str, environment: str, updates: int, **changes: Any) -> Learned:
    """Train a table."""
    return train(folder, in_a_table(algorithm, environment, updates, **changes))
