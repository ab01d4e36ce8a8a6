"""SAC, TD3 and DDPG: targets row by row, which networks a gradient has, and what they refuse."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

sys.path.append(str(Path(__file__).parent))

from agent_loop import PENDULUM, AgentLoop, batch_for, blueprint_of, numbered

import hive
from hive.algorithms import Batch
from hive.algorithms.making import make_algorithm
from hive.config import DDPGConfig, SACConfig, TD3Config
from hive.envs import Discrete
from hive.errors import ConfigError, NetworkError, TopologyError
from hive.networks.act.distributions import Categorical, DiagonalGaussian, MultiCategorical
from hive.networks.act.exploration import NoisyActions, SoftActions, SoftChoices
from hive.records import write_checkpoint

CARTPOLE = "CartPole-v1"
ACTOR, CRITIC, TEMPERATURE = range(3)
BACKENDS = ("torch", "native")


def loop_of(scheme: str, id: str = PENDULUM, **values: Any) -> AgentLoop:
    return AgentLoop(blueprint_of(scheme, id, **values))


def value_of(critics: Any, observation: Tensor, action: Tensor) -> Tensor:
    """The values of an action, one of each critic, from plain layers."""
    inputs = torch.cat([action, observation])
    return torch.stack([branch.trunk[1:](inputs).squeeze(-1) for branch in critics.branches])


def sac_value(loop: AgentLoop, observation: Tensor, noise: Tensor, temperature: float) -> Tensor:
    mean, log_std = loop.network.actor(observation[None])[0][0]
    chosen = torch.tanh(mean + log_std.exp() * noise)
    density = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi) - torch.log(1 - chosen**2)
    value = value_of(loop.target.critic, observation, chosen).min()
    return value - temperature * density.squeeze(-1)


def discrete_value(loop: AgentLoop, observation: Tensor, noise: Tensor, temperature: float) -> Tensor:
    policy = loop.network.actor(observation[None])[0][0].softmax(-1)
    first, second = (branch(observation[None])[0][0] for branch in loop.target.critic.branches)  # type: ignore[union-attr]
    each = [p * (min(a, b) - temperature * p.log()) for p, a, b in zip(policy, first, second, strict=True)]
    return torch.stack(each).sum()


def td3_value(loop: AgentLoop, observation: Tensor, noise: Tensor, temperature: float) -> Tensor:
    smoothed = torch.tanh(loop.target.actor(observation[None])[0][0])  # type: ignore[operator]
    smoothed = (smoothed + (0.2 * noise).clip(-0.5, 0.5)).clip(-1, 1)
    return value_of(loop.target.critic, observation, smoothed).min()


def ddpg_value(loop: AgentLoop, observation: Tensor, noise: Tensor, temperature: float) -> Tensor:
    return value_of(loop.target.critic, observation, torch.tanh(loop.target.actor(observation[None])[0][0]))[0]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("scheme", "id", "value", "factor"),
    [
        ("sac", PENDULUM, sac_value, 0.5),
        ("sac", CARTPOLE, discrete_value, 0.5),
        ("td3", PENDULUM, td3_value, 1.0),
        ("ddpg", PENDULUM, ddpg_value, 1.0),
    ],
)
@torch.no_grad()
def test_targets_and_errors_are_those_of_each_row(
    scheme: str, id: str, value: Callable[..., Tensor], factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A discount is 0 where an episode terminated, and positive where it was truncated or continues."""
    loop = loop_of(scheme, id, algorithm__critic_first="true")
    for number in range(3):  # then the target differs from the network, and the temperature from 1
        with torch.enable_grad():
            loop.update(batch_for(loop.blueprint, 8, seed=number, number=2 * number + 1))
    batch = dataclasses.replace(batch_for(loop.blueprint, 8, seed=9), importance=torch.linspace(0.3, 1.0, 8))
    noise = torch.linspace(-3.0, 3.0, 8)[:, None]  # the outer ones are clipped by TD3
    monkeypatch.setattr(loop.algorithm, "draw", lambda batch, use, shape: noise)
    temperature = 1.0 if loop.network.temperature is None else loop.network.temperature.log.exp().item()
    assert (temperature == 1.0) == (scheme != "sac")
    losses, errors = [], []
    for row in range(8):
        target = batch.returns[row]
        if batch.discounts[row]:
            target = target + batch.discounts[row] * value(loop, batch.next_observations[row], noise[row], temperature)
        if id == CARTPOLE:
            branches = loop.network.critic.branches
            found = torch.stack([b(batch.observations[row][None])[0][0, batch.actions[row]] for b in branches])
        else:
            found = value_of(loop.network.critic, batch.observations[row], batch.actions[row] / 2.0)
        losses.append(batch.importance[row] * factor * (found - target).square().sum())
        errors.append((found - target).abs().mean())
    with torch.enable_grad():
        loop.make(batch)
    statistics = dict(zip(loop.algorithm.statistics, loop.gradient["statistics"].tolist(), strict=True))
    assert statistics["critic_loss"] == pytest.approx(torch.stack(losses).mean().item(), rel=1e-4)
    np.testing.assert_allclose(batch.errors, torch.stack(errors), rtol=1e-5, atol=1e-5)
    assert math.isnan(statistics["actor_loss"])


