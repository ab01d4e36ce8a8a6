"""IMPALA against the algorithm written out in float64 (equation 1 of the paper as it stands, autograd), and A2C."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from small_algorithms import (
    SHARES,
    SPECS,
    Gradient,
    Plain,
    Reads,
    distance,
    gradient_of,
    gradients_of,
    network_for,
    one_environment,
    random_rollout,
    reference_fit,
    share_of,
)
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, Normal

from hive.algorithms import A2C, IMPALA
from hive.algorithms.losses.actor_critic import VALUE_FIT
from hive.config import A2CConfig, IMPALAConfig
from hive.experience import Rollout
from hive.networks import distribution_for

KINDS = ("discrete", "box")


class Exact:
    """One environment's column of a rollout, in float64."""

    def __init__(self, kind: str, settings: IMPALAConfig, network: Plain, rollout: Rollout, b: int) -> None:
        self.settings, self.rollout, self.b = settings, rollout, b
        policy, self.values = network(torch.tensor(rollout.observations[:, b], dtype=torch.float64))
        finals = network(torch.tensor(rollout.final_observations, dtype=torch.float64))[1]
        self.final_values = finals.tolist()
        actions = torch.tensor(rollout.actions[:, b])
        policy = policy[:-1]
        if kind == "box":
            distribution: Any = Independent(Normal(policy[:, :2], policy[:, 2:].exp()), 1)
            actions = actions.double()
        else:
            distribution = Categorical(logits=policy)
        self.log_probs, self.entropies = distribution.log_prob(actions), distribution.entropy()

    def ratio(self, t: int) -> float:
        return math.exp(self.log_probs[t].item() - float(self.rollout.log_probs[t, self.b]))

    def goes_on(self, t: int) -> bool:
        r, b = self.rollout, self.b
        return not (r.terminated[t, b] or r.truncated[t, b]) and t + 1 < r.length and bool(r.valid[t + 1, b])

    def bootstrap(self, t: int) -> float:
        r, b = self.rollout, self.b
        if r.terminated[t, b]:
            return 0.0
        return self.final_values[r.final_index[t, b]] if r.truncated[t, b] else self.values[t + 1].item()

    def target(self, s: int) -> float:
        """The sum over t >= s of discount^(t - s), all c before t, and the error at t."""
        total, factor, t = self.values[s].item(), 1.0, s
        while True:
            reward = float(self.rollout.rewards[t, self.b])
            error = reward + self.settings.discount * self.bootstrap(t) - self.values[t].item()
            total += factor * min(self.settings.rho_clip, self.ratio(t)) * error
            if not self.goes_on(t):
                return total
            factor *= self.settings.discount * self.settings.gae_lambda * min(self.settings.c_clip, self.ratio(t))
            t += 1

    def advantage(self, t: int) -> float:
        following = self.target(t + 1) if self.goes_on(t) else self.bootstrap(t)
        error = float(self.rollout.rewards[t, self.b]) + self.settings.discount * following - self.values[t].item()
        return min(self.settings.rho_clip, self.ratio(t)) * error


def reference(
    kind: str, settings: IMPALAConfig, network: Plain, rollouts: Sequence[Rollout]
) -> tuple[Tensor, list[float]]:
    """The loss and its statistics."""
    log_probs, entropies, values, targets, advantages, weights = [], [], [], [], [], []
    for rollout in rollouts:
        for b in range(rollout.rewards.shape[1]):
            column = Exact(kind, settings, network, rollout, b)
            for t in np.flatnonzero(rollout.valid[:, b]).tolist():
                log_probs.append(column.log_probs[t])
                entropies.append(column.entropies[t])
                values.append(column.values[t])
                targets.append(column.target(t))
                advantages.append(column.advantage(t))
                weights.append(min(settings.rho_clip, column.ratio(t)))
    advantage, value = torch.tensor(advantages, dtype=torch.float64), torch.stack(values)
    policy_loss = -(torch.stack(log_probs) * advantage).mean()
    target = torch.tensor(targets, dtype=torch.float64)
    value_loss = ((target - value) ** 2).mean()
    entropy = torch.stack(entropies).mean()
    total = policy_loss + settings.value_loss_weight * value_loss - settings.entropy_weight * entropy
    parts = (policy_loss.item(), value_loss.item(), entropy.item(), value.mean().item())
    return total, [*parts, float(np.mean(weights)), *reference_fit(value, target)]


def made(algorithm: A2C | IMPALA, network: nn.Module, rollouts: Sequence[Rollout]) -> Gradient:
    (gradient,) = gradients_of(algorithm, network, rollouts)
    return gradient


def impala(kind: str, settings: IMPALAConfig) -> IMPALA:
    return IMPALA(settings, distribution_for(SPECS[kind]))


