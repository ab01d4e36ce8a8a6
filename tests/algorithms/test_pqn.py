"""PQN against the algorithm written out in float64, in minibatches, and in the gradient worker."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_algorithms import (
    SHARES,
    SPECS,
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
from torch import Tensor, nn

from hive.algorithms import PQN
from hive.config import PQNConfig
from hive.errors import TopologyError
from hive.experience import Purpose, Rollout, stream
from hive.gradients import SAMPLES
from hive.networks import EpsilonGreedy, distribution_for

CONFIGS = {
    "lambda 0.65": PQNConfig(discount=0.9, q_lambda=0.65, epochs=2, minibatches=3),
    "lambda 0": PQNConfig(discount=0.97, q_lambda=0.0, epochs=1, minibatches=2),
    "lambda 1, huber": PQNConfig(discount=0.9, q_lambda=1.0, huber_loss=True, epochs=2, minibatches=1),
}
WHOLE = PQNConfig(discount=0.5, q_lambda=0.5, epochs=1, minibatches=1)  # one gradient of all samples


def pqn(config: PQNConfig, workers: int = 1, round_steps: int = 1) -> PQN:
    return PQN(config, distribution_for(SPECS["discrete"]), workers, round_steps)


# --- the algorithm, written out


def best(network: nn.Module, observation: Any) -> float:
    return network(torch.tensor(observation, dtype=torch.float64)[None])[0].max().item()


def target_of(config: PQNConfig, network: nn.Module, r: Rollout, t: int, b: int) -> float:
    """The mean of all n-step returns that the rollout permits, weighted by (1 - lambda) lambda^(n - 1).

    The last of them has the rest of the weight: that of a terminated episode, of the true last observation of a
    truncated one, or of the end of the rollout.
    """
    rewards, factor, weight, target = 0.0, 1.0, 1.0, 0.0
    for k in range(t, r.length):
        rewards += factor * float(r.rewards[k, b])
        factor *= config.discount
        if r.terminated[k, b]:
            return target + weight * rewards
        if r.truncated[k, b]:
            return target + weight * (rewards + factor * best(network, r.final_observations[r.final_index[k, b]]))
        n_step = rewards + factor * best(network, r.observations[k + 1, b])
        if k + 1 == r.length or not r.valid[k + 1, b]:
            break
        target += weight * (1.0 - config.q_lambda) * n_step
        weight *= config.q_lambda
    return target + weight * n_step


def samples_of(
    config: PQNConfig, network: nn.Module, rollouts: Sequence[Rollout]
) -> tuple[Tensor, NDArray[np.int64], NDArray[np.float64]]:
    """Observations, actions and targets of all valid steps, in order of rollout, step, environment."""
    columns: list[list[Any]] = [[], [], []]
    for r in rollouts:
        for t, b in np.argwhere(r.valid):
            found = r.observations[t, b], r.actions[t, b], target_of(config, network, r, t, b)
            for column, value in zip(columns, found, strict=True):
                column.append(value)
    return torch.tensor(np.stack(columns[0]), dtype=torch.float64), np.array(columns[1]), np.array(columns[2])


def loss_of(config: PQNConfig, outputs: Tensor, actions: Any, targets: Any) -> tuple[Tensor, list[float]]:
    """The loss of some samples with its statistics."""
    taken = outputs[torch.arange(len(actions)), torch.from_numpy(actions)]
    errors = (taken - torch.from_numpy(targets)).abs()
    huber = torch.where(errors > 1, errors - 0.5, 0.5 * errors**2)
    loss = (huber if config.huber_loss else errors**2).mean()
    return loss, [loss.item(), taken.mean().item(), outputs.max(1).values.mean().item(), errors.mean().item()]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("settings", CONFIGS)
def test_losses_and_gradients_are_those_of_the_reference(settings: str, share: str) -> None:
    config, network, rollouts = CONFIGS[settings], values_for(3), share_of("discrete", share)
    exact = copy.deepcopy(network).double()
    observations, actions, targets = samples_of(config, exact, rollouts)
    made = gradients_of(pqn(config), network, rollouts, np.random.default_rng(7))
    assert len(made) == pqn(config).gradients_per_round == config.epochs * config.minibatches
    order = np.random.default_rng(7)
    slices = [
        rows
        for _ in range(config.epochs)
        for rows in np.array_split(order.permutation(len(actions)), config.minibatches)
    ]
    for gradient, rows in zip(made, slices, strict=True):
        total, statistics = loss_of(config, exact(observations[rows])[0], actions[rows], targets[rows])
        assert gradient.samples == len(rows)
        assert gradient.loss == pytest.approx(total.item(), rel=1e-5, abs=1e-5)
        assert gradient.statistics == pytest.approx(statistics, rel=1e-5, abs=1e-5)
        assert distance(gradient.gradient, gradient_of(total, exact)) < 1e-5


def test_targets_are_those_of_the_weights_that_the_round_began_with() -> None:
    config, network, rollouts = CONFIGS["lambda 0.65"], values_for(3), [random_rollout("discrete", 1)]
    exact = copy.deepcopy(network).double()
    observations, actions, targets = samples_of(config, exact, rollouts)
    moved: list[nn.Module] = [exact]

    def after(made: int) -> None:
        with torch.no_grad():
            for parameter in network.parameters():
                parameter += 0.1
        moved.append(copy.deepcopy(network).double())

    made = gradients_of(pqn(config), network, rollouts, np.random.default_rng(7), after=after)
    rows = np.array_split(np.random.default_rng(7).permutation(len(actions)), config.minibatches)[1]
    total, _ = loss_of(config, moved[1](observations[rows])[0], actions[rows], targets[rows])
    assert made[1].loss == pytest.approx(total.item(), rel=1e-5)


# --- by hand


class ReadsValues(nn.Module):
    """The value of action 0 is the first number of the observation, that of the others half of it."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.Parameter(torch.tensor([1.0, 0.5, 0.5, 0.5]))

    def forward(self, observations: Tensor) -> tuple[Tensor]:
        return (observations[:, :1] * self.scales,)


