"""A2C against the algorithm written out in float64: python loops, torch.distributions, autograd."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_algorithms import (
    KINDS,
    SHARES,
    SIZE,
    SPECS,
    Arrays,
    Gradient,
    Plain,
    Reads,
    distance,
    gradient_of,
    gradients_of,
    network_for,
    one_environment,
    random_arrays,
    random_rollout,
    reference_fit,
    share_of,
)
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, Normal

from hive.algorithms import A2C
from hive.algorithms.losses.actor_critic import VALUE_FIT
from hive.config import A2CConfig
from hive.experience import FINALS, LENGTH, Rollout, rollout_layout
from hive.networks import distribution_for


def reference_values(network: Plain, rollout: Rollout, t: int, b: int) -> tuple[Tensor, Tensor, bool]:
    """The value at (t, b), the value after it, and whether the episode continues within the rollout."""

    def value(observation: NDArray[np.float32]) -> Tensor:
        return network(torch.tensor(observation, dtype=torch.float64)[None])[1][0]

    now = value(rollout.observations[t, b])
    if rollout.terminated[t, b]:
        return now, torch.zeros((), dtype=torch.float64), False
    if rollout.truncated[t, b]:
        return now, value(rollout.final_observations[rollout.final_index[t, b]]), False
    goes_on = t + 1 < rollout.length and bool(rollout.valid[t + 1, b])
    return now, value(rollout.observations[t + 1, b]), goes_on


def reference_log_prob_and_entropy(kind: str, outputs: Tensor, action: NDArray[Any]) -> tuple[Tensor, Tensor]:
    chosen = torch.tensor(action)
    if kind == "box":
        normal = Independent(Normal(outputs[:2], outputs[2:].exp()), 1)
        return normal.log_prob(chosen.double()), normal.entropy()
    if kind == "multi-discrete":
        parts = [Categorical(logits=outputs[:3]), Categorical(logits=outputs[3:])]
        log_probs = [part.log_prob(choice) for part, choice in zip(parts, chosen, strict=True)]
        return torch.stack(log_probs).sum(), torch.stack([part.entropy() for part in parts]).sum()
    choice = Categorical(logits=outputs)
    return choice.log_prob(chosen), choice.entropy()


def reference(kind: str, config: A2CConfig, network: Plain, rollouts: Sequence[Rollout]) -> tuple[Tensor, list[float]]:
    """The loss and its statistics."""
    log_probs, entropies, values, advantages = [], [], [], []
    for rollout in rollouts:
        for b in range(rollout.rewards.shape[1]):
            carry = 0.0
            for t in reversed(range(rollout.length)):
                if not rollout.valid[t, b]:
                    continue
                now, following, goes_on = reference_values(network, rollout, t, b)
                delta = float(rollout.rewards[t, b]) + config.discount * following.item() - now.item()
                carry = delta + (config.discount * config.gae_lambda * carry if goes_on else 0.0)
                policy = network(torch.tensor(rollout.observations[t, b], dtype=torch.float64)[None])[0][0]
                log_prob, entropy = reference_log_prob_and_entropy(kind, policy, rollout.actions[t, b])
                for column, item in zip(
                    (log_probs, entropies, values, advantages), (log_prob, entropy, now, carry), strict=True
                ):
                    column.append(item)
    advantage = torch.tensor(advantages, dtype=torch.float64)
    value = torch.stack(values)
    targets = advantage + value.detach()
    if config.normalize_advantages:
        advantage = (advantage - advantage.mean()) / advantage.std()
    policy_loss = -(torch.stack(log_probs) * advantage).mean()
    value_loss, entropy = ((targets - value) ** 2).mean(), torch.stack(entropies).mean()
    total = policy_loss + config.value_loss_weight * value_loss - config.entropy_weight * entropy
    parts = [part.item() for part in (policy_loss, value_loss, entropy, value.mean())]
    return total, [*parts, *reference_fit(value, targets)]


def made(kind: str, config: A2CConfig, network: nn.Module, rollouts: Sequence[Rollout]) -> Gradient:
    (gradient,) = gradients_of(A2C(config, distribution_for(SPECS[kind])), network, rollouts)
    return gradient


def concatenated(kind: str, one: Arrays, other: Arrays) -> Arrays:
    """Two rollouts of equal steps as one of all their environments."""
    first, second = Rollout(one), Rollout(other)
    spec, envs = SPECS[kind], first.rewards.shape[1] + second.rewards.shape[1]
    finals = len(first.final_observations) + len(second.final_observations)
    layout = rollout_layout(first.length, envs, ((SIZE,), "float32"), (spec.shape, spec.dtype), finals)
    whole: Arrays = layout.views(np.zeros(layout.bytes, np.uint8))
    whole["header"][[LENGTH, FINALS]] = first.length, finals
    for name in layout.fields.keys() - {"header", "final_observations"}:
        whole[name][:] = np.concatenate([getattr(first, name), getattr(second, name)], axis=1)
    whole["final_observations"][:finals] = np.concatenate([first.final_observations, second.final_observations])
    moved = whole["final_index"][:, first.rewards.shape[1] :]
    moved[moved >= 0] += len(first.final_observations)
    return whole


CONFIGS = {
    "n-step": A2CConfig(discount=0.9, gae_lambda=1.0),
    "lambda": A2CConfig(discount=0.97, gae_lambda=0.8, value_loss_weight=0.7, entropy_weight=0.3),
    "normalised": A2CConfig(discount=0.9, gae_lambda=0.9, normalize_advantages=True),
}


@pytest.mark.rotates
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("settings", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_are_those_of_the_reference(kind: str, settings: str, share: str) -> None:
    config, network, rollouts = CONFIGS[settings], network_for(kind), share_of(kind, share)
    exact_network = copy.deepcopy(network).double()
    total, statistics = reference(kind, config, exact_network, rollouts)
    gradient = made(kind, config, network, rollouts)
    assert gradient.samples == sum(int(r.valid.sum()) for r in rollouts)
    assert gradient.loss == pytest.approx(total.item(), rel=1e-5, abs=1e-5)
    assert gradient.statistics == pytest.approx(statistics, rel=1e-5, abs=1e-5)
    assert distance(gradient.gradient, gradient_of(total, exact_network)) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalize", [False, True])
def test_two_rollouts_are_one_of_all_environments(kind: str, normalize: bool) -> None:
    config, network = A2CConfig(gae_lambda=0.95, normalize_advantages=normalize), network_for(kind)
    two = [random_arrays(kind, 8, envs=2), random_arrays(kind, 9, envs=5)]
    apart = made(kind, config, network, [Rollout(arrays) for arrays in two])
    together = made(kind, config, network, [Rollout(concatenated(kind, *two))])
    assert apart.samples == together.samples
    assert distance(apart.gradient, together.gradient) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_weighted_by_samples_are_the_gradient_of_all(kind: str) -> None:
    """The mean of the workers' gradients, weighted by samples, is the gradient of all rollouts."""
    config, network = A2CConfig(), network_for(kind)
    rollouts = [random_rollout(kind, 20 + n, steps=n + 5, envs=n + 1, length=n + 4) for n in range(4)]
    whole = made(kind, config, network, rollouts)
    parts = [made(kind, config, network, [one]) for one in rollouts]
    assert sum(part.samples for part in parts) == whole.samples
    mean = sum(part.gradient * (part.samples / whole.samples) for part in parts)
    assert distance(mean, whole.gradient) < 1e-6


