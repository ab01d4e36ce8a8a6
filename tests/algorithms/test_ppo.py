"""PPO against the algorithm written out in float64, in slices, over several workers, and in the gradient worker."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_algorithms import (
    KINDS,
    SHARES,
    SPECS,
    Arrays,
    Plain,
    Reads,
    bind,
    computed,
    distance,
    gradient_in,
    gradient_of,
    gradients_of,
    network_for,
    one_environment,
    random_arrays,
    random_rollout,
    reference_fit,
    share_of,
    worker_for,
)
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

from hive.algorithms import A2C, IMPALA, PPO, Algorithm, Moments
from hive.algorithms.batches.advantages import merged
from hive.algorithms.losses.actor_critic import VALUE_FIT
from hive.config import A2CConfig, IMPALAConfig, PPOConfig
from hive.experience import VERSION, Purpose, Rollout, stream
from hive.gradients import ENV_STEPS, EPISODES, POLICY, SAMPLES
from hive.networks import distribution_for
from hive.training import GWorker

# --- the algorithm, written out


def distributions(kind: str, policy: Tensor) -> list[Distribution]:
    """Independent ones, each of its part of the action."""
    if kind == "multi-discrete":
        return [Categorical(logits=policy[:, :3]), Categorical(logits=policy[:, 3:])]
    if kind == "box":
        return [Independent(Normal(policy[:, :2], policy[:, 2:].exp()), 1)]
    return [Categorical(logits=policy)]


@dataclass
class Exact:
    """The valid samples of a share in float64, in order of rollout, step, environment."""

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    targets: Tensor
    values: Tensor  # before the first update
    importance: Tensor  # weights of rollouts with lag

    def loss(self, kind: str, config: PPOConfig, network: Plain, picked: Any) -> tuple[Tensor, list[float]]:
        """Return the loss of some samples, with its statistics."""
        policy, values = network(self.observations[picked])
        actions, advantages = self.actions[picked], self.advantages[picked]
        if config.normalize_advantages and config.normalize_over == "minibatch" and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / advantages.std()
        parts = distributions(kind, policy)
        choices = actions.unbind(1) if kind == "multi-discrete" else [actions]
        log_probs = sum(part.log_prob(choice) for part, choice in zip(parts, choices, strict=True))
        ratios = (log_probs - self.log_probs[picked]).exp()
        gained = torch.stack(
            [
                a * (torch.clamp(r, max=1 + config.clip_range) if a > 0 else torch.clamp(r, min=1 - config.clip_range))
                for r, a in zip(ratios, advantages, strict=True)
            ]
        )
        gained = gained * self.importance[picked]
        if limit := config.value_clip_range:
            values = torch.maximum(torch.minimum(values, self.values[picked] + limit), self.values[picked] - limit)
        policy_loss, value_loss = -gained.mean(), ((self.targets[picked] - values) ** 2).mean()
        entropy = sum(part.entropy() for part in parts).mean()
        total = policy_loss + config.value_loss_weight * value_loss - config.entropy_weight * entropy
        kl = (ratios - 1 - ratios.log()).mean()
        clipped = np.mean([abs(ratio - 1) > config.clip_range for ratio in ratios.tolist()])
        fit = reference_fit(self.values, self.targets)  # of the whole round
        return total, [policy_loss.item(), value_loss.item(), entropy.item(), kl.item(), float(clipped), *fit]


def log_probs_of(kind: str, network: Plain, observations: Tensor, actions: Tensor) -> Tensor:
    parts = distributions(kind, network(observations)[0])
    choices = actions.unbind(1) if kind == "multi-discrete" else [actions]
    return sum(part.log_prob(choice) for part, choice in zip(parts, choices, strict=True))  # type: ignore[return-value]


def exact(config: PPOConfig, network: Plain, rollouts: Sequence[Rollout], kind: str = "discrete") -> Exact:
    """With the values of this network. Advantages are normalised over all samples if the config says "round"."""
    columns: list[list[Any]] = [[], [], [], [], [], [], []]
    for r in rollouts:
        with torch.no_grad():
            values = network(torch.tensor(r.observations, dtype=torch.float64))[1].numpy()
            finals = network(torch.tensor(r.final_observations, dtype=torch.float64))[1].numpy()
        traces, advantages, excess = np.ones(r.rewards.shape), np.zeros(r.rewards.shape), np.zeros(r.rewards.shape)
        if config.vtrace and r.lagged:
            rows = (torch.from_numpy(part).flatten(0, 1) for part in (r.observations[:-1].astype(float), r.actions))
            policy = log_probs_of(kind, network, *rows).detach().numpy().reshape(r.log_probs.shape)
            traces = np.minimum(1.0, np.exp(policy - r.log_probs))
        for t in reversed(range(r.length)):
            for b in np.flatnonzero(r.valid[t]):
                following = finals[r.final_index[t, b]] if r.truncated[t, b] else values[t + 1, b]
                delta = r.rewards[t, b] + config.discount * following * (not r.terminated[t, b]) - values[t, b]
                ended = r.terminated[t, b] or r.truncated[t, b] or t + 1 == r.length or not r.valid[t + 1, b]
                carry = 0.0 if ended else excess[t + 1, b]
                advantages[t, b] = delta + config.discount * config.gae_lambda * carry
                excess[t, b] = traces[t, b] * advantages[t, b]
        parts = r.observations[:-1], r.actions, r.log_probs, advantages, excess + values[:-1], values[:-1]
        parts = *parts, np.full(r.valid.shape, r.lagged)
        for column, part in zip(columns, parts, strict=True):
            column.append(part[r.valid.astype(bool)])
    joined = [np.concatenate(column) for column in columns]
    if config.normalize_advantages and config.normalize_over == "round":
        joined[3] = (joined[3] - joined[3].mean()) / joined[3].std(ddof=1)
    observations, actions, log_probs, advantages, targets, values, lagged = (torch.from_numpy(p) for p in joined)
    observations, log_probs, importance = observations.double(), log_probs.double(), torch.ones(len(values)).double()
    if lagged.any():
        with torch.no_grad():
            own = torch.where(lagged, log_probs_of(kind, network, observations, actions), log_probs)
        importance, log_probs = (own - log_probs).exp().clamp(max=config.importance_clip), own
    return Exact(observations, actions, log_probs, advantages, targets, values, importance)


def ppo(kind: str, config: PPOConfig, workers: int = 1) -> PPO:
    return PPO(config, distribution_for(SPECS[kind]), workers)


WHOLE = PPOConfig(epochs=1, minibatches=1, normalize_over="round")  # one gradient of all samples

CONFIGS = {
    "round normalised": PPOConfig(discount=0.9, epochs=2, minibatches=3, normalize_over="round"),
    "minibatches normalised": PPOConfig(discount=0.9, epochs=2, minibatches=3),
    "corrected by V-trace": PPOConfig(discount=0.9, epochs=2, minibatches=3, vtrace=True),
    "values clipped": PPOConfig(discount=0.9, epochs=2, minibatches=3, value_clip_range=0.1),
    "as they are": PPOConfig(
        discount=0.97,
        gae_lambda=0.8,
        value_loss_weight=0.7,
        entropy_weight=0.3,
        clip_range=0.4,
        epochs=2,
        minibatches=2,
        normalize_advantages=False,
    ),
}


# --- loss and gradient


@pytest.mark.rotates
@pytest.mark.parametrize("lagged", [False, True])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("settings", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_gradients_are_those_of_the_reference(kind: str, settings: str, share: str, lagged: bool) -> None:
    """Every slice of every epoch has clipped and unclipped samples; the rollouts have both kinds of ends.

    lagged: an older policy made the first rollout, whose importance weights are clipped in part. With the network of
    these gradients as it stays, ratios to the proximal policy are 1 in that rollout.
    """
    config, network, rollouts = (
        replace(CONFIGS[settings], importance_clip=1.2),
        network_for(kind),
        share_of(kind, share),
    )
    rollouts[0].lagged = lagged
    exact_network = copy.deepcopy(network).double()
    samples = exact(config, exact_network, rollouts, kind)
    gradients = gradients_of(ppo(kind, config), network, rollouts, np.random.default_rng(11))
    generator, order, shown = np.random.default_rng(11), [], []
    for _ in range(config.epochs):
        order += np.array_split(generator.permutation(len(samples.targets)), config.minibatches)
    for gradient, picked in zip(gradients, order, strict=True):
        total, statistics = samples.loss(kind, config, exact_network, picked)
        assert gradient.samples == len(picked) == len(gradient.inputs)
        assert gradient.loss == pytest.approx(total.item(), rel=1e-5, abs=1e-5)
        assert gradient.statistics == pytest.approx(statistics, rel=1e-4, abs=1e-5)
        assert distance(gradient.gradient, gradient_of(total, exact_network)) < 1e-5
        shown.append(statistics[4])
    assert lagged or 0 < np.mean(shown) < 1
    assert not lagged or 0 < float((samples.importance == 1.2).double().mean()) < 1


@pytest.mark.parametrize("kind", KINDS)
def test_where_nothing_is_clipped_it_is_a2c(kind: str) -> None:
    """The policy that acted is the one that learns: ratios are 1, and so is their gradient that of A2C."""
    network, rollout = network_for(kind), random_rollout(kind, 6, drift=0.0)
    (gradient,) = gradients_of(ppo(kind, replace(WHOLE, gae_lambda=0.9)), network, [rollout])
    a2c = A2C(A2CConfig(gae_lambda=0.9, normalize_advantages=True), distribution_for(SPECS[kind]))
    (expected,) = gradients_of(a2c, network, [rollout])
    assert distance(gradient.gradient, expected.gradient) < 1e-5
    _, _, _, kl, clipped, *_ = gradient.statistics
    assert (kl, clipped) == (pytest.approx(0.0, abs=1e-6), 0.0)


def by_hand(arrays: Arrays, **settings: Any) -> tuple[tuple[float, ...], NDArray[np.float64]]:
    """Statistics and gradient of the one step of everything, with discount 0.5 and no normalisation."""
    config = replace(WHOLE, discount=0.5, gae_lambda=1.0, normalize_advantages=False, entropy_weight=0.0, **settings)
    (gradient,) = gradients_of(ppo("discrete", config), Reads(), [Rollout(arrays)])
    return gradient.statistics, gradient.gradient


@pytest.mark.parametrize(
    ("ratio", "advantage", "gained", "clipped"),
    [
        (1.5, 2.0, 1.2 * 2, 1),
        (1.5, -2.0, 1.5 * -2, 1),
        (0.5, 2.0, 0.5 * 2, 1),
        (0.5, -2.0, 0.8 * -2, 1),
        (1.1, 2.0, 1.1 * 2, 0),
        (0.9, -2.0, 0.9 * -2, 0),
    ],
)
def test_the_clip_only_limits_gains(ratio: float, advantage: float, gained: float, clipped: int) -> None:
    """Beyond the clip there is no gradient in the direction of the advantage; in the other there is."""
    arrays = one_environment([advantage], [0.0, 0.0])
    arrays["log_probs"][:] = math.log(0.25 / ratio)
    statistics, gradient = by_hand(arrays)
    assert statistics[0] == pytest.approx(-gained, rel=1e-5)
    assert statistics[3:5] == pytest.approx((ratio - 1 - math.log(ratio), clipped), rel=1e-4)
    moves = gained == pytest.approx(ratio * advantage)
    assert gradient[0] == pytest.approx(-0.75 * ratio * advantage if moves else 0.0, rel=1e-5)


def test_termination_and_truncation_by_hand() -> None:
    """After a terminated step comes nothing, after a truncated one its true last observation, worth 100."""
    rewards, observations = [1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0]
    statistics, _ = by_hand(one_environment(rewards, observations))
    assert statistics[1] == pytest.approx(((8 - 10) ** 2 + (14 - 20) ** 2 + (24 - 30) ** 2) / 3)
    statistics, _ = by_hand(one_environment(rewards, observations, terminated=[0, 1, 0]))
    assert statistics[1] == pytest.approx(((2 - 10) ** 2 + (2 - 20) ** 2 + (24 - 30) ** 2) / 3)
    statistics, _ = by_hand(one_environment(rewards, observations, truncated=[0, 1, 0]))
    assert statistics[1] == pytest.approx(((27 - 10) ** 2 + (52 - 20) ** 2 + (24 - 30) ** 2) / 3)


def test_a_step_that_only_reset_counts_nowhere() -> None:
    """Its reward is not read; the mean is over two."""
    arrays = one_environment([1.0, np.nan, 4.0], [10.0, 20.0, 30.0, 40.0], terminated=[1, 0, 0], valid=[1, 0, 1])
    statistics, gradient = by_hand(arrays)
    assert statistics[1] == pytest.approx(((1 - 10) ** 2 + (24 - 30) ** 2) / 2)
    assert np.isfinite(gradient).all()


def test_weights_of_lag_are_reported() -> None:
    config, network = replace(WHOLE, importance_clip=1.2), network_for("discrete")
    rollouts = [random_rollout("discrete", 6)]
    algorithm = ppo("discrete", config)
    algorithm.expect_lag()
    assert algorithm.statistics[-3:] == ("importance_mean", "importance_max", "importance_clipped")
    (plain,) = gradients_of(algorithm, network, rollouts)
    assert plain.statistics[-3:] == (1.0, 1.0, 0.0)
    rollouts[0].lagged = True
    (gradient,) = gradients_of(algorithm, network, rollouts)
    mean, most, clipped = gradient.statistics[-3:]
    assert (most, 0 < clipped < 1, 0 < mean < 1.2) == (pytest.approx(1.2), True, True)
    (off,) = gradients_of(ppo("discrete", replace(config, importance_clip=0.0)), network, rollouts)
    np.testing.assert_array_equal(off.gradient, plain.gradient)


def test_statistics_have_names() -> None:
    assert PPO.statistics == ("policy_loss", "value_loss", "entropy", "kl", "clipped", *VALUE_FIT)
    assert PPO.behaviour_log_probs
    statistics, _ = by_hand(one_environment([1.0], [0.0, 0.0]))
    assert len(statistics) == len(PPO.statistics)
    assert statistics[2] == pytest.approx(math.log(4))


def test_a_broken_policy_shows() -> None:
    """NaN in the outputs is not clipped away: the learner finds it in the gradient."""
    network, rollout = network_for("discrete"), random_rollout("discrete", 1)
    nn.init.constant_(network.policy.bias, math.nan)
    (gradient,) = gradients_of(ppo("discrete", WHOLE), network, [rollout])
    assert np.isnan(gradient.gradient).any()


def test_a_rollout_is_only_read() -> None:
    arrays = random_arrays("discrete", 5)
    before = {name: array.copy() for name, array in arrays.items()}
    gradients_of(ppo("discrete", PPOConfig()), network_for("discrete"), [Rollout(arrays)])
    assert all(np.array_equal(arrays[name].view(np.uint8), before[name].view(np.uint8)) for name in arrays)


# --- epochs and slices


def valid_rows(rollouts: Sequence[Rollout]) -> NDArray[np.float32]:
    return np.concatenate([r.observations[:-1][r.valid.astype(bool)] for r in rollouts])


def sorted_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """In an order that does not depend on where they came from."""
    return rows[np.lexsort(rows.T)]


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (3, 1), (2, 4), (4, 7)])
def test_an_epoch_is_every_valid_sample_once(epochs: int, minibatches: int) -> None:
    rollouts = [random_rollout("box", **options) for options in SHARES["three, unequal"]]
    algorithm = ppo("box", PPOConfig(epochs=epochs, minibatches=minibatches))
    gradients = gradients_of(algorithm, network_for("box"), rollouts, np.random.default_rng(1))
    assert len(gradients) == algorithm.gradients_per_round == epochs * minibatches
    expected = valid_rows(rollouts)
    for epoch in range(epochs):
        slices = gradients[epoch * minibatches : (epoch + 1) * minibatches]
        sizes = [gradient.samples for gradient in slices]
        assert sizes == [len(gradient.inputs) for gradient in slices]
        assert max(sizes) - min(sizes) <= 1
        rows = np.concatenate([gradient.inputs.numpy() for gradient in slices])
        np.testing.assert_array_equal(sorted_rows(rows), sorted_rows(expected))


def orders(noise: np.random.Generator | None) -> list[bytes]:
    """Return the order of the samples in each of two epochs."""
    algorithm = ppo("discrete", PPOConfig(epochs=2, minibatches=2))
    gradients = gradients_of(algorithm, network_for("discrete"), [ROLLOUT], noise)
    rows = [gradient.inputs.numpy().tobytes() for gradient in gradients]
    return [rows[0] + rows[1], rows[2] + rows[3]]


ROLLOUT = random_rollout("discrete", 1)


def test_the_order_is_that_of_the_stream() -> None:
    """Every epoch has another one; the same stream has the same."""
    key = 7, Purpose.minibatches, 1, 4
    first = orders(stream(*key))
    assert orders(stream(*key)) == first
    assert first[0] != first[1]
    others = [orders(stream(7, Purpose.minibatches, *place)) for place in ((0, 4), (1, 5))]
    assert len({order for pair in (first, *others) for order in pair}) == 6


def test_without_a_stream_the_order_is_always_the_same() -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    first = orders(None)
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    assert orders(None) == first


def test_more_slices_than_samples() -> None:
    """Surplus slices are gradients of zero samples: every worker has the same number of slices."""
    algorithm = ppo("discrete", PPOConfig(epochs=2, minibatches=5))
    share = [Rollout(one_environment([1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0]))]
    assert [gradient.samples for gradient in gradients_of(algorithm, Reads(), share)] == [1, 1, 1, 0, 0] * 2


def test_a_share_without_a_valid_step_has_gradients_of_no_samples() -> None:
    reset_only = random_rollout("discrete", 1)
    reset_only.valid[:] = 0
    algorithm = ppo("discrete", PPOConfig(epochs=1, minibatches=2))
    gradients = gradients_of(algorithm, network_for("discrete"), [reset_only])
    assert [gradient.samples for gradient in gradients] == [0, 0]


def test_advantages_are_those_of_the_weights_that_the_round_began_with() -> None:
    """Updates in between change the policy and the values that the loss sees, not its targets."""
    config, rollout = PPOConfig(epochs=2, minibatches=1), random_rollout("discrete", 3)
    network, moved = network_for("discrete"), network_for("discrete", 4)
    samples = exact(config, copy.deepcopy(network).double(), [rollout])
    _, later = gradients_of(
        ppo("discrete", config), network, [rollout], after=lambda made: network.load_state_dict(moved.state_dict())
    )
    moved = moved.double()
    total, _ = samples.loss("discrete", config, moved, np.arange(later.samples))
    assert distance(later.gradient, gradient_of(total, moved)) < 1e-5
    own = exact(config, moved, [rollout]).loss("discrete", config, moved, np.arange(later.samples))[0]
    assert distance(later.gradient, gradient_of(own, moved)) > 1e-2


@pytest.mark.parametrize(
    ("workers", "over", "expected"),
    [
        *((1, "round", 12), (1, "", 12), (2, "round", 13), (2, "", 12), (5, "round", 13)),
        *((1, "minibatch", 12), (2, "minibatch", 12), (5, "minibatch", 12)),
    ],
)
def test_gradients_per_round(workers: int, over: str, expected: int) -> None:
    """There is one gradient more if workers share their moments; a minibatch needs only its own."""
    config = PPOConfig(epochs=3, minibatches=4, normalize_advantages=bool(over), normalize_over=over or "minibatch")
    algorithm = ppo("discrete", config, workers)
    assert algorithm.gradients_per_round == expected
    assert algorithm.asks_for_moments == (expected == 13)
    asked: list[Moments] = []
    gradients = gradients_of(
        algorithm, network_for("discrete"), [ROLLOUT], answer=lambda mine: (asked.append(mine), merged(asked))[1]
    )
    assert len(gradients) + len(asked) == expected


# --- minibatches by themselves


@pytest.mark.parametrize(
    ("steps", "minibatches", "sizes"),
    [(7, 3, [3, 2, 2]), (5, 2, [3, 2]), (3, 2, [2, 1]), (2, 2, [1, 1]), (1, 1, [1]), (1, 3, [1, 0, 0])],
)
def test_each_minibatch_is_normalised_by_itself(steps: int, minibatches: int, sizes: list[int]) -> None:
    """By torch's mean and deviation in float64, also a last short one; a single advantage stays as it is."""
    config = PPOConfig(epochs=2, minibatches=minibatches)
    rollout = random_rollout("discrete", 3, steps=steps, envs=1)
    rollout.valid[:], rollout.terminated[:], rollout.truncated[:], rollout.final_index[:] = 1, 0, 0, -1
    rollout.rewards[:], rollout.log_probs[:] = np.linspace(-1.0, 2.0, steps)[:, None] ** 3, -1.4
    network = network_for("discrete")
    exact_network = copy.deepcopy(network).double()
    samples = exact(config, exact_network, [rollout])
    gradients = gradients_of(ppo("discrete", config), network, [rollout], np.random.default_rng(11))
    generator, order = np.random.default_rng(11), []
    for _ in range(config.epochs):
        order += np.array_split(generator.permutation(steps), minibatches)
    assert [gradient.samples for gradient in gradients] == sizes * 2
    for gradient, picked in zip(gradients, order, strict=True):
        if len(picked):
            total, statistics = samples.loss("discrete", config, exact_network, picked)
            assert gradient.statistics == pytest.approx(statistics, rel=1e-4, abs=1e-5, nan_ok=True)
            assert distance(gradient.gradient, gradient_of(total, exact_network)) < 1e-5


