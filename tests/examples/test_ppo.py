"""PPO on one page makes the updates of a run of hive, and learns."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import ppo
import pytest
import torch
from numpy.typing import NDArray

sys.path += [str(Path(__file__).parents[1] / name) for name in ("peers", "training")]

from same_rollout import CLOSE, acting, one_round, weights_of
from small_trainer import Trainer

from hive.config import load_config
from hive.experience import Purpose, stream
from hive.networks.act.bounded import ScaledActions

SEED, EPOCHS = 3, 5  # with 4 environments and 32 steps: two minibatches in each epoch, so ten updates of a round
# Defaults but for these: some ratios of ten updates leave a narrow range, and the entropy has a weight.
KEYS = {"epochs": EPOCHS, "clip_range": 0.005, "entropy_weight": 0.01}
SMALL = ["collection.envs=4", "collection.rollout=32", *(f"algorithm.{key}={value}" for key, value in KEYS.items())]
STEPS = {"CartPole-v1": 20, "Pendulum-v1": 25}  # the longest episode: some of a round are truncated

PREFIXES = {
    "network.branches.0.trunk.": "policy.",
    "network.branches.0.heads.0.": "",
    "network.branches.1.trunk.": "value.",
}
"""Beginnings of the names of weights, in hive and on the page."""


def trainer_of(env: str) -> Trainer:
    """A run by the defaults of the scheme `ppo`, but a small one."""
    text = (
        f'[run]\nscheme = "ppo"\nseed = {SEED}\n[env]\nid = "{env}"\noptions = {{ max_episode_steps = {STEPS[env]} }}'
    )
    trainer = acting(load_config("ppo.toml", SMALL, text=text))
    assert trainer.blueprint.gradients_per_round == 10
    return trainer


def theirs(trainer: Trainer) -> dict[str, NDArray[Any]]:
    """The weights of a run by the names of the page."""
    found = {}
    for name, array in weights_of(trainer).items():
        for prefix, ours in PREFIXES.items():
            if name.startswith(prefix):
                found[name.replace(prefix, ours)] = array
    return found


def difference(trainer: Trainer, agent: ppo.Agent) -> float:
    ours = {name: parameter.detach().numpy() for name, parameter in agent.named_parameters()}
    given = theirs(trainer)
    assert given.keys() == ours.keys()
    return max(float(np.abs(given[name] - ours[name]).max()) for name in given)


def rollout_of(trainer: Trainer, arrays: Mapping[str, NDArray[Any]]) -> ppo.Rollout:
    following, truncated = arrays["observations"][1:].copy(), arrays["truncated"] > 0
    following[truncated] = arrays["final_observations"][arrays["final_index"][truncated]]
    actions, distribution = arrays["actions"].copy(), trainer.blueprint.distribution
    if isinstance(distribution, ScaledActions):
        actions = distribution.scaled_numpy(actions)
    names = "log_probs", "rewards", "discounted"
    columns = [arrays["observations"][:-1].copy(), actions, *(arrays[name].copy() for name in names)]
    return ppo.Rollout(*columns, following, arrays["terminated"] > 0, truncated)


@pytest.mark.parametrize("env", list(STEPS))
def test_ten_updates_give_the_weights_of_a_run(env: str) -> None:
    """So do the next ten, with the statistics of the first round and Adam's moments."""
    trainer, made = trainer_of(env), gymnasium.make(env)
    settings = ppo.Settings(env=env, **KEYS)  # type: ignore[arg-type]
    agent = ppo.Agent(made.observation_space, made.action_space)
    agent.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in theirs(trainer).items()})
    optimizer = ppo.optimizer_of(agent, settings)
    for number in range(2):
        before = {name: array.copy() for name, array in theirs(trainer).items()}
        rollout = rollout_of(trainer, one_round(trainer, number))
        assert rollout.truncated.any()
        assert rollout.terminated.any() == (env == "CartPole-v1")
        permutation = stream(SEED, Purpose.minibatches, 0, number).permutation
        report = ppo.learn(agent, optimizer, rollout, settings, permutation)
        assert 0.01 < report["clipped"] < 0.99, report
        assert difference(trainer, agent) <= CLOSE
        assert all(np.abs(array - before[name]).max() > 100 * CLOSE for name, array in theirs(trainer).items())


def test_its_rollouts_are_those_of_one_policy() -> None:
    """Log probabilities belong to the actions, and discounted sums and what follows to the episodes."""
    settings = ppo.Settings(envs=3)
    torch.manual_seed(0)
    envs = ppo.Environments(settings)
    agent = ppo.Agent(envs.envs[0].observation_space, envs.envs[0].action_space)
    rollout = ppo.collect(agent, envs, 100)
    inputs, actions = agent.normalized(rollout.observations), torch.from_numpy(rollout.actions)
    found = agent.log_prob_and_entropy(inputs, actions)[0].detach().numpy()
    np.testing.assert_allclose(found, rollout.log_probs, atol=CLOSE)
    going = ~rollout.terminated[:-1]
    assert not going.all()
    assert not rollout.truncated.any()
    continued = (rollout.following[:-1] == rollout.observations[1:]).all(-1)
    np.testing.assert_array_equal(continued, going)
    np.testing.assert_allclose(rollout.discounted[1:], 1.0 + np.where(going, 0.99 * rollout.discounted[:-1], 0.0))
    assert sum(envs.ended) + envs.returns.sum() == 300


@pytest.mark.parametrize("env", list(STEPS))
def test_it_trains_and_evaluates(env: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = ppo.train(ppo.Settings(env=env, envs=4, rollout=64, steps=512, epochs=1, seed=2))
    assert np.isfinite(result)
    assert capsys.readouterr().out == ""  # too short for a line


@pytest.mark.full(reason="half a minute", rotates=True)
def test_it_learns_cartpole(capsys: pytest.CaptureFixture[str]) -> None:
    assert ppo.train(ppo.Settings()) >= 475.0
    assert " 8,192 steps  return " in capsys.readouterr().out