def value_loss(arrays: Arrays, **settings: Any) -> float:
    config = A2CConfig(**{"discount": 0.5, "gae_lambda": 1.0, **settings})
    return made("discrete", config, Reads(), [Rollout(arrays)]).statistics[1]


def test_returns_by_hand() -> None:
    """Targets: 1 + 0.5 (2 + 0.5 (4 + 0.5 * 40)) = 8, 2 + 0.5 * 24 = 14, 4 + 0.5 * 40 = 24."""
    arrays = one_environment([1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0])
    assert value_loss(arrays) == pytest.approx(((8 - 10) ** 2 + (14 - 20) ** 2 + (24 - 30) ** 2) / 3)


def test_termination_and_truncation_by_hand() -> None:
    """After a terminated step comes nothing, after a truncated one its true last observation, worth 100."""
    rewards, observations = [1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0]
    terminated = one_environment(rewards, observations, terminated=[0, 1, 0])
    assert value_loss(terminated) == pytest.approx(((2 - 10) ** 2 + (2 - 20) ** 2 + (24 - 30) ** 2) / 3)
    truncated = one_environment(rewards, observations, truncated=[0, 1, 0])
    assert value_loss(truncated) == pytest.approx(((27 - 10) ** 2 + (52 - 20) ** 2 + (24 - 30) ** 2) / 3)


def test_a_step_that_only_reset_counts_nowhere() -> None:
    """The reset step's reward and action are not read; the mean is over two."""
    arrays = one_environment([1.0, np.nan, 4.0], [10.0, 20.0, 30.0, 40.0], terminated=[1, 0, 0], valid=[1, 0, 1])
    assert value_loss(arrays) == pytest.approx(((1 - 10) ** 2 + (24 - 30) ** 2) / 2)


def test_lambda_zero_looks_one_step_ahead() -> None:
    arrays = one_environment([1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0])
    assert value_loss(arrays, gae_lambda=0.0) == pytest.approx((1 + 3**2 + 6**2) / 3)