def test_the_whole_round_as_one_minibatch_is_normalised_alike() -> None:
    network, rollouts = network_for("discrete"), share_of("discrete", "three, unequal")
    by_round, by_minibatch = (
        gradients_of(ppo("discrete", replace(WHOLE, normalize_over=over)), network, rollouts)[0]
        for over in ("round", "minibatch")
    )
    assert distance(by_minibatch.gradient, by_round.gradient) < 1e-5


def test_equal_advantages_of_a_minibatch_become_zero() -> None:
    """Not NaN: their deviation is 0."""
    arrays = one_environment([11.0, 21.0, 31.0], [10.0, 20.0, 30.0, 40.0])
    config = replace(WHOLE, normalize_over="minibatch", discount=0.0)
    (gradient,) = gradients_of(ppo("discrete", config), Reads(), [Rollout(arrays)])
    assert gradient.statistics[0] == 0.0
    assert np.isfinite(gradient.gradient).all()


@pytest.mark.parametrize("workers", [2, 3])
def test_minibatches_of_several_workers_need_nothing_from_each_other(workers: int) -> None:
    """A worker requests no moments and makes the gradients that it makes alone."""
    config, network = PPOConfig(epochs=2, minibatches=3), network_for("discrete")
    for share in shares_of(workers):
        several, alone = (
            gradients_of(ppo("discrete", config, count), network, share, np.random.default_rng(2))
            for count in (workers, 1)
        )
        assert len(several) == len(alone) == 6
        for one, other in zip(several, alone, strict=True):
            assert np.array_equal(one.gradient, other.gradient)