@pytest.mark.parametrize("first", ["true", "false"])
@pytest.mark.parametrize(
    ("scheme", "id"), [("sac", PENDULUM), ("sac", CARTPOLE), ("td3", PENDULUM), ("ddpg", PENDULUM)]
)
def test_native_gradients_are_those_of_torch(scheme: str, id: str, first: str) -> None:
    """Also where a deviation is clamped, and with the memory of several passes at once."""
    loops = [
        loop_of(scheme, id, network__backend=f'"{backend}"', algorithm__critic_first=first) for backend in BACKENDS
    ]
    for loop, backend in zip(loops, BACKENDS, strict=True):
        dense = [module for module in loop.network.modules() if getattr(module, "dense", None) is not None]
        assert len(dense) == (2 if backend == "native" else 0)
        loop.network.actor.trunk[-1].bias.data[-1] = 2.0  # type: ignore[union-attr, operator]
    for number in range(4):
        seen = []
        for loop in loops:
            batch = dataclasses.replace(
                batch_for(loop.blueprint, 32, seed=number, number=number), importance=torch.linspace(0.3, 1.0, 32)
            )
            loop.make(batch)
            seen.append({name: loop.gradient[name].copy() for name in ("gradient", "statistics", "mask", "norm")})
            seen[-1]["errors"] = batch.errors.copy()
        for name, expected in seen[0].items():
            np.testing.assert_allclose(seen[1][name], expected, rtol=2e-5, atol=2e-6, err_msg=name)


def parts(loop: AgentLoop) -> list[bytes]:
    """Weights and moments of each group."""
    floats = loop.state[: loop.flat.parameter_bytes].view(np.float32)
    blocks = [floats, *loop.optimizer_state["moments"]]
    return [b"".join(block[group.elements].tobytes() for block in blocks) for group in loop.flat.groups]


def changed(before: list[bytes], after: list[bytes]) -> set[int]:
    return {number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new}


def test_the_critic_learns_first_and_leaves_the_actor_as_it_is() -> None:
    loop = loop_of("sac", algorithm__critic_first="true")
    assert loop.algorithm.gradients_per_batch == 2
    batch = batch_for(loop.blueprint)
    for number, learning in enumerate([{CRITIC}, {ACTOR, TEMPERATURE}, {CRITIC}, {ACTOR, TEMPERATURE}]):
        before = parts(loop)
        batch.errors[:] = np.nan
        loop.make(numbered(batch, number))
        assert np.isfinite(batch.errors).all() == (CRITIC in learning)
        assert loop.apply().applied
        assert changed(before, parts(loop)) == learning
    assert loop.optimizer_state["group_updates"].tolist() == [2, 2, 2]


