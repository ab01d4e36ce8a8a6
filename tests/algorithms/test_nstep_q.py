"""n-step Q-learning against the algorithm written out in float64, and its epsilon in a collector."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from small_algorithms import (
    SHARES,
    SPECS,
    Arrays,
    Gradient,
    bind,
    computed,
    distance,
    gradient_in,
    gradient_of,
    gradients_of,
    one_environment,
    random_arrays,
    random_rollout,
    share_of,
    values_for,
    worker_for,
)
from small_trainer import allocate, collector_of, config_of, weights_of
from torch import Tensor, nn

from hive.algorithms import NStepQ
from hive.compat.autonomous import TrivialTarget
from hive.config import NStepQConfig
from hive.errors import TopologyError
from hive.experience import Rollout
from hive.networks import EpsilonGreedy, distribution_for
from hive.training import Blueprint

CONFIGS = {
    "five steps": NStepQConfig(discount=0.9, n_step=5),
    "one step": NStepQConfig(discount=0.97, n_step=1, huber_loss=False),
    "two steps": NStepQConfig(discount=0.9, n_step=2),
    "longer than any rollout": NStepQConfig(discount=0.97, n_step=50, huber_loss=False),
}


class Copied(TrivialTarget):
    """A target network with the weights that it is given, whatever it is to follow."""

    def __init__(self, weights: nn.Module) -> None:
        super().__init__()
        self.weights = weights.state_dict()

    def init(self, model: nn.Module) -> None:
        copied = copy.deepcopy(model)
        copied.get_submodule("network").load_state_dict(self.weights)
        super().init(copied)


def nstep_q(config: NStepQConfig) -> NStepQ:
    return NStepQ(config, distribution_for(SPECS["discrete"]))


def made(config: NStepQConfig, online: nn.Module, target: nn.Module, rollouts: Sequence[Rollout]) -> Gradient:
    (gradient,) = gradients_of(nstep_q(config), online, rollouts, target=Copied(target))
    return gradient


# --- the algorithm, written out


def best(network: nn.Module, observation: Any) -> float:
    return network(torch.tensor(observation, dtype=torch.float64)[None])[0].max().item()


def target_of(config: NStepQConfig, network: nn.Module, r: Rollout, t: int, b: int) -> float:
    """Up to n rewards from step t on, and the value of what follows the last of them."""
    total, factor = 0.0, 1.0
    for k in range(t, t + config.n_step):
        total += factor * float(r.rewards[k, b])
        factor *= config.discount
        if r.terminated[k, b]:
            return total
        if r.truncated[k, b]:
            return total + factor * best(network, r.final_observations[r.final_index[k, b]])
        if k + 1 == r.length or not r.valid[k + 1, b]:
            break
    return total + factor * best(network, r.observations[k + 1, b])


def reference(
    config: NStepQConfig, online: nn.Module, target: nn.Module, rollouts: Sequence[Rollout]
) -> tuple[Tensor, list[float]]:
    """The loss and its statistics."""
    losses, taken, largest, errors = [], [], [], []
    for r in rollouts:
        for t, b in np.argwhere(r.valid):
            values = online(torch.tensor(r.observations[t, b], dtype=torch.float64)[None])[0][0]
            error = target_of(config, target, r, t, b) - values[r.actions[t, b]]
            size = error.abs()
            huber = size - 0.5 if size > 1 else 0.5 * size**2
            losses.append(huber if config.huber_loss else error**2)
            taken.append(values[r.actions[t, b]].item())
            largest.append(values.max().item())
            errors.append(size.item())
    loss = torch.stack(losses).mean()
    return loss, [loss.item(), *(float(np.mean(part)) for part in (taken, largest, errors))]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("settings", CONFIGS)
def test_loss_and_gradient_are_those_of_the_reference(settings: str, share: str) -> None:
    """The bootstrap is the target network's value, the rest the online network's."""
    config, online, target, rollouts = CONFIGS[settings], values_for(3), values_for(4), share_of("discrete", share)
    exact_online, exact_target = (copy.deepcopy(network).double() for network in (online, target))
    total, statistics = reference(config, exact_online, exact_target, rollouts)
    gradient = made(config, online, target, rollouts)
    assert gradient.samples == sum(int(r.valid.sum()) for r in rollouts)
    assert gradient.loss == pytest.approx(total.item(), rel=1e-5, abs=1e-5)
    assert gradient.statistics == pytest.approx(statistics, rel=1e-5, abs=1e-5)
    assert distance(gradient.gradient, gradient_of(total, exact_online)) < 1e-5


# --- by hand


class ReadsValues(nn.Module):
    """The value of action 0 is the first number of the observation, that of the others half of it."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.Parameter(torch.tensor([1.0, 0.5, 0.5, 0.5]))

    def forward(self, observations: Tensor) -> tuple[Tensor]:
        return (observations[:, :1] * self.scales,)


def statistics_of(arrays: Arrays, **settings: Any) -> tuple[float, ...]:
    network, config = ReadsValues(), NStepQConfig(discount=0.5, **{"n_step": 2, **settings})
    return made(config, network, network, [Rollout(arrays)]).statistics