# --- clipped values


def test_a_value_outside_its_range_has_no_gradient() -> None:
    """Values that have moved further than the range since the round began learn nothing; without a range they do."""
    rollout, network, moved = random_rollout("discrete", 3), network_for("discrete"), network_for("discrete")
    with torch.no_grad():
        moved.value.bias += 0.5
    own = network.value.weight.numel() + 1  # the last parameters are those of the value
    found = {}
    for limit in (0.0, 0.6, 0.4):
        network.load_state_dict(network_for("discrete").state_dict())
        config = PPOConfig(epochs=2, minibatches=1, value_clip_range=limit)
        first, later = gradients_of(
            ppo("discrete", config), network, [rollout], after=lambda made: network.load_state_dict(moved.state_dict())
        )
        assert np.abs(first.gradient[-own:]).max() > 0.01
        found[limit] = later
    assert np.array_equal(found[0.6].gradient, found[0.0].gradient)
    assert np.abs(found[0.6].gradient[-own:]).max() > 0.01
    assert not found[0.4].gradient[-own:].any()
    assert found[0.4].gradient[:-own].any()


def test_values_are_clipped_around_those_that_the_round_began_with() -> None:
    config, rollouts = PPOConfig(epochs=2, minibatches=1, value_clip_range=0.1), share_of("discrete", "three, unequal")
    network, moved = network_for("discrete"), network_for("discrete", 4)
    samples = exact(config, copy.deepcopy(network).double(), rollouts)
    _, later = gradients_of(
        ppo("discrete", config), network, rollouts, after=lambda made: network.load_state_dict(moved.state_dict())
    )
    moved = moved.double()
    everything = np.arange(later.samples)
    total, statistics = samples.loss("discrete", config, moved, everything)
    assert later.statistics == pytest.approx(statistics, rel=1e-4, abs=1e-5)
    assert distance(later.gradient, gradient_of(total, moved)) < 1e-5
    free, _ = samples.loss("discrete", replace(config, value_clip_range=0.0), moved, everything)
    assert distance(later.gradient, gradient_of(free, moved)) > 1e-2


