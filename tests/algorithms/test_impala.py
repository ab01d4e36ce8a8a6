"""IMPALA against the algorithm written out in float64 (equation 1 of the paper as it stands, autograd), and A2C."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, Normal

from hive.algorithms.a2c import A2C
from hive.algorithms.impala import IMPALA
from hive.config import A2CConfig, IMPALAConfig
from hive.envs import Box, Discrete
from hive.networks import distribution_for
from hive.storage import FINALS, LENGTH, Rollout, rollout_layout

SIZE = 3  # of an observation
SPECS: dict[str, Any] = {"discrete": Discrete(4), "box": Box((2,), (-1.0, -1.0), (1.0, 1.0))}
KINDS = tuple(SPECS)


class Plain(nn.Module):
    """Shared features, a policy and a value."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body, self.policy, self.value = nn.Linear(SIZE, 8), nn.Linear(8, width), nn.Linear(8, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        features = torch.tanh(self.body(observations))
        return self.policy(features), self.value(features).squeeze(-1)


def network_for(kind: str) -> Plain:
    torch.manual_seed(3)
    return Plain(distribution_for(SPECS[kind]).width)


def random_rollout(kind: str, seed: int, steps: int = 7, envs: int = 3, length: int | None = None) -> Rollout:
    """Episodes end both ways, some steps are not valid; what nobody may read is NaN. Another policy acted."""
    spec, generator = SPECS[kind], np.random.default_rng(seed)
    length = steps if length is None else length
    layout = rollout_layout(steps, envs, ((SIZE,), "float32"), (spec.shape, spec.dtype), steps * envs)
    arrays: dict[str, NDArray[Any]] = layout.views(np.full(layout.bytes, 0xFF, np.uint8))  # NaN, -1, true
    shape = length, envs
    valid, ends = generator.random(shape) > 0.15, generator.integers(0, 5, shape)
    cut = np.argwhere(valid & (ends == 2))
    arrays["header"][[LENGTH, FINALS]] = length, len(cut)
    arrays["valid"][:length] = valid
    arrays["terminated"][:length], arrays["truncated"][:length] = valid & (ends == 1), valid & (ends == 2)
    for number, (t, b) in enumerate(cut):
        arrays["final_index"][t, b] = number
    arrays["final_observations"][: len(cut)] = generator.normal(size=(len(cut), SIZE))
    arrays["observations"][: length + 1] = generator.normal(size=(length + 1, envs, SIZE))
    arrays["rewards"][:length] = np.where(valid, generator.normal(size=shape), np.nan)
    is_box = kind == "box"
    arrays["actions"][:length] = generator.normal(size=(*shape, 2)) if is_box else generator.integers(4, size=shape)
    arrays["log_probs"][:length] = np.where(valid, generator.normal(-3 if is_box else -1.4, 0.6, shape), np.nan)
    return Rollout(arrays)


def acting_log_probs(kind: str, network: Plain, rollout: Rollout) -> None:
    """Makes the network's own policy the one that acted."""
    with torch.no_grad():
        policy = network(torch.from_numpy(rollout.observations[:-1]))[0]
        log_probs = distribution_for(SPECS[kind]).log_prob(policy, torch.from_numpy(rollout.actions))
    rollout.log_probs[:] = log_probs.numpy()


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
    value_loss = ((torch.tensor(targets, dtype=torch.float64) - value) ** 2).mean()
    entropy = torch.stack(entropies).mean()
    total = policy_loss + settings.value_loss_weight * value_loss - settings.entropy_weight * entropy
    parts = (policy_loss.item(), value_loss.item(), entropy.item(), value.mean().item())
    return total, [*parts, float(np.mean(weights))]


def gradient_of(total: Tensor, network: nn.Module) -> NDArray[np.float64]:
    gradients = torch.autograd.grad(total, list(network.parameters()))
    return np.concatenate([gradient.numpy().astype(np.float64).ravel() for gradient in gradients])