def test_targets_by_hand() -> None:
    """1 + 0.5 * 2 + 0.25 * 30 = 9.5, 2 + 0.5 * 4 + 0.25 * 40 = 14, 4 + 0.5 * 40 = 24."""
    rewards, observations = [1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0]
    _, q_mean, q_max, td_error = statistics_of(one_environment(rewards, observations))
    assert (q_mean, q_max) == (20.0, 20.0)
    assert td_error == pytest.approx((0.5 + 6 + 6) / 3)
    # After a terminated step comes nothing, after a truncated one its true last observation, worth 100.
    terminated = one_environment(rewards, observations, terminated=[0, 1, 0])
    assert statistics_of(terminated)[3] == pytest.approx((10 - 2 + 20 - 2 + 6) / 3)
    truncated = one_environment(rewards, observations, truncated=[0, 1, 0])
    assert statistics_of(truncated)[3] == pytest.approx((27 - 10 + 52 - 20 + 6) / 3)


def test_a_step_that_only_reset_counts_nowhere() -> None:
    """The reset step's reward and action are not read; the mean is over two."""
    arrays = one_environment([1.0, np.nan, 4.0], [10.0, 20.0, 30.0, 40.0], terminated=[1, 0, 0], valid=[1, 0, 1])
    assert statistics_of(arrays)[3] == pytest.approx((9 + 6) / 2)


def test_statistics_have_names() -> None:
    assert NStepQ.statistics == ("q_loss", "q_mean", "q_max", "td_error")
    assert (NStepQ.gradients_per_round, NStepQ.asks_for_moments, NStepQ.behaviour_log_probs) == (1, False, False)


def test_nothing_valid_is_no_gradient() -> None:
    reset_only = random_rollout("discrete", 1)
    reset_only.valid[:] = 0
    share = [random_rollout("discrete", 1, length=0), reset_only]
    assert gradients_of(nstep_q(NStepQConfig()), values_for(3), share) == []


def test_gradients_weighted_by_samples_are_the_gradient_of_all() -> None:
    """The mean of the workers' gradients, weighted by samples, is the gradient of all rollouts."""
    online, target = values_for(3), values_for(4)
    rollouts = [random_rollout("discrete", 20 + n, steps=n + 5, envs=n + 1, length=n + 4) for n in range(4)]
    whole = made(NStepQConfig(), online, target, rollouts)
    parts = [made(NStepQConfig(), online, target, [one]) for one in rollouts]
    mean = sum(part.gradient * (part.samples / whole.samples) for part in parts)
    assert distance(mean, whole.gradient) < 1e-6


# --- in a run


def test_in_a_gradient_worker_the_target_is_that_of_the_bound_block() -> None:
    config, online, target, arrays = NStepQConfig(), values_for(3), values_for(4), random_arrays("discrete", 1)
    worker = worker_for(nstep_q(config), online, has_target=True)
    for following in (target, online):
        bind(worker, online, following)
        expected = made(config, online, following, [Rollout(arrays)])
        np.testing.assert_allclose(
            gradient_in(worker, computed(worker, [arrays])), expected.gradient, rtol=1e-5, atol=1e-7
        )
    others = made(config, online, target, [Rollout(arrays)])
    assert distance(others.gradient, expected.gradient) > 1e-2


def run_of(**values: Any) -> Blueprint:
    """Two collectors with two environments of four actions and rollouts of 8 steps: 32 steps a round."""
    settings = {
        "run__scheme": '"nstep-q"',
        "env__options": '{actions="discrete", truncates=6}',
        "collection__workers": 2,
        "algorithm__exploration_steps": 3200,
        "algorithm__exploration_end": 0.0,
    }
    return Blueprint(config_of("small_environments:Drift", **(settings | values)))


def random_actions(blueprint: Blueprint, sequence: int) -> float:
    """The share of the valid steps of a rollout in which the best action was not taken."""
    collector, arrays = collector_of(blueprint, 1), allocate(blueprint.rollout_layout)
    collector.bind(weights_of(blueprint))
    collector.collect(arrays, sequence=sequence, version=0)
    rollout = Rollout(arrays)
    values = collector.network.online_network.module(torch.from_numpy(rollout.observations[:-1]))[0]
    differs = rollout.actions != values.argmax(-1).numpy()
    return float(differs[rollout.valid.astype(bool)].mean())


def test_epsilon_follows_from_the_number_of_the_rollout() -> None:
    """100 rounds of 400 steps: epsilon 1 at first, 0.5 in the middle, 0 from the hundredth rollout on."""
    blueprint = run_of(collection__rollout=100, algorithm__exploration_steps=40_000)
    distribution: Any = blueprint.distribution
    assert isinstance(distribution, EpsilonGreedy)
    assert (distribution.rollouts, distribution.start, distribution.end) == (100, 1.0, 0.0)
    others = 1 - 1 / distribution.n  # a random action is the best one by chance
    for sequence, epsilon in ((0, 1.0), (50, 0.5), (100, 0.0), (10_000, 0.0)):
        assert random_actions(blueprint, sequence) == pytest.approx(epsilon * others, abs=0.1)
    assert random_actions(blueprint, 100) == 0.0


@pytest.mark.parametrize(
    ("values", "rollouts"), [({}, 100), ({"collection__envs": 4}, 50), ({"collection__workers": 1}, 200)]
)
def test_exploration_steps_are_those_of_all_collectors(values: dict[str, Any], rollouts: int) -> None:
    distribution: Any = run_of(**values).distribution
    assert distribution.rollouts == rollouts


def test_only_single_choices_have_action_values() -> None:
    for kind in ("multi-discrete", "box"):
        with pytest.raises(TopologyError, match="needs a single discrete action") as caught:
            NStepQ(NStepQConfig(), distribution_for(SPECS[kind]))
        assert "ppo" in caught.value.hint