# --- the end of a round by its KL divergence


def divergences(rollout: Rollout, config: PPOConfig, **options: Any) -> list[float]:
    """Return the KL divergence of each minibatch, with the same weights throughout."""
    gradients = gradients_of(ppo("discrete", config), network_for("discrete"), [rollout], **options)
    return [gradient.statistics[3] for gradient in gradients]


def test_a_round_ends_before_the_first_minibatch_that_has_diverged() -> None:
    """At 1.5 times the target, exactly: the minibatch itself makes no gradient, and later ones do not either."""
    config, rollout = PPOConfig(epochs=2, minibatches=3), random_rollout("discrete", 3, steps=20)
    kl = divergences(rollout, config)
    for limit in kl:
        allowed = next(position for position, value in enumerate([*kl, math.inf]) if value > limit)
        for factor, expected in ((1.001, allowed), (0.999, kl.index(next(v for v in kl if v > 0.999 * limit)))):
            targeted = divergences(rollout, replace(config, target_kl=factor * limit / 1.5))
            assert targeted == kl[:expected]
    assert divergences(rollout, replace(config, target_kl=max(kl))) == kl


def test_the_weights_of_the_moment_are_judged() -> None:
    """The first minibatch is of the policy that acted; after the update the others have diverged."""
    network, moved = network_for("discrete"), network_for("discrete", 4)
    config, rollout = PPOConfig(epochs=2, minibatches=3, target_kl=1e-3), random_rollout("discrete", 6, drift=0.0)
    gradients = gradients_of(
        *(ppo("discrete", config), network, [rollout]),
        after=lambda made: network.load_state_dict(moved.state_dict()) if made == 2 else None,
    )
    assert len(gradients) == 2
    assert all(gradient.statistics[3] == pytest.approx(0.0, abs=1e-6) for gradient in gradients)


