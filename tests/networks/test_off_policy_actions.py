"""Actions of agents with a replay memory: uniform in the first rollouts, then the policy's, with noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hive.errors import NetworkError
from hive.networks.act.bounded import SquashedGaussian
from hive.networks.act.exploration import NoisyActions, SoftActions, SoftChoices
from hive.networks.rows.packed import FORBIDDEN

BOUNDS = (2,), (-1.0, 0.0), (3.0, 0.5)
LOW, HIGH = (np.array(bound, np.float32) for bound in BOUNDS[1:])
OUTPUTS = torch.tensor([[0.3, -1.0, -0.5, 0.1]])
ROWS = 2_000


def noise_of(distribution: Any, count: int = ROWS) -> np.ndarray:
    drawn: np.ndarray = distribution.draw_noise(np.random.default_rng(5), count)
    return drawn


@pytest.mark.parametrize("distribution", [SoftActions(*BOUNDS, warmup=3), NoisyActions(*BOUNDS, warmup=3)])
def test_actions_of_the_first_rollouts_are_uniform_between_the_bounds(distribution: Any) -> None:
    noise, outputs = noise_of(distribution), OUTPUTS[:, : distribution.width].expand(ROWS, -1)
    first = distribution.for_rollout(2).sample_numpy(outputs.numpy(), noise)
    assert first.dtype == np.float32
    assert (first >= LOW).all()
    assert (first <= HIGH).all()
    for column, share in zip(first.T, (first - LOW).T / (HIGH - LOW)[:, None], strict=True):
        assert len(np.unique(column)) > ROWS // 2
        counts = np.histogram(share, 10, (0.0, 1.0))[0]
        assert ((counts - ROWS / 10) ** 2 / (ROWS / 10)).sum() < 27.9  # chi-squared, 9 degrees of freedom, 0.1 %
    np.testing.assert_array_equal(distribution.for_rollout(2).sample(outputs, torch.from_numpy(noise)), first)
    later = distribution.for_rollout(3).sample_numpy(outputs.numpy(), noise)
    np.testing.assert_array_equal(later, distribution.sample_numpy(outputs.numpy(), noise))
    assert not np.array_equal(later, first)
    torch.testing.assert_close(distribution.for_rollout(2).mode(outputs), distribution.mode(outputs))


def test_soft_actions_are_those_of_the_squashed_gaussian() -> None:
    soft, plain = SoftActions(*BOUNDS, warmup=1), SquashedGaussian(*BOUNDS)
    noise = torch.from_numpy(noise_of(soft, 9))
    outputs = OUTPUTS.expand(9, -1)
    torch.testing.assert_close(soft.sample(outputs, noise), plain.sample(outputs, noise))
    actions, log_probs = soft.scaled_sample(outputs, noise)
    torch.testing.assert_close(soft.unscaled(actions), plain.sample(outputs, noise))
    reach = torch.tensor((HIGH - LOW) / 2).log().sum()
    torch.testing.assert_close(log_probs - reach, plain.sample_and_log_prob(outputs, noise)[1])


def test_choices_of_the_first_rollouts_are_uniform_among_the_allowed_ones() -> None:
    choices = SoftChoices(4, warmup=1)
    outputs = np.tile(np.array([5.0, FORBIDDEN, -5.0, 0.0], np.float32), (ROWS, 1))
    noise = noise_of(choices)
    first = choices.for_rollout(0).sample_numpy(outputs, noise)
    counts = np.bincount(first, minlength=4)
    assert counts[1] == 0
    assert (abs(counts[[0, 2, 3]] - ROWS / 3) < 100).all()
    same = choices.for_rollout(0).sample(torch.from_numpy(outputs), torch.from_numpy(noise))
    np.testing.assert_array_equal(same, first)
    assert np.bincount(choices.for_rollout(1).sample_numpy(outputs, noise), minlength=4)[0] > 0.9 * ROWS


def test_noise_has_its_deviation_in_scaled_actions_and_ends_at_the_bounds() -> None:
    noisy = NoisyActions(*BOUNDS, deviation=0.25)
    assert noisy.width == 2
    noise = noise_of(noisy)
    outputs = torch.tensor([[0.0, 3.0]]).expand(ROWS, -1)
    actions = noisy.sample_numpy(outputs.numpy(), noise)
    torch.testing.assert_close(noisy.sample(outputs, torch.from_numpy(noise)), torch.from_numpy(actions))
    scaled = noisy.scaled(torch.from_numpy(actions)).numpy()
    assert scaled[:, 0].std() == pytest.approx(0.25, rel=0.05)
    assert scaled.max() == 1.0
    np.testing.assert_allclose(noisy.mode(outputs)[0], [1.0, 0.25 + 0.25 * np.tanh(3.0)], rtol=1e-6)
    quiet = NoisyActions(*BOUNDS, deviation=0.0)
    torch.testing.assert_close(quiet.sample(outputs, torch.from_numpy(noise)), quiet.mode(outputs))
    with pytest.raises(NetworkError, match=r"invalid deviation -0\.1"):
        NoisyActions(*BOUNDS, deviation=-0.1)


def test_densities_of_noisy_actions_are_normal() -> None:
    noisy = NoisyActions(*BOUNDS, deviation=0.25)
    outputs = torch.tensor([[0.3, -0.2]])
    reach = torch.from_numpy((HIGH - LOW) / 2)
    normal = torch.distributions.Normal(noisy.mode(outputs), 0.25 * reach)
    actions = torch.tensor([[1.2, 0.2]])
    torch.testing.assert_close(noisy.log_prob(outputs, actions), normal.log_prob(actions).sum(-1))
    torch.testing.assert_close(noisy.entropy(outputs), normal.entropy().sum(-1))