def test_statistics_have_names() -> None:
    assert A2C.statistics == ("policy_loss", "value_loss", "entropy", "value_mean", *VALUE_FIT)
    gradient = made("discrete", A2CConfig(), network_for("discrete"), [random_rollout("discrete", 1)])
    policy_loss, value_loss, entropy, *_ = gradient.statistics
    assert gradient.loss == pytest.approx(policy_loss + 0.5 * value_loss, rel=1e-5)  # the default weights
    assert 0 < entropy < np.log(4)


def test_nothing_valid_is_no_gradient() -> None:
    algorithm = A2C(A2CConfig(), distribution_for(SPECS["discrete"]))
    reset_only = random_rollout("discrete", 1)
    reset_only.valid[:] = 0
    share = [random_rollout("discrete", 1, length=0), reset_only]
    assert gradients_of(algorithm, network_for("discrete"), share) == []


def test_an_empty_rollout_beside_a_full_one_changes_nothing() -> None:
    config, network = A2CConfig(), network_for("discrete")
    full, empty = random_rollout("discrete", 1), random_rollout("discrete", 2, length=0)
    alone = made("discrete", config, network, [full])
    assert distance(made("discrete", config, network, [empty, full]).gradient, alone.gradient) < 1e-6


def test_equal_advantages_are_normalised_to_nothing() -> None:
    """Not to NaN: their deviation is 0."""
    config = A2CConfig(normalize_advantages=True, discount=0.0)
    arrays = one_environment([11.0, 21.0, 31.0], [10.0, 20.0, 30.0, 40.0])
    statistics = made("discrete", config, Reads(), [Rollout(arrays)]).statistics
    assert statistics[0] == pytest.approx(0.0, abs=1e-6)
    assert statistics[1] == pytest.approx(1.0)  # value targets are not normalised


def test_normalising_is_scale_free() -> None:
    kind, config = "discrete", replace(CONFIGS["normalised"], value_loss_weight=0.0, entropy_weight=0.0)
    network, rollout = network_for(kind), random_rollout(kind, 4)
    nn.init.zeros_(network.value.weight)
    nn.init.zeros_(network.value.bias)
    once = made(kind, config, network, [rollout])
    rollout.rewards[:] *= 1000.0
    assert distance(made(kind, config, network, [rollout]).gradient, once.gradient) < 1e-5


class Brightness(nn.Module):
    """A policy and a value of pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(4))

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits.expand(len(pictures), 4), pictures.float().mean((1, 2, 3))


def test_inputs_are_the_rollout_itself_without_truncations() -> None:
    """No copy is made, and bytes stay bytes."""
    layout = rollout_layout(4, 2, ((5, 5, 1), "uint8"), ((), "int64"), 2)
    arrays = layout.views(np.zeros(layout.bytes, np.uint8))
    arrays["header"][LENGTH], arrays["valid"][:] = 3, 1
    inputs = made("discrete", A2CConfig(), Brightness(), [Rollout(arrays)]).inputs
    assert (inputs.dtype, tuple(inputs.shape)) == (torch.uint8, (8, 5, 5, 1))
    assert np.shares_memory(inputs.numpy(), arrays["observations"])


def test_a_rollout_is_only_read() -> None:
    arrays = random_arrays("discrete", 5)
    before = {name: array.copy() for name, array in arrays.items()}
    made("discrete", CONFIGS["normalised"], network_for("discrete"), [Rollout(arrays)])
    assert all(np.array_equal(arrays[name].view(np.uint8), before[name].view(np.uint8)) for name in arrays)


@pytest.mark.parametrize(("ratio", "weight"), [(1.5, 1.5), (4.0, 2.0), (0.5, 0.5)])
def test_steps_of_an_older_policy_have_importance_weights(ratio: float, weight: float) -> None:
    """The learning policy takes the action with probability 1/4, the one that acted did with 1/4 / ratio."""
    arrays = one_environment([2.0], [0.0, 0.0])
    arrays["log_probs"][:] = np.log(0.25 / ratio)
    algorithm = A2C(A2CConfig(entropy_weight=0.0, value_loss_weight=0.0), distribution_for(SPECS["discrete"]))
    algorithm.expect_lag()
    rollout = Rollout(arrays)
    (plain,) = gradients_of(algorithm, Reads(), [rollout])
    rollout.lagged = True
    (lagged,) = gradients_of(algorithm, Reads(), [rollout])
    np.testing.assert_allclose(lagged.gradient, weight * plain.gradient, rtol=1e-5)
    assert lagged.statistics[-3:] == pytest.approx((weight, weight, float(ratio > 2)))
    assert len(lagged.statistics) == len(algorithm.statistics)
    assert algorithm.behaviour_log_probs