def test_a_divergence_that_is_allowed_changes_no_gradient() -> None:
    rollouts = share_of("discrete", "three, unequal")
    made = [
        gradients_of(
            ppo("discrete", PPOConfig(epochs=2, minibatches=3, target_kl=kl)), network_for("discrete"), rollouts
        )
        for kl in (0.0, 100.0)
    ]
    for one, other in zip(*made, strict=True):
        assert np.array_equal(one.gradient, other.gradient)


class Refusing(Plain):
    """Takes no empty batch, as convolutions with statistics of their own do not."""

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        assert len(observations)
        return super().forward(observations)


def test_an_empty_minibatch_is_not_judged() -> None:
    config = PPOConfig(epochs=1, minibatches=5, target_kl=100.0)
    share = [Rollout(one_environment([1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0]))]
    assert [g.samples for g in gradients_of(ppo("discrete", config), Refusing(4), share)] == [1, 1, 1, 0, 0]


# --- several workers


MAKERS: dict[str, Callable[[int], Algorithm]] = {
    "ppo": lambda workers: ppo("discrete", WHOLE, workers),
    "ppo as they are": lambda workers: ppo("discrete", replace(WHOLE, normalize_advantages=False), workers),
    "a2c": lambda workers: A2C(A2CConfig(), distribution_for(SPECS["discrete"]), workers),
    "a2c normalised": lambda workers: A2C(
        A2CConfig(normalize_advantages=True, gae_lambda=0.9), distribution_for(SPECS["discrete"]), workers
    ),
    "impala": lambda workers: IMPALA(IMPALAConfig(), distribution_for(SPECS["discrete"])),
}


