"""The squashed Gaussian against torch.distributions and against counting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions

from hive.envs.spaces.actions import Box, Discrete
from hive.errors import NetworkError
from hive.networks import SquashedGaussian, squashed_distribution_for

LOW, HIGH = (-1.0, 0.0, -4.0), (1.0, 10.0, -2.0)
SQUASHED = squashed_distribution_for(Box((3,), LOW, HIGH))
GENERATOR = torch.Generator().manual_seed(3)
OUTPUTS = torch.cat([torch.randn(7, 3, generator=GENERATOR), 0.5 * torch.randn(7, 3, generator=GENERATOR)], -1)
NOISE = torch.randn(7, 3, generator=GENERATOR)


def reference() -> Any:
    normal = distributions.Normal(OUTPUTS[:, :3], OUTPUTS[:, 3:].exp())
    low, high = torch.tensor(LOW), torch.tensor(HIGH)
    bend = [
        distributions.TanhTransform(cache_size=1),
        distributions.AffineTransform((low + high) / 2, (high - low) / 2),
    ]
    return distributions.Independent(distributions.TransformedDistribution(normal, bend), 1)


def test_densities_are_torchs() -> None:
    actions = SQUASHED.sample(OUTPUTS, NOISE)
    expected = reference().log_prob(actions)
    torch.testing.assert_close(SQUASHED.log_prob(OUTPUTS, actions), expected, rtol=1e-4, atol=1e-4)
    again, exact = SQUASHED.sample_and_log_prob(OUTPUTS, NOISE)
    assert torch.equal(again, actions)
    torch.testing.assert_close(exact, expected, rtol=1e-4, atol=1e-4)


def test_samples_are_the_same_in_numpy_and_within_the_bounds() -> None:
    actions = SQUASHED.sample(OUTPUTS, NOISE)
    np.testing.assert_allclose(SQUASHED.sample_numpy(OUTPUTS.numpy(), NOISE.numpy()), actions, rtol=1e-5, atol=1e-5)
    far = SQUASHED.sample(OUTPUTS, 100 * NOISE)
    assert (far >= torch.tensor(LOW)).all()
    assert (far <= torch.tensor(HIGH)).all()


def test_the_density_integrates_to_one() -> None:
    narrow = SquashedGaussian((1,), (-3.0,), (5.0,))
    outputs = torch.tensor([0.3, -0.5])
    middles = torch.linspace(-3.0, 5.0, 20_001)[:-1] + 8.0 / 40_000
    density = narrow.log_prob(outputs.expand(20_000, 2), middles[:, None]).exp()
    assert float(density.sum()) * 8.0 / 20_000 == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("deviation", "tolerance"), [(0.01, 1e-5), (1.0, 1e-5), (2.0, 5e-4), (4.0, 0.02)])
def test_the_entropy_is_the_integral_of_the_density(deviation: float, tolerance: float) -> None:
    """Its gradients are those of the integral too, which is a sum over 20,001 values of u."""
    steps = torch.linspace(-10.0, 10.0, 20_001, dtype=torch.float64)
    weights = torch.exp(-0.5 * steps**2) / math.sqrt(2.0 * math.pi) * (steps[1] - steps[0])
    for mean in (0.0, 0.7, -3.0):
        parameters = torch.tensor([mean, math.log(deviation)], requires_grad=True)
        outputs = parameters.double()
        slopes = torch.log(torch.cosh(outputs[0] + outputs[1].exp() * steps)) * -2.0
        normal = outputs[1] + 0.5 * math.log(2.0 * math.pi * math.e)
        expected = normal + (weights * slopes).sum() + math.log(4.0)
        found = SquashedGaussian((1,), (-3.0,), (5.0,)).entropy(parameters)
        torch.testing.assert_close(found, expected.float(), atol=tolerance, rtol=0)
        gradients = [torch.autograd.grad(entropy, parameters)[0] for entropy in (found, expected)]
        torch.testing.assert_close(*gradients, atol=3 * tolerance, rtol=0)


def test_the_entropy_of_an_action_is_the_sum_over_its_elements() -> None:
    one = [SquashedGaussian((1,), (low,), (high,)) for low, high in zip(LOW, HIGH, strict=True)]
    parts = [part.entropy(OUTPUTS[:, [k, k + 3]]) for k, part in enumerate(one)]
    torch.testing.assert_close(SQUASHED.entropy(OUTPUTS), sum(parts))
    square = squashed_distribution_for(Box((2, 2), (-2.0,) * 4, (2.0,) * 4))
    assert square.entropy(torch.zeros(5, 3, 8)).shape == (5, 3)


def test_far_out_everything_stays_finite() -> None:
    outputs = torch.tensor([[40.0, -40.0, 0.0, 2.0, 2.0, 2.0]], requires_grad=True)
    actions, log_prob = SQUASHED.sample_and_log_prob(outputs, torch.ones(1, 3))
    (actions.sum() + log_prob.sum()).backward()
    assert torch.isfinite(log_prob).all()
    assert outputs.grad is not None
    assert torch.isfinite(outputs.grad).all()
    assert torch.isfinite(SQUASHED.log_prob(outputs, torch.tensor([HIGH]))).all()


def test_the_mode_is_the_squashed_mean_and_shapes_are_kept() -> None:
    squashed = squashed_distribution_for(Box((2, 2), (-2.0,) * 4, (2.0,) * 4))
    outputs = torch.zeros(5, 8)
    assert (squashed.width, squashed.noise_shape, squashed.action_shape) == (8, (2, 2), (2, 2))
    assert not squashed.mode(outputs).any()
    assert squashed.sample(outputs, torch.ones(5, 2, 2)).shape == (5, 2, 2)
    assert squashed.log_prob(outputs, torch.zeros(5, 2, 2)).shape == (5,)
    noise = np.ones((5, 2, 2), np.float32)
    assert squashed.prepare_noise(noise) is noise


def test_bounds_may_have_the_shape_of_the_action() -> None:
    class Shaped:
        shape = (2,)
        low = np.array([-1.0, -2.0])
        high = np.array([1.0, 2.0])

    assert squashed_distribution_for(Shaped()) == SquashedGaussian((2,), (-1.0, -2.0), (1.0, 2.0))  # type: ignore[arg-type]


def test_actions_without_bounds_are_refused() -> None:
    with pytest.raises(NetworkError, match="actions with finite bounds"):
        squashed_distribution_for(Box((1,), (-np.inf,), (1.0,)))
    for endless in (1e30, 3.4028234663852886e38):
        with pytest.raises(NetworkError, match="stands for infinity"):
            squashed_distribution_for(Box((1,), (-endless,), (endless,)))
    with pytest.raises(NetworkError, match="actions with finite bounds"):
        squashed_distribution_for(Box((1,), (1.0,), (1.0,)))
    with pytest.raises(NetworkError, match="needs a box action with bounds"):
        squashed_distribution_for(Discrete(2))


def test_densities_of_sampled_actions_are_exact_for_small_deviations() -> None:
    """They follow from the noise: a difference of the action and the mean would have lost its digits."""
    outputs = torch.tensor([[3.0, -8.0, 0.5, -1.0, -14.0, -19.0]], requires_grad=True)
    noise = torch.tensor([[0.3, -1.2, 0.8]])
    _, log_prob = SQUASHED.sample_and_log_prob(outputs, noise)
    (slopes,) = torch.autograd.grad(log_prob.sum(), outputs)
    exact = outputs.detach().double().requires_grad_()
    mean, log_std = exact.chunk(2, -1)
    u = mean + log_std.exp() * noise.double()
    reach = (torch.tensor(HIGH).double() - torch.tensor(LOW).double()) / 2.0
    slope = 2.0 * (math.log(2.0) - u - torch.nn.functional.softplus(-2.0 * u)) + reach.log()
    expected = (-0.5 * noise.double() ** 2 - log_std - 0.5 * math.log(2.0 * math.pi) - slope).sum(-1)
    (wanted,) = torch.autograd.grad(expected.sum(), exact)
    torch.testing.assert_close(log_prob.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(slopes.double(), wanted, rtol=1e-4, atol=1e-4)