CONFIGS = {
    "plain": IMPALAConfig(discount=0.9),
    "lambda": IMPALAConfig(discount=0.97, gae_lambda=0.8, value_loss_weight=0.7, entropy_weight=0.3),
    "wide": IMPALAConfig(discount=0.9, rho_clip=2.0, c_clip=1.2),
}


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("settings", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_are_those_of_the_reference(kind: str, settings: str, share: str) -> None:
    network, rollouts = network_for(kind), share_of(kind, share)
    exact_network = copy.deepcopy(network).double()
    total, statistics = reference(kind, CONFIGS[settings], exact_network, rollouts)
    gradient = made(impala(kind, CONFIGS[settings]), network, rollouts)
    assert gradient.samples == sum(int(r.valid.sum()) for r in rollouts)
    assert gradient.loss == pytest.approx(total.item(), rel=1e-5, abs=1e-5)
    assert gradient.statistics == pytest.approx(statistics, rel=1e-5, abs=1e-5)
    assert distance(gradient.gradient, gradient_of(total, exact_network)) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_on_policy_it_is_a2c(kind: str) -> None:
    """The same policy, value and targets, so the same loss and gradient."""
    network = network_for(kind)
    rollouts = [random_rollout(kind, 6, drift=0.0), random_rollout(kind, 7, envs=5, drift=0.0)]
    gradient = made(impala(kind, IMPALAConfig()), network, rollouts)
    expected = made(A2C(A2CConfig(gae_lambda=1.0), distribution_for(SPECS[kind])), network, rollouts)
    assert gradient.samples == expected.samples
    assert gradient.statistics == pytest.approx(
        [*expected.statistics[:4], 1.0, *expected.statistics[4:]], rel=1e-5, abs=1e-6
    )
    assert distance(gradient.gradient, expected.gradient) < 1e-5


def test_on_policy_value_targets_are_a2cs_with_any_lambda() -> None:
    """The advantages are not: those of V-trace look one step ahead, to the next target."""
    network, rollout = network_for("discrete"), random_rollout("discrete", 6, drift=0.0)
    statistics = made(impala("discrete", IMPALAConfig(gae_lambda=0.7)), network, [rollout]).statistics
    a2c = A2C(A2CConfig(gae_lambda=0.7), distribution_for(SPECS["discrete"]))
    expected = made(a2c, network, [rollout]).statistics
    assert statistics[1:4] == pytest.approx(expected[1:4], rel=1e-5)
    assert statistics[0] != pytest.approx(expected[0], rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_weighted_by_samples_are_the_gradient_of_all(kind: str) -> None:
    """The mean of the workers' gradients, weighted by samples, is the gradient of all rollouts."""
    algorithm, network = impala(kind, IMPALAConfig()), network_for(kind)
    rollouts = [random_rollout(kind, 20 + n, steps=n + 5, envs=n + 1, length=n + 4) for n in range(4)]
    whole = made(algorithm, network, rollouts)
    parts = [made(algorithm, network, [one]) for one in rollouts]
    assert sum(part.samples for part in parts) == whole.samples
    mean = sum(part.gradient * (part.samples / whole.samples) for part in parts)
    assert distance(mean, whole.gradient) < 1e-6


def by_hand(ratios: list[float], **settings: Any) -> tuple[float, ...]:
    """The statistics of rewards 1, 2 and values 10, 20, 30 with these importance weights and discount 0.5."""
    arrays = one_environment([1.0, 2.0], [10.0, 20.0, 30.0])
    arrays["log_probs"][:, 0] = np.log(0.25 / np.array(ratios))
    return made(impala("discrete", IMPALAConfig(discount=0.5, **settings)), Reads(), [Rollout(arrays)]).statistics


def test_targets_by_hand() -> None:
    """Errors are 1 and -3. v_1 = 20 - 3 rho_1, v_0 = 10 + rho_0 + 0.5 c_0 (v_1 - 20)."""
    excess_1 = -3 * 0.5
    excess_0 = 1 + 0.5 * excess_1  # its ratio of 4 is clipped to 1
    policy_loss, value_loss, _, value_mean, rho_mean, *_ = by_hand([4.0, 0.5])
    assert (value_mean, rho_mean) == pytest.approx((15.0, 0.75))
    assert value_loss == pytest.approx((excess_0**2 + excess_1**2) / 2)
    assert policy_loss == pytest.approx(-math.log(0.25) * (1 + 0.5 * excess_1 + excess_1) / 2)


def test_each_clip_has_its_place() -> None:
    """rho weighs a step's own error, c what comes after it."""
    _, value_loss, _, _, rho_mean, *_ = by_hand([4.0, 1.0], rho_clip=2.0, c_clip=3.0)
    assert rho_mean == pytest.approx(1.5)
    assert value_loss == pytest.approx(((2 * 1 + 0.5 * 3 * -3) ** 2 + 3**2) / 2)


def test_an_enormous_ratio_is_its_clip() -> None:
    assert by_hand([1e30, 1e38]) == pytest.approx(by_hand([1.0, 1.0]))


def test_statistics_have_names() -> None:
    assert IMPALA.statistics == ("policy_loss", "value_loss", "entropy", "value_mean", "rho_mean", *VALUE_FIT)
    statistics = by_hand([1.0, 1.0])
    assert len(statistics) == len(IMPALA.statistics)
    assert statistics[2] == pytest.approx(math.log(4))
    assert (IMPALA.gradients_per_round, IMPALA.behaviour_log_probs) == (1, True)


def test_nothing_valid_is_no_gradient() -> None:
    algorithm, network = impala("discrete", IMPALAConfig()), network_for("discrete")
    reset_only = random_rollout("discrete", 1)
    reset_only.valid[:] = 0
    assert gradients_of(algorithm, network, []) == []
    assert gradients_of(algorithm, network, [random_rollout("discrete", 1, length=0), reset_only]) == []


def test_an_empty_rollout_beside_a_full_one_changes_nothing() -> None:
    algorithm, network, full = (
        impala("discrete", IMPALAConfig()),
        network_for("discrete"),
        random_rollout("discrete", 1),
    )
    beside = made(algorithm, network, [random_rollout("discrete", 2, length=0), full])
    assert distance(beside.gradient, made(algorithm, network, [full]).gradient) < 1e-6


def test_a_broken_policy_shows() -> None:
    """NaN in the outputs is not clipped away: the learner finds it in the gradient."""
    network, rollout = network_for("discrete"), random_rollout("discrete", 1)
    nn.init.constant_(network.policy.bias, math.nan)
    gradient = made(impala("discrete", IMPALAConfig()), network, [rollout])
    assert np.isnan(gradient.gradient).any()
    assert math.isnan(gradient.statistics[IMPALA.statistics.index("rho_mean")])