def td_error(rewards: list[float], observations: list[float], **masks: list[int]) -> float:
    """The mean absolute error with discount and lambda of 0.5."""
    rollout = Rollout(one_environment(rewards, observations, **masks))
    (gradient,) = gradients_of(pqn(WHOLE), ReadsValues(), [rollout])
    return gradient.statistics[3]


def test_targets_by_hand() -> None:
    """R_2 = 4 + 0.5 * 40 = 24, R_1 = 2 + 0.5 (12 + 15) = 15.5, R_0 = 1 + 0.5 (7.75 + 10) = 9.875."""
    rewards, observations = [1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0]
    assert td_error(rewards, observations) == pytest.approx((0.125 + 4.5 + 6) / 3)
    # After a terminated step nothing: R_1 = 2, R_0 = 1 + 0.5 (1 + 10).
    assert td_error(rewards, observations, terminated=[0, 1, 0]) == pytest.approx((3.5 + 18 + 6) / 3)
    # After a truncated one its true last observation, worth 100: R_1 = 52, R_0 = 1 + 0.5 (26 + 10).
    assert td_error(rewards, observations, truncated=[0, 1, 0]) == pytest.approx((9 + 32 + 6) / 3)


def test_a_step_that_only_reset_counts_nowhere() -> None:
    """The reset step's reward is not read; the mean is over two."""
    error = td_error([1.0, np.nan, 4.0], [10.0, 20.0, 30.0, 40.0], terminated=[1, 0, 0], valid=[1, 0, 1])
    assert error == pytest.approx((9 + 6) / 2)


# --- rounds


def test_every_valid_sample_is_in_one_minibatch_of_an_epoch() -> None:
    rollouts = share_of("discrete", "three, unequal")
    valid = np.concatenate([r.observations[:-1][r.valid.astype(bool)] for r in rollouts])
    made = gradients_of(pqn(PQNConfig(epochs=3, minibatches=4)), values_for(3), rollouts, np.random.default_rng(1))
    for epoch in range(3):
        seen = np.concatenate([gradient.inputs.numpy() for gradient in made[4 * epoch : 4 * epoch + 4]])
        assert sorted(map(tuple, seen)) == sorted(map(tuple, valid))


def test_more_minibatches_than_samples_give_gradients_of_no_samples() -> None:
    reset_only = random_rollout("discrete", 1)
    reset_only.valid[:] = 0
    config, empty = PQNConfig(epochs=1, minibatches=3), random_rollout("discrete", 1, length=0)
    made = gradients_of(pqn(config), values_for(3), [empty, reset_only])
    assert [gradient.samples for gradient in made] == [0, 0, 0]
    reset_only.valid[0, 0], reset_only.terminated[:], reset_only.rewards[0, 0] = 1, 1, 1.0
    made = gradients_of(pqn(config), values_for(3), [reset_only])
    assert [gradient.samples for gradient in made] == [1, 0, 0]


def test_gradients_weighted_by_samples_are_the_gradient_of_all() -> None:
    """The mean of the workers' gradients, weighted by samples, is the gradient of all rollouts."""
    network = values_for(3)

    def made(rollouts: list[Rollout]) -> Gradient:
        return gradients_of(pqn(WHOLE), network, rollouts)[0]

    rollouts = [random_rollout("discrete", 20 + n, steps=n + 5, envs=n + 1, length=n + 4) for n in range(4)]
    whole, parts = made(rollouts), [made([one]) for one in rollouts]
    mean = sum(part.gradient * (part.samples / whole.samples) for part in parts)
    assert distance(mean, whole.gradient) < 1e-6


def test_in_a_gradient_worker_the_round_is_permuted_by_its_stream() -> None:
    config, network, arrays = CONFIGS["lambda 0.65"], values_for(3), random_arrays("discrete", 1)
    worker = worker_for(pqn(config), network, source=2)
    bind(worker, network)
    expected = gradients_of(pqn(config), network, [Rollout(arrays)], stream(5, Purpose.minibatches, 2, 1))
    per_round = config.epochs * config.minibatches
    for number, gradient in enumerate(expected):
        out = computed(worker, [arrays], per_round + number)
        assert out["header"][SAMPLES] == gradient.samples
        np.testing.assert_allclose(gradient_in(worker, out), gradient.gradient, rtol=1e-4, atol=1e-6)


def test_epsilon_falls_over_the_steps_of_all_collectors() -> None:
    distribution: Any = pqn(PQNConfig(exploration_steps=6400, exploration_end=0.1), round_steps=64).distribution
    assert isinstance(distribution, EpsilonGreedy)
    assert [distribution.for_rollout(number).epsilon for number in (0, 50, 100, 200)] == pytest.approx(
        [1, 0.55, 0.1, 0.1]
    )


def test_only_single_choices_have_action_values() -> None:
    with pytest.raises(TopologyError, match="pqn learns a value for every action"):
        PQN(PQNConfig(), distribution_for(SPECS["box"]))