def computed(
    algorithm: A2C | IMPALA, network: Plain, rollouts: Sequence[Rollout]
) -> tuple[NDArray[np.float64], Any, int]:
    """The gradient of the one step there is, its loss, its samples."""
    (step,) = algorithm.steps(rollouts)
    loss = step.loss(network(step.inputs))
    return gradient_of(loss.total, network), loss, step.samples


def impala(kind: str, settings: IMPALAConfig) -> IMPALA:
    return IMPALA(settings, distribution_for(SPECS[kind]))


def distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Relative to the size of the second."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


SHARES: dict[str, list[dict[str, int]]] = {
    "one": [{"seed": 1}],
    "one partial": [{"seed": 2, "length": 4}],
    "three, unequal": [{"seed": 3}, {"seed": 4, "length": 2}, {"seed": 5, "steps": 11, "envs": 2}],
}
CONFIGS = {
    "plain": IMPALAConfig(discount=0.9),
    "lambda": IMPALAConfig(discount=0.97, gae_lambda=0.8, value_loss_weight=0.7, entropy_weight=0.3),
    "wide": IMPALAConfig(discount=0.9, rho_clip=2.0, c_clip=1.2),
}


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("settings", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_are_those_of_the_reference(kind: str, settings: str, share: str) -> None:
    network, rollouts = network_for(kind), [random_rollout(kind, **options) for options in SHARES[share]]
    assert all(r.terminated.any() and r.truncated.any() and not r.valid.all() for r in rollouts if r.length > 2)
    exact_network = copy.deepcopy(network).double()
    total, statistics = reference(kind, CONFIGS[settings], exact_network, rollouts)
    gradient, loss, samples = computed(impala(kind, CONFIGS[settings]), network, rollouts)
    assert samples == sum(int(r.valid.sum()) for r in rollouts)
    assert loss.total.item() == pytest.approx(total.item(), rel=1e-5, abs=1e-5)
    assert loss.statistics == pytest.approx(statistics, rel=1e-5, abs=1e-5)
    assert distance(gradient, gradient_of(total, exact_network)) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_on_policy_it_is_a2c(kind: str) -> None:
    """The same policy, value and targets, so the same loss and gradient."""
    network = network_for(kind)
    rollouts = [random_rollout(kind, 6), random_rollout(kind, 7, envs=5)]
    for rollout in rollouts:
        acting_log_probs(kind, network, rollout)
    gradient, loss, samples = computed(impala(kind, IMPALAConfig()), network, rollouts)
    expected, expected_loss, expected_samples = computed(
        A2C(A2CConfig(), distribution_for(SPECS[kind])), network, rollouts
    )
    assert samples == expected_samples
    assert loss.statistics == pytest.approx([*expected_loss.statistics, 1.0], rel=1e-5, abs=1e-6)
    assert distance(gradient, expected) < 1e-5


def test_on_policy_value_targets_are_a2cs_with_any_lambda() -> None:
    """The advantages are not: those of V-trace look one step ahead, to the next target."""
    network, rollout = network_for("discrete"), random_rollout("discrete", 6)
    acting_log_probs("discrete", network, rollout)
    _, loss, _ = computed(impala("discrete", IMPALAConfig(gae_lambda=0.7)), network, [rollout])
    _, expected, _ = computed(A2C(A2CConfig(gae_lambda=0.7), distribution_for(SPECS["discrete"])), network, [rollout])
    assert loss.statistics[1:4] == pytest.approx(expected.statistics[1:4], rel=1e-5)
    assert loss.statistics[0] != pytest.approx(expected.statistics[0], rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_weighted_by_samples_are_the_gradient_of_all(kind: str) -> None:
    """What the learner relies on when it averages over workers."""
    algorithm, network = impala(kind, IMPALAConfig()), network_for(kind)
    rollouts = [random_rollout(kind, 20 + n, steps=n + 5, envs=n + 1, length=n + 4) for n in range(4)]
    whole, _, total = computed(algorithm, network, rollouts)
    parts = [computed(algorithm, network, [one]) for one in rollouts]
    assert sum(samples for _, _, samples in parts) == total
    mean = sum(gradient * (samples / total) for gradient, _, samples in parts)
    assert distance(mean, whole) < 1e-6


class Reads(nn.Module):
    """The value of an observation is its first number; the policy is even over four actions."""

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(observations), 4), observations[:, 0]


def by_hand(ratios: list[float], **settings: Any) -> tuple[float, ...]:
    """The statistics of rewards 1, 2 and values 10, 20, 30 with these importance weights and discount 0.5."""
    layout = rollout_layout(2, 1, ((SIZE,), "float32"), ((), "int64"), 1)
    arrays = layout.views(np.zeros(layout.bytes, np.uint8))
    arrays["header"][LENGTH], arrays["valid"][:], arrays["final_index"][:] = 2, 1, -1
    arrays["observations"][:, 0, 0], arrays["rewards"][:, 0] = [10.0, 20.0, 30.0], [1.0, 2.0]
    arrays["log_probs"][:, 0] = np.log(0.25 / np.array(ratios))
    (step,) = impala("discrete", IMPALAConfig(discount=0.5, **settings)).steps([Rollout(arrays)])
    return step.loss(Reads()(step.inputs)).statistics


def test_targets_by_hand() -> None:
    """Errors are 1 and -3. v_1 = 20 - 3 rho_1, v_0 = 10 + rho_0 + 0.5 c_0 (v_1 - 20)."""
    excess_1 = -3 * 0.5
    excess_0 = 1 + 0.5 * excess_1  # its ratio of 4 is clipped to 1
    policy_loss, value_loss, _, value_mean, rho_mean = by_hand([4.0, 0.5])
    assert (value_mean, rho_mean) == pytest.approx((15.0, 0.75))
    assert value_loss == pytest.approx((excess_0**2 + excess_1**2) / 2)
    assert policy_loss == pytest.approx(-math.log(0.25) * (1 + 0.5 * excess_1 + excess_1) / 2)


def test_each_clip_has_its_place() -> None:
    """rho weighs a step's own error, c what comes after it."""
    _, value_loss, _, _, rho_mean = by_hand([4.0, 1.0], rho_clip=2.0, c_clip=3.0)
    assert rho_mean == pytest.approx(1.5)
    assert value_loss == pytest.approx(((2 * 1 + 0.5 * 3 * -3) ** 2 + 3**2) / 2)


def test_an_enormous_ratio_is_its_clip() -> None:
    assert by_hand([1e30, 1e38]) == pytest.approx(by_hand([1.0, 1.0]))


def test_statistics_have_names() -> None:
    assert IMPALA.statistics == ("policy_loss", "value_loss", "entropy", "value_mean", "rho_mean")
    statistics = by_hand([1.0, 1.0])
    assert len(statistics) == len(IMPALA.statistics)
    assert statistics[2] == pytest.approx(math.log(4))
    assert (IMPALA.gradients_per_round, IMPALA.behaviour_log_probs) == (1, True)


def test_nothing_valid_is_no_step() -> None:
    algorithm = impala("discrete", IMPALAConfig())
    reset_only = random_rollout("discrete", 1)
    reset_only.valid[:] = 0
    assert list(algorithm.steps([])) == []
    assert list(algorithm.steps([random_rollout("discrete", 1, length=0), reset_only])) == []


def test_an_empty_rollout_beside_a_full_one_changes_nothing() -> None:
    algorithm, network, full = (
        impala("discrete", IMPALAConfig()),
        network_for("discrete"),
        random_rollout("discrete", 1),
    )
    alone, _, _ = computed(algorithm, network, [full])
    beside, _, _ = computed(algorithm, network, [random_rollout("discrete", 2, length=0), full])
    assert distance(beside, alone) < 1e-6


def test_a_broken_policy_shows() -> None:
    """NaN in the outputs is not clipped away: the learner finds it in the gradient."""
    network, rollout = network_for("discrete"), random_rollout("discrete", 1)
    nn.init.constant_(network.policy.bias, math.nan)
    gradient, loss, _ = computed(impala("discrete", IMPALAConfig()), network, [rollout])
    assert np.isnan(gradient).any()
    assert math.isnan(loss.statistics[-1])