def shares_of(workers: int) -> list[list[Rollout]]:
    """Unequal ones: worker w has w + 1 rollouts of different sizes."""
    return [
        [random_rollout("discrete", 30 + 5 * w + n, steps=4 + 3 * w + n, envs=1 + n + w) for n in range(w + 1)]
        for w in range(workers)
    ]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("name", MAKERS)
def test_several_workers_are_one(name: str, workers: int) -> None:
    """The mean of their gradients by samples is that of one worker with all rollouts."""
    network, shares, algorithm = network_for("discrete"), shares_of(workers), MAKERS[name](workers)
    asked: list[Moments] = []

    def ask(mine: Moments) -> tuple[float, float]:
        asked.append(mine)
        return merged(asked)

    for share in shares:  # request the moments of all workers first
        gradients_of(algorithm, network, share, answer=ask)
    assert len(asked) == (workers if algorithm.asks_for_moments else 0)
    together = merged(asked)
    parts = [gradients_of(algorithm, network, share, answer=lambda mine: together)[0] for share in shares]
    everything = [rollout for share in shares for rollout in share]
    (whole,) = gradients_of(MAKERS[name](1), network, everything)
    assert len({part.samples for part in parts}) == len(parts) == workers
    assert sum(part.samples for part in parts) == whole.samples
    mean = sum(part.gradient * (part.samples / whole.samples) for part in parts)
    assert distance(mean, whole.gradient) < 1e-6


@pytest.mark.parametrize("name", ["ppo", "a2c normalised"])
def test_the_moments_of_other_workers_matter(name: str) -> None:
    """So that the above says something: normalised by their own moments, two workers are not one."""
    network, shares, algorithm = network_for("discrete"), shares_of(2), MAKERS[name](2)
    parts = [gradients_of(algorithm, network, share, answer=lambda mine: merged([mine]))[0] for share in shares]
    (whole,) = gradients_of(MAKERS[name](1), network, [*shares[0], *shares[1]])
    mean = sum(part.gradient * (part.samples / whole.samples) for part in parts)
    assert distance(mean, whole.gradient) > 1e-2


