"""Epsilon-greedy actions against torch's Categorical of the probabilities written out, and the schedule of epsilon."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, distributions

from hive.errors import NetworkError
from hive.networks import Categorical, EpsilonGreedy

VALUES = torch.randn((50, 3, 4), generator=torch.Generator().manual_seed(1))


def of(epsilon: float, n: int = 4) -> EpsilonGreedy:
    return EpsilonGreedy(n, epsilon, epsilon)


def written_out(values: Tensor, epsilon: float) -> distributions.Categorical:
    """Probabilities: epsilon / n for every action, and the remainder for the best one."""
    n = values.shape[-1]
    probabilities = torch.full(values.shape, epsilon / n, dtype=torch.float64)
    best = values.argmax(-1, keepdim=True)
    return distributions.Categorical(
        probs=probabilities.scatter_add(-1, best, torch.full(best.shape, 1 - epsilon).double())
    )


@pytest.mark.parametrize(
    ("rollout", "epsilon"), [(0, 0.9), (1, 0.82), (5, 0.5), (10, 0.1), (11, 0.1), (10**9, 0.1), (None, 0.1)]
)
def test_epsilon_falls_with_the_number_of_the_rollout(rollout: int | None, epsilon: float) -> None:
    schedule = EpsilonGreedy(4, 0.9, 0.1, 10)
    assert schedule.epsilon == pytest.approx(0.1)  # without a rollout, as in evaluations
    made = schedule if rollout is None else schedule.for_rollout(rollout)
    assert made.epsilon == pytest.approx(epsilon)
    assert made.for_rollout(0).epsilon == pytest.approx(0.9)  # each follows from its own number alone


def test_epsilon_may_rise_or_stay() -> None:
    assert [EpsilonGreedy(2, 0.0, 1.0, 4).for_rollout(r).epsilon for r in range(6)] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    assert {of(0.3).for_rollout(r).epsilon for r in range(3)} == {0.3}


def test_other_distributions_are_the_same_for_every_rollout() -> None:
    assert Categorical(3).for_rollout(7) == Categorical(3)


@pytest.mark.parametrize(
    "settings", [(1.1, 0.0, 1), (-0.1, 0.0, 1), (1.0, 1.5, 1), (1.0, float("nan"), 1), (1.0, 0.0, 0)]
)
def test_invalid_schedules_are_refused(settings: tuple[float, float, int]) -> None:
    with pytest.raises(NetworkError, match="invalid exploration from"):
        EpsilonGreedy(2, *settings)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0])
def test_log_prob_and_entropy_are_those_of_the_probabilities(epsilon: float) -> None:
    distribution, expected = of(epsilon), written_out(VALUES, epsilon)
    for action in range(4):
        actions = torch.full(VALUES.shape[:-1], action)
        torch.testing.assert_close(distribution.log_prob(VALUES, actions), expected.log_prob(actions).float())
    torch.testing.assert_close(distribution.entropy(VALUES), expected.entropy().float())


def test_without_exploration_only_the_best_action_is_possible() -> None:
    greedy, best = of(0.0), VALUES.argmax(-1)
    assert not greedy.entropy(VALUES).any()
    assert not greedy.log_prob(VALUES, best).any()
    assert (greedy.log_prob(VALUES, (best + 1) % 4) == -torch.inf).all()
    assert of(0.5, 1).entropy(VALUES[..., :1]).abs().max() < 1e-6


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("batch", [(), (6,), (5, 2)], ids=str)
def test_torch_and_numpy_draw_the_same_actions_from_equal_noise(epsilon: float, batch: tuple[int, ...]) -> None:
    distribution = EpsilonGreedy(4, 1.0, 1.0).for_rollout(3) if epsilon == 1.0 else of(epsilon)
    values = torch.randn((*batch, 4), generator=torch.Generator().manual_seed(2))
    noise = distribution.draw_noise(np.random.default_rng(1), *batch)
    assert noise.shape == (*batch, 2)
    drawn = distribution.sample(values, torch.from_numpy(noise))
    by_numpy = distribution.sample_numpy(values.numpy(), noise)
    assert (drawn.dtype, by_numpy.dtype) == (torch.int64, np.int64)
    assert drawn.shape == by_numpy.shape == batch
    np.testing.assert_array_equal(drawn.numpy(), by_numpy)


def test_actions_come_as_often_as_their_probabilities_say() -> None:
    values = torch.tensor([0.0, 3.0, 1.0, 2.0]).expand(40_000, 4)
    distribution = of(0.4)
    noise = distribution.draw_noise(np.random.default_rng(1), 40_000)
    found = np.bincount(distribution.sample_numpy(values.numpy(), noise), minlength=4) / 40_000
    np.testing.assert_allclose(found, [0.1, 0.7, 0.1, 0.1], atol=0.01)


def test_the_first_noise_decides_whether_and_the_second_which() -> None:
    """Also at the ends of [0, 1): the action never lies beyond the last."""
    most = np.nextafter(np.float32(1), np.float32(0))
    for n, (whether, which) in itertools.product((1, 2, 3, 5, 7, 18, 1000), ((0.0, 0.0), (0.0, most), (most, most))):
        values, noise = np.zeros(n, np.float32), np.array([whether, which], np.float32)
        values[n // 2] = 1.0
        expected = n // 2 if whether else (n - 1 if which else 0)
        assert of(0.5, n).sample_numpy(values, noise) == expected
        assert of(0.5, n).sample(torch.from_numpy(values), torch.from_numpy(noise)) == expected


def test_the_most_likely_action_is_the_best_one() -> None:
    assert torch.equal(of(1.0).mode(VALUES), VALUES.argmax(-1))


def test_shapes_are_those_of_one_choice() -> None:
    made = of(0.1, 7)
    assert (made.width, made.noise_shape, made.action_shape, made.action_dtype) == (7, (2,), (), "int64")