def test_all_networks_learn_at_once_by_default() -> None:
    loop = loop_of("sac")
    before = parts(loop)
    loop.update(batch_for(loop.blueprint))
    assert changed(before, parts(loop)) == {ACTOR, CRITIC, TEMPERATURE}


@pytest.mark.parametrize("first", [False, True])
def test_td3_delays_the_actor_and_the_targets_by_the_number_of_the_batch(first: bool) -> None:
    loop = loop_of("td3", algorithm__critic_first=str(first).lower(), algorithm__policy_delay=3)
    layout = loop.learner.network.state
    for number in range(6):
        before, target = parts(loop), layout.target(loop.state).copy()
        loop.update(numbered(batch_for(loop.blueprint), number))
        due = number in (2, 5)
        assert changed(before, parts(loop)) == ({ACTOR, CRITIC} if due else {CRITIC})
        assert np.array_equal(layout.target(loop.state), target) != due
    assert loop.optimizer_state["group_updates"].tolist() == [2, 6]


def test_a_gradient_is_repeated_with_the_same_bytes() -> None:
    loop = loop_of("sac")
    batch = batch_for(loop.blueprint)
    loop.make(batch)
    first = loop.gradient["gradient"].tobytes()
    loop.make(batch)
    assert loop.gradient["gradient"].tobytes() == first


def test_a_learned_temperature_falls_while_the_policy_has_more_entropy_than_it_should() -> None:
    loop = loop_of("sac", algorithm__temperature=0.5, algorithm__target_entropy=-10.0)
    found = [loop.update(numbered(batch_for(loop.blueprint), number)) for number in range(3)]
    temperatures = [statistics["temperature"] for statistics in found]
    assert temperatures[0] == 0.5
    assert temperatures[0] > temperatures[1] > temperatures[2]
    loop = loop_of("sac", algorithm__temperature=0.5, algorithm__learn_temperature="false")
    assert [group.name for group in loop.flat.groups] == ["actor", "critic"]
    assert loop.update(batch_for(loop.blueprint))["temperature"] == 0.5
    assert loop.update(batch_for(loop.blueprint))["temperature"] == 0.5


class FewActions(gymnasium.Env[Any, int]):
    """An environment with a mask of four actions."""

    observation_space = spaces.Dict({"seen": spaces.Box(-1, 1, (2,)), "mask": spaces.MultiBinary(4)})
    action_space = spaces.Discrete(4)  # type: ignore[assignment]


@pytest.mark.parametrize("counts", [(1, 2, 3, 4), (2, 2), (4,)])
def test_the_target_entropy_of_a_row_is_a_share_of_that_of_its_allowed_actions(counts: Sequence[int]) -> None:
    loop = loop_of("sac", f"{__name__}:FewActions", env__action_mask='"mask"')
    batch, spec = batch_for(loop.blueprint, 24), loop.blueprint.environment.observation
    assert spec.mask is not None
    for rows in (batch.observations, batch.next_observations):
        rows[:, : 4 * spec.floats].view(torch.float32)[:] = torch.linspace(-1.0, 1.0, 24)[:, None]
        allowed = torch.tensor(counts).repeat(24 // len(counts))
        rows[:, spec.mask.offset : spec.mask.offset + 4] = torch.arange(4) < allowed[:, None]
    loop.make(batch)
    entropy = loop.gradient["statistics"][loop.algorithm.statistics.index("entropy")]
    names = [field.name for field in loop.flat.parameters]
    slopes = dict(zip(names, loop.flat.gradient_arrays(loop.gradient["gradient"]), strict=True))
    (slope,) = (slopes[name] for name in names if name.endswith("temperature.log"))
    assert slope.item() == pytest.approx(entropy - 0.98 * np.log(counts).mean(), rel=1e-5, abs=1e-6)


def test_target_entropies_are_those_of_the_papers() -> None:
    assert loop_of("sac").algorithm.target_entropy == -1.0  # type: ignore[attr-defined]
    assert loop_of("sac", CARTPOLE).algorithm.target_entropy == pytest.approx(0.98 * math.log(2))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("scheme", "kind"), [("sac", SoftActions), ("td3", NoisyActions), ("ddpg", NoisyActions)])
