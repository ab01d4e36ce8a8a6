"""Behaviour cloning: it learns the likelihood of given actions, and its weights are those of PPO and SAC."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parent))

from agent_loop import PENDULUM, blueprint_of

from hive.algorithms import BC, Batch
from hive.algorithms.making import make_algorithm
from hive.config import BCConfig
from hive.config.refusals import OF_BC
from hive.errors import TopologyError
from hive.gradients import clear, gradient_layout
from hive.networks import aligned_block
from hive.networks.act.distributions import DiagonalGaussian
from hive.training import Blueprint
from hive.training.gradient.gradient_slot import GradientSlot
from hive.training.run_start import write_first_state

CARTPOLE = "CartPole-v1"
MANY = "several-choices"


class SeveralChoices(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.MultiDiscrete([2, 3])


gymnasium.register(MANY, SeveralChoices)


def rows_of(id: str, count: int = 64) -> dict[str, Any]:
    """Transitions whose actions follow from the first number of the observation."""
    width = {CARTPOLE: 4, PENDULUM: 3, MANY: 3}[id]
    observations = np.random.default_rng(1).uniform(-1, 1, (count, width)).astype(np.float32)
    first = observations[:, 0]
    actions: Any = (first > 0).astype(np.int64)
    if id == PENDULUM:
        actions = (2.0 * np.clip(1.5 * first, -1, 1))[:, None].astype(np.float32)
    if id == MANY:
        actions = np.stack([first > 0, 1 + (first > 0)], 1).astype(np.int64)
    return {
        "observations": observations,
        "next_observations": observations,
        "actions": actions,
        "rewards": np.zeros(count, np.float32),
        "terminated": np.zeros(count, np.uint8),
    }


def cloning(folder: Path, id: str, **values: Any) -> Blueprint:
    np.savez(folder / "t.npz", **rows_of(id))
    return blueprint_of(
        "bc",
        id,
        algorithm__replay_from=f'"{folder / "t.npz"}"',
        network__normalize_observations="false",
        network__normalize_rewards="false",
        **values,
    )


def learned(blueprint: Blueprint, rows: dict[str, Any], turns: int) -> tuple[BC, list[dict[str, float]], Any]:
    """Make updates of all rows; return the algorithm, the statistics of each update, and the network."""
    networks, learner = blueprint.wrapper(), blueprint.learner()
    flat, algorithm = networks.online_network.flat, blueprint.algorithm()
    assert isinstance(algorithm, BC)
    slot = GradientSlot(flat, blueprint.codec)
    algorithm.connect(networks.online_network.module, slot)
    layout = gradient_layout(flat.parameter_elements, len(flat.parameters), len(algorithm.statistics), 0)
    gradient = layout.views(aligned_block(layout.bytes))
    weights = [aligned_block(blueprint.state.bytes) for _ in range(2)]
    states = [aligned_block(blueprint.optimizer_state_bytes) for _ in range(2)]
    write_first_state(blueprint, weights[0], states[0])
    count = len(rows["rewards"])
    numbers, observations = torch.ones(count), torch.from_numpy(rows["observations"])
    batch = Batch(
        observations,
        torch.from_numpy(rows["actions"]),
        numbers,
        numbers,
        observations,
        numbers,
        np.zeros(count, np.float32),
    )
    reports = []
    for turn in range(turns):
        networks.bind(weights[turn % 2])
        slot.rebound()
        clear(gradient, 0)
        with slot.filling(gradient):
            algorithm.gradient(batch)
        reports.append(dict(zip(algorithm.statistics, gradient["statistics"].tolist(), strict=True)))
        now, then = turn % 2, (turn + 1) % 2
        learner.turn([gradient], weights[now], states[now], weights[then], states[then])
    networks.bind(weights[turns % 2])
    return algorithm, reports, networks.online_network.module


@pytest.mark.parametrize(
    ("id", "network_of"), [(CARTPOLE, "ppo"), (CARTPOLE, "sac"), (PENDULUM, "ppo"), (PENDULUM, "sac"), (MANY, "ppo")]
)
def test_the_most_likely_actions_become_those_that_were_given(tmp_path: Path, id: str, network_of: str) -> None:
    blueprint = cloning(
        tmp_path,
        id,
        algorithm__network_of=f'"{network_of}"',
        algorithm__learning_rate=0.02,
        network__activation='"tanh"',
    )
    rows = rows_of(id)
    algorithm, reports, network = learned(blueprint, rows, 150)
    assert reports[-1]["policy_loss"] < reports[0]["policy_loss"] - 0.5
    with torch.no_grad():
        found = algorithm.distribution.mode(network(torch.from_numpy(rows["observations"]))[0]).numpy()
    if id == PENDULUM:
        assert np.abs(found - rows["actions"]).mean() < 0.25
    else:
        assert (found == rows["actions"]).mean() > 0.9


def test_the_first_loss_is_the_mean_likelihood(tmp_path: Path) -> None:
    for network_of in ("ppo", "sac"):
        blueprint, rows = cloning(tmp_path, PENDULUM, algorithm__network_of=f'"{network_of}"'), rows_of(PENDULUM)
        algorithm, reports, network = learned(blueprint, rows, 1)
        networks = blueprint.wrapper()
        block = aligned_block(blueprint.state.bytes)
        write_first_state(blueprint, block, aligned_block(blueprint.optimizer_state_bytes))
        networks.bind(block)
        with torch.no_grad():
            outputs = networks.online_network.module(torch.from_numpy(rows["observations"]))[0]
            actions = torch.from_numpy(rows["actions"])
            if network_of == "sac":
                actions = actions.clamp(-1.99, 1.99)
            expected = -algorithm.distribution.log_prob(outputs, actions).mean()
        assert reports[0]["policy_loss"] == pytest.approx(float(expected), rel=1e-5)
        assert network is not None


@pytest.mark.parametrize(("network_of", "scheme"), [("ppo", "ppo"), ("ppo", "a2c"), ("sac", "sac")])
def test_a_run_of_another_algorithm_can_begin_with_the_weights(tmp_path: Path, network_of: str, scheme: str) -> None:
    same = {
        "network__activation": '"relu"',
        "network__normalize_observations": "true",
        "network__normalize_rewards": "true",
        **({"network__initialization": '"uniform"'} if scheme == "sac" else {}),
    }
    np.savez(tmp_path / "t.npz", **rows_of(PENDULUM))
    given = {"algorithm__replay_from": f'"{tmp_path / "t.npz"}"', "algorithm__network_of": f'"{network_of}"'}
    mine, theirs = blueprint_of("bc", PENDULUM, **same, **given), blueprint_of(scheme, PENDULUM, **same)
    assert mine.flat.hollow_arrays().keys() == theirs.flat.hollow_arrays().keys()
    for name, array in mine.flat.hollow_arrays().items():
        assert array.shape == theirs.flat.hollow_arrays()[name].shape


def test_what_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r'algorithm\.network_of = "sac" needs a box action with bounds'):
        make_algorithm(BCConfig(network_of="sac"), DiagonalGaussian((2,)), 1, 1)
    values: dict[str, Any] = {
        "network.memory": '"gru"',
        "network.noisy_deviation": 0.1,
        "algorithm.n_step": 2,
        "algorithm.priority_exponent": 0.5,
    }
    assert {row.what for row in OF_BC} == values.keys()
    for row in OF_BC:
        with pytest.raises(TopologyError, match=f"{row.what} is refused: bc {row.reason}"):
            cloning(tmp_path, CARTPOLE, **{row.what.replace(".", "__"): values[row.what]})
