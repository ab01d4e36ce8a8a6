"""Both trainers of `scripts/parity` have the same networks: the same function, and initial weights of the same gains.

Needs `pip install '.[peers,minigrid]' MinAtar`; tests of what is missing are skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

sys.path += [str(Path(__file__).parents[2] / name) for name in ("scripts", "examples")]

from comparison.environments import made
from comparison.hive_cell import keys_of
from comparison.tasks import TASKS, Task

from hive.config import load_config
from hive.envs.vectors.checks import store
from hive.networks.build.network import build_network
from hive.networks.rows.inputs import RECURRENT_STATE
from hive.training import Blueprint

pytestmark = pytest.mark.full(reason="needs the extra `peers`")
pytest.importorskip("sb3_contrib", reason="pip install '.[peers]'")

NEEDS = {"ppo-minigrid": "minigrid", "ppo-minatar-breakout": "minatar"}
NAMES = ["ppo-cartpole", "ppo-lstm-cartpole-positions", "ppo-masked", "ppo-minigrid", "ppo-minatar-breakout"]
STEPS = 20  # observations in which both networks are compared
CLOSE = 1e-6
BRANCHES = (
    ("features_extractor", "lstm_actor", "mlp_extractor.policy_net", "action_net"),
    ("vf_features_extractor", "lstm_critic", "mlp_extractor.value_net", "value_net"),
)
"""Parts of the peer's policy in the order of hive's layers."""


def blueprint_of(task: Task) -> Blueprint:
    return Blueprint(load_config("task.toml", keys_of(task.settings, 1), text=""))


def model_for(task: Task) -> Any:
    from comparison.sb3_cell import model_of
    from stable_baselines3.common.env_util import make_vec_env

    return model_of(task.settings, make_vec_env(lambda: made(task.env), n_envs=task.envs), 1)


def matched(task: Task, network: nn.Module, policy: Any) -> list[tuple[Tensor, Tensor]]:
    """Each weight of hive's network, and of the peer's that has its place. The last layer of shared ones is divided."""
    ours = [one for one in network.parameters() if not is_last(task, one)]
    last = [one.split([len(one) - 1, 1]) for one in network.parameters() if is_last(task, one)]
    ours += [one[head] for head in (0, 1) for one in last]
    theirs = [
        parameter
        for branch in BRANCHES
        for part in branch
        for name, parameter in policy.named_parameters()
        if name.startswith(f"{part}.")
    ]
    assert [one.shape for one in ours] == [one.shape for one in theirs]
    assert len(theirs) == len(list(policy.parameters()))
    return list(zip(ours, theirs, strict=True))


def is_last(task: Task, parameter: Tensor) -> bool:
    """Whether it belongs to the layer that has all outputs of a shared network: all actions and the value."""
    return task.shared and len(parameter) == made(task.env).action_space.n + 1  # type: ignore[attr-defined]


@pytest.fixture(params=NAMES)
def task(request: pytest.FixtureRequest) -> Task:
    pytest.importorskip(NEEDS.get(request.param, "gymnasium"), reason="pip install minigrid MinAtar")
    found = TASKS[request.param]
    assert isinstance(found, Task)
    return found


def networks(task: Task) -> tuple[Blueprint, nn.Module, Any]:
    blueprint = blueprint_of(task)
    network = build_network(blueprint.initial.parameters, blueprint.spaces, torch.Generator().manual_seed(1))
    return blueprint, network, model_for(task)


def test_initial_weights_have_the_same_gains(task: Task) -> None:
    """Orthogonal matrices of one shape and gain have one norm; the uniform ones of an LSTM nearly so."""
    _, network, model = networks(task)
    for ours, theirs in matched(task, network, model.policy):
        assert ours.norm().item() == pytest.approx(theirs.norm().item(), rel=0.1 if len(ours) == 1024 else 1e-4)


def test_equal_weights_give_equal_outputs(task: Task) -> None:
    """Memories are empty: longer sequences are those of test_sb3_contrib."""
    blueprint, network, model = networks(task)
    with torch.no_grad():
        for ours, theirs in matched(task, network, model.policy):
            ours.normal_(0.0, 0.1)
            theirs.copy_(ours)
    env, spec = made(task.env), blueprint.environment.observation
    observation, info = env.reset(seed=1)
    env.action_space.seed(1)
    seen = []
    for _ in range(STEPS):
        rows = np.zeros((1, *spec.shape), spec.dtype)
        given = {"observation": observation, "action_mask": info["action_mask"]} if task.masked else observation
        assert store(spec, [given], rows)
        with torch.no_grad():
            probabilities, value = outputs_of(network, torch.from_numpy(rows), blueprint.state_width)
            expected, expected_value = peer_outputs(model.policy, observation, task, info)
        np.testing.assert_allclose(probabilities, expected, atol=CLOSE)
        np.testing.assert_allclose(value, expected_value, rtol=1e-4, atol=CLOSE)
        seen.append(value)
        observation, _, terminated, truncated, info = env.step(env.action_space.sample())
        if terminated or truncated:
            break
    assert np.ptp(seen) > 100 * CLOSE, "the outputs do not depend on the observation"


def outputs_of(network: nn.Module, rows: Tensor, width: int) -> tuple[Any, float]:
    """hive's probabilities of all actions, and the value."""
    outputs = network({"observation": rows, RECURRENT_STATE: torch.zeros(1, width)} if width else rows)
    return outputs[0].softmax(-1)[0].numpy(), outputs[1].item()


def peer_outputs(policy: Any, observation: Any, task: Task, info: dict[str, Any]) -> tuple[Any, float]:
    seen, _ = policy.obs_to_tensor(observation)
    if task.memory:
        empty = (torch.zeros(1, 1, task.memory),) * 2, torch.ones(1)
        distribution, value = policy.get_distribution(seen, *empty)[0], policy.predict_values(seen, *empty)
    else:
        masks = {"action_masks": info["action_mask"]} if task.masked else {}
        distribution, value = policy.get_distribution(seen, **masks), policy.predict_values(seen)
    return distribution.distribution.probs[0].numpy(), value.item()