@pytest.mark.parametrize("name", ["ppo", "a2c normalised"])
def test_moments_are_asked_for_first_and_their_answer_is_used(name: str) -> None:
    network, share = network_for("discrete"), shares_of(1)[0]
    asked: list[Moments] = []
    (told,) = gradients_of(MAKERS[name](2), network, share, answer=lambda mine: (asked.append(mine), (0.0, 1.0))[1])
    config = {"ppo": WHOLE, "a2c normalised": A2CConfig(gae_lambda=0.9)}[name]
    makes = {"ppo": PPO, "a2c normalised": A2C}[name]
    plain = makes(replace(config, normalize_advantages=False), distribution_for(SPECS["discrete"]))
    (expected,) = gradients_of(plain, network, share)
    assert distance(told.gradient, expected.gradient) < 1e-6
    plainly = PPOConfig(gae_lambda=config.gae_lambda, normalize_advantages=False)
    advantages = exact(plainly, copy.deepcopy(network).double(), share).advantages.numpy()
    (mine,) = asked
    assert mine.count == told.samples == len(advantages)
    assert (mine.total, mine.squares) == pytest.approx((advantages.sum(), (advantages**2).sum()), rel=1e-5)


# --- in the gradient worker


def ppo_worker(config: PPOConfig, workers: int = 1, source: int = 0) -> GWorker:
    return worker_for(ppo("discrete", config, workers), network_for("discrete"), source=source)


SHARE = [random_arrays("discrete", 1, version=9), random_arrays("discrete", 2, envs=2, version=8)]
SHARE_SAMPLES = sum(Rollout(arrays).samples for arrays in SHARE)


def test_a_round_in_the_gradient_worker() -> None:
    """Its gradients are those that the algorithm makes by itself, in the order of the worker's own stream."""
    config = PPOConfig(epochs=2, minibatches=3)
    worker, noise = ppo_worker(config, source=2), stream(5, Purpose.minibatches, 2, 4)
    share = [Rollout(arrays) for arrays in SHARE]
    expected = gradients_of(ppo("discrete", config), network_for("discrete"), share, noise)
    assert len(expected) == 6
    for position, gradient in enumerate(expected):
        out = computed(worker, SHARE, 24 + position)
        np.testing.assert_allclose(gradient_in(worker, out), gradient.gradient, rtol=1e-5, atol=1e-7)
        assert out["statistics"].tolist() == pytest.approx(gradient.statistics, rel=1e-5, abs=1e-7)
        assert out["header"][SAMPLES] == gradient.samples
        assert out["mask"].all()


def test_a_rounds_counts_are_in_its_first_gradient_only() -> None:
    worker = ppo_worker(PPOConfig(epochs=2, minibatches=2))
    outs = [computed(worker, SHARE, sequence) for sequence in range(8)]
    headers = np.array([out["header"] for out in outs])
    episodes = sum(len(Rollout(arrays).episodes()[0]) for arrays in SHARE)
    assert headers[:, VERSION].tolist() == list(range(40, 48))
    assert headers[:, ENV_STEPS].tolist() == [SHARE_SAMPLES, 0, 0, 0] * 2
    assert headers[:, POLICY].tolist() == [8, -1, -1, -1] * 2  # the oldest that acted
    assert headers[:, EPISODES].tolist() == [episodes, 0, 0, 0] * 2
    assert (headers[0::2, SAMPLES] + headers[1::2, SAMPLES]).tolist() == [SHARE_SAMPLES] * 4
    assert not any(out["moments"].any() for out in outs)


def test_with_several_workers_the_first_gradient_is_their_moments() -> None:
    config = PPOConfig(epochs=2, minibatches=2, normalize_over="round")
    worker = ppo_worker(config, workers=2)
    first, second = (computed(worker, SHARE, n, moments=(0.25, 2.0) if n else None) for n in (0, 1))
    asked: list[Moments] = []
    gradients = gradients_of(
        ppo("discrete", config, 2),
        network_for("discrete"),
        [Rollout(arrays) for arrays in SHARE],
        stream(5, Purpose.minibatches, 0, 0),
        lambda mine: (asked.append(mine), (0.25, 2.0))[1],
    )
    assert first["moments"].tolist() == pytest.approx([asked[0].count, asked[0].total, asked[0].squares])
    assert first["moments"][0] == SHARE_SAMPLES
    assert first["header"][[SAMPLES, ENV_STEPS, POLICY]].tolist() == [0, SHARE_SAMPLES, 8]
    assert not first["mask"].any()
    assert second["header"][[SAMPLES, ENV_STEPS, POLICY]].tolist() == [gradients[0].samples, 0, -1]
    assert not second["moments"].any()
    assert second["statistics"].tolist() == pytest.approx(gradients[0].statistics, rel=1e-5, abs=1e-6)
    rest = [computed(worker, SHARE, n)["header"][SAMPLES] for n in (2, 3, 4)]
    assert rest == [gradient.samples for gradient in gradients[1:]]


@pytest.mark.parametrize("begins", [1, 3, 4])
def test_a_successor_in_the_middle_of_a_round_makes_gradients_of_no_samples(begins: int) -> None:
    """The round of the killed worker is lost; the next round is unaffected."""
    config = PPOConfig(epochs=2, minibatches=2, normalize_over="round")
    successor, undisturbed = ppo_worker(config, workers=2), ppo_worker(config, workers=2)
    moments = {1: (0.0, 1.0), 6: (0.5, 2.0)}
    for sequence in range(begins, 5):
        out = computed(successor, [], sequence, moments=moments.get(sequence))
        assert out["header"].tolist() == [40 + sequence, 0, 0, 0, 0, -1, sequence, 0]
        assert not out["moments"].any()
        assert not out["mask"].any()
    for sequence in range(5, 10):
        one, other = (
            computed(worker, SHARE, sequence, moments=moments.get(sequence)) for worker in (successor, undisturbed)
        )
        assert one["header"].tolist() == other["header"].tolist()
        assert one["header"][SAMPLES] > 0 or sequence == 5
        if sequence > 5:
            assert np.array_equal(one["gradient"], other["gradient"])