def test_the_first_rollouts_have_uniform_actions(scheme: str, kind: type) -> None:
    distribution = blueprint_of(scheme, algorithm__learning_starts=90, collection__rollout=20).distribution
    assert isinstance(distribution, kind)
    assert distribution.warmup == 5  # type: ignore[attr-defined]
    assert isinstance(blueprint_of("sac", CARTPOLE).distribution, SoftChoices)


@pytest.mark.parametrize("config", [SACConfig(), TD3Config(), DDPGConfig()])
@pytest.mark.parametrize("distribution", [MultiCategorical((2, 3)), DiagonalGaussian((2,))])
def test_other_actions_are_refused(config: Any, distribution: Any) -> None:
    with pytest.raises(TopologyError, match=f"{config.name} needs a box action with bounds") as error:
        make_algorithm(config, distribution, 1)
    assert "use ppo, a2c or impala" in error.value.hint


def test_discrete_actions_are_for_sac_alone() -> None:
    with pytest.raises(TopologyError, match="td3 needs a box action with bounds"):
        make_algorithm(TD3Config(), Categorical(2), 1)
    with pytest.raises(TopologyError, match="ddpg needs a box action with bounds"):
        blueprint_of("ddpg", CARTPOLE)


@pytest.mark.parametrize("lines", [{"network__memory": '"lstm"'}, {"network__action_distribution": '"gsde"'}])
def test_what_an_agent_cannot_have_is_one_error(lines: dict[str, str]) -> None:
    with pytest.raises((ConfigError, NetworkError, TopologyError)):
        blueprint_of("sac", **lines)


@pytest.mark.parametrize(("scheme", "id"), [("sac", PENDULUM), ("sac", CARTPOLE), ("td3", PENDULUM)])
def test_a_loaded_policy_acts_without_noise_or_with_it(tmp_path: Path, scheme: str, id: str) -> None:
    blueprint = blueprint_of(scheme, id)
    loop = AgentLoop(blueprint)
    loop.update(batch_for(blueprint))
    weights = blueprint.state.weights(loop.state)
    tensors = loop.flat.arrays(weights)
    place = write_checkpoint(tmp_path, 3, tensors=tensors, parts={}, state={"policy": blueprint.policy()})
    policy = hive.load(str(place))
    batch = batch_for(blueprint, 20).observations
    with torch.no_grad():
        outputs = loop.network(batch)[0]
    distribution = blueprint.distribution
    np.testing.assert_array_equal(policy(batch.numpy()), distribution.mode(outputs).numpy())
    noise = distribution.draw_noise(np.random.default_rng(1), 20)
    drawn = distribution.sample_numpy(outputs.numpy(), noise)
    np.testing.assert_array_equal(policy(batch.numpy(), noise=np.random.default_rng(1)), drawn)
    assert (drawn != distribution.mode(outputs).numpy()).any()
    assert isinstance(blueprint.environment.action, Discrete) == (id == CARTPOLE)


def test_an_agent_needs_a_network_with_critics() -> None:
    algorithm = loop_of("sac").algorithm
    with pytest.raises(TopologyError, match="sac needs a network with critics, not Linear"):
        algorithm.connect(torch.nn.Linear(3, 2))


def test_a_batch_keeps_its_number() -> None:
    batch = batch_for(blueprint_of("sac"))
    assert isinstance(numbered(batch, 7), Batch)
    assert numbered(batch, 7).number == 7
