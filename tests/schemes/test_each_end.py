"""Every algorithm learns what each end of an episode is worth: whole runs, against values that NumPy solves for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_environments import each_end
from small_runs import train
from small_trainer import config_of, weights_of

from hive.config import SCHEMES
from hive.networks.build.agents import AgentNetwork
from hive.training import Blueprint

DISCOUNT = 0.5
EVERY: dict[str, Any] = {
    "env__wrappers": '[{name = "gymnasium.wrappers:TimeLimit", max_episode_steps = 2}]',
    "collection__envs": 5,
    "network__middleware": [],
    "algorithm__discount": DISCOUNT,
    "algorithm__learning_rate": 0.05,
    "checkpoint__every": "{}",
}
ON_POLICY: dict[str, Any] = {"run__steps": 4_000, "algorithm__learning_rate_schedule": '"linear"'}
REPLAY: dict[str, Any] = {
    "run__steps": 1_600,
    "algorithm__learning_starts": 80,
    "algorithm__batch_size": 40,
    "algorithm__replay_capacity": 2_000,
    "algorithm__updates_per_step": '"1/2"',
    "algorithm__target_interval": 1,
    "algorithm__target_rate": 0.2,
    "algorithm__learning_rate_schedule": '"linear"',
}

RUNS: dict[str, dict[str, Any]] = {
    "a2c": ON_POLICY,
    "a3c": ON_POLICY,
    "ppo": ON_POLICY,
    "dd-ppo": {**ON_POLICY, "collection__rollout": 8},
    "impala": ON_POLICY,
    "rapid": ON_POLICY,
    "single": ON_POLICY,
    "nstep-q": {**ON_POLICY, "algorithm__target_interval": 1},
    "pqn": ON_POLICY,
    "dqn": REPLAY,
    "c51": {**REPLAY, "algorithm__v_min": 0.0, "algorithm__v_max": 4.0, "algorithm__atoms": 9},
    "qr-dqn": {**REPLAY, "algorithm__quantiles": 4},
    "rainbow": {**REPLAY, "algorithm__v_min": 0.0, "algorithm__v_max": 4.0, "algorithm__atoms": 9},
    "apex": REPLAY,
    "sac": {**REPLAY, "algorithm__learn_temperature": "false", "algorithm__temperature": 1e-6},
    "td3": REPLAY,
    "ddpg": REPLAY,
}
"""Scheme -> the keys of its run."""
AS_OTHERS = {"a3c", "dd-ppo", "rapid", "single", "qr-dqn", "rainbow", "apex", "ddpg"}  # with the code of others
ELSEWHERE = {"ippo", "mappo", "bc"}  # of several agents, and without values


def values_of(blueprint: Blueprint) -> Any:
    """The values of the six states by the first weights of a run, which begins with those of another."""
    wrapper, states = blueprint.wrapper(), torch.eye(6)
    wrapper.bind(weights_of(blueprint))
    network = wrapper.online_network.module
    with torch.no_grad():
        if isinstance(network, AgentNetwork):
            return network.critic(states, torch.zeros(6, 1)).mean(0).numpy()
        outputs = network(states)
        of_actions = getattr(blueprint.distribution, "values", None)
        return outputs[1].numpy() if of_actions is None else of_actions(outputs[0].numpy()).max(1)


@pytest.mark.rotates
@pytest.mark.parametrize(
    "scheme", [pytest.param(name, marks=pytest.mark.rotates) if name in AS_OTHERS else name for name in RUNS]
)
def test_the_value_of_each_end_is_learned(tmp_path: Path, scheme: str) -> None:
    """Terminated, truncated by the environment and by a limit, and both flags at once."""
    agents = scheme in ("sac", "td3", "ddpg")
    keys = {**EVERY, **RUNS[scheme], **({} if agents else {"env__options": "{actions = 'discrete'}"})}
    run = train(tmp_path, scheme, "EachEnds", **keys)
    assert run.outcome.error == ""
    again = {**keys, "run__scheme": f'"{scheme}"', "run__init_from": f'"{run.directory.path}"'}
    blueprint = Blueprint(config_of("small_environments:EachEnds", **again))
    assert np.abs(values_of(blueprint) - each_end(DISCOUNT)).max() < 0.2


def test_every_scheme_is_tried() -> None:
    assert RUNS.keys() | ELSEWHERE == SCHEMES.keys()