def test_a_share_without_samples_is_a_round_of_gradients_of_no_samples() -> None:
    worker = ppo_worker(PPOConfig(epochs=1, minibatches=2, normalize_over="round"), workers=2)
    for share in ([], [random_arrays("discrete", 1, length=0)]):
        outs = [computed(worker, share, n, moments=(0.0, 1.0) if n == 1 else None) for n in range(3)]
        assert [out["header"][[SAMPLES, ENV_STEPS]].tolist() for out in outs] == [[0, 0]] * 3
        assert not any(out["moments"].any() for out in outs)
    assert computed(worker, SHARE, 3)["moments"][0] == SHARE_SAMPLES


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("over", ["minibatch", "round"])
def test_what_is_left_of_a_round_that_has_diverged_are_gradients_of_no_samples(over: str, workers: int) -> None:
    """Also once the weights are those of its beginning again; the next round is whole."""
    config = PPOConfig(epochs=2, minibatches=2, target_kl=0.1, normalize_over=over)
    stopped, undisturbed = ppo_worker(config, workers), ppo_worker(replace(config, target_kl=0.0), workers)
    network, other = network_for("discrete"), network_for("discrete", 4)
    with torch.no_grad():
        other.policy.bias += torch.tensor([4.0, -4.0, 0.0, 0.0])
    asks = over == "round" and workers > 1
    count = 4 + asks
    samples, outs = [], []
    for sequence in range(2 * count):
        moments = (0.25, 2.0) if asks and sequence % count == 1 else None
        if sequence == asks + 1:
            bind(stopped, other)
        if sequence == asks + 2:
            bind(stopped, network)
        out = computed(stopped, SHARE, sequence, moments=moments)
        same = computed(undisturbed, SHARE, sequence, moments=moments)
        samples.append(int(out["header"][SAMPLES]))
        if sequence not in range(asks + 1, count):
            assert out["header"].tolist() == same["header"].tolist()
            assert out["moments"].tolist() == same["moments"].tolist()
            if samples[-1]:
                assert np.array_equal(out["gradient"], same["gradient"])
        else:
            assert out["header"][[SAMPLES, ENV_STEPS, EPISODES, POLICY]].tolist() == [0, 0, 0, -1]
            assert not out["mask"].any()
            outs.append(same)
    assert [number > 0 for number in samples[asks:count]] == [True, False, False, False]
    assert [number > 0 for number in samples[count + asks :]] == [True] * 4
    assert all(out["header"][SAMPLES] > 0 for out in outs)


@pytest.mark.parametrize("over", ["minibatch", "round"])
def test_a_share_of_one_sample(over: str) -> None:
    """Its advantage is left as it is; with several workers the others' samples normalise it."""
    share = [one_environment([4.0], [10.0, 40.0])]
    config = PPOConfig(epochs=1, minibatches=2, discount=0.5, normalize_over=over)
    alone = computed(ppo_worker(config), share)
    plain = computed(ppo_worker(replace(config, normalize_advantages=False)), share)
    assert alone["header"][SAMPLES] == 1
    np.testing.assert_allclose(alone["gradient"], plain["gradient"], rtol=1e-5)
    worker = ppo_worker(config, workers=2)
    count = worker.algo.gradients_per_round
    outs = [computed(worker, share, n, moments=(0.0, 10.0) if n == 1 and count == 3 else None) for n in range(count)]
    assert [int(out["header"][SAMPLES]) for out in outs] == [0, 1, 0][-count:]
    assert all(np.isfinite(out["gradient"]).all() for out in outs if out["header"][SAMPLES])


def test_more_slices_than_samples_in_the_gradient_worker() -> None:
    worker = ppo_worker(PPOConfig(epochs=1, minibatches=5))
    share = [one_environment([1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0])]
    outs = [computed(worker, share, sequence) for sequence in range(5)]
    assert [int(out["header"][SAMPLES]) for out in outs] == [1, 1, 1, 0, 0]
    assert all(np.isfinite(out["gradient"]).all() for out in outs[:3])


def test_each_gradient_is_made_with_the_weights_that_are_bound() -> None:
    """The first weights compute the values, the later ones only gradients."""
    config = PPOConfig(epochs=2, minibatches=1)
    worker, network, other = ppo_worker(config), network_for("discrete"), network_for("discrete", 4)
    _, later = gradients_of(
        ppo("discrete", config),
        network,
        [Rollout(arrays) for arrays in SHARE],
        stream(5, Purpose.minibatches, 0, 0),
        after=lambda made: network.load_state_dict(other.state_dict()),
    )
    computed(worker, SHARE, 0)
    bind(worker, other)
    np.testing.assert_allclose(gradient_in(worker, computed(worker, SHARE, 1)), later.gradient, rtol=1e-4, atol=1e-6)
