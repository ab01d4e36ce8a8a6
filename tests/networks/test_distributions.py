"""Distributions against torch.distributions, and sampling from given noise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributions

from hive.envs.spaces import actions
from hive.errors import NetworkError
from hive.networks import ActionDistribution, Categorical, DiagonalGaussian, MultiCategorical, distribution_for

GENERATOR = torch.Generator()

KINDS = [
    Categorical(5),
    MultiCategorical((3, 1, 4)),
    DiagonalGaussian((3,)),
    DiagonalGaussian((2, 2)),
    DiagonalGaussian(()),
]


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR.manual_seed(sum(shape)))


def drawn_for(distribution: ActionDistribution, *batch: int) -> np.ndarray:
    rng = np.random.Generator(np.random.Philox(7))
    draw = rng.random if distribution.noise == "uniform" else rng.standard_normal
    return np.asarray(draw((*batch, *distribution.noise_shape), dtype=np.float32))


def noise_for(distribution: ActionDistribution, *batch: int) -> np.ndarray:
    return distribution.prepare_noise(drawn_for(distribution, *batch))


def references(distribution: ActionDistribution, outputs: Tensor) -> list[Any]:
    """torch's distribution of every independent part, and the parts of an action they belong to."""
    if isinstance(distribution, Categorical):
        return [distributions.Categorical(logits=outputs)]
    if isinstance(distribution, MultiCategorical):
        return [distributions.Categorical(logits=logits) for logits in outputs.split(distribution.nvec, -1)]
    mean, log_std = outputs.chunk(2, -1)
    return [distributions.Normal(mean[..., k], log_std[..., k].exp()) for k in range(mean.shape[-1])]


@pytest.mark.parametrize("distribution", [kind for kind in KINDS if isinstance(kind, DiagonalGaussian)], ids=str)
def test_no_rows_have_no_densities(distribution: ActionDistribution) -> None:
    outputs, actions = torch.zeros(0, distribution.width), torch.zeros(0, *distribution.action_shape)
    assert distribution.log_prob(outputs, actions).shape == distribution.entropy(outputs).shape == (0,)


@pytest.mark.parametrize("distribution", KINDS, ids=str)
@pytest.mark.parametrize("batch", [(), (6,), (3, 2)], ids=str)
def test_log_prob_and_entropy_are_torchs(distribution: ActionDistribution, batch: tuple[int, ...]) -> None:
    outputs = normal(*batch, distribution.width)
    actions = distribution.sample(outputs, torch.from_numpy(noise_for(distribution, *batch)))
    assert actions.shape == (*batch, *distribution.action_shape)
    assert actions.dtype == getattr(torch, distribution.action_dtype)
    parts = references(distribution, outputs)
    flat = actions.reshape(*batch, len(parts)).unbind(-1)
    expected = sum(part.log_prob(action) for part, action in zip(parts, flat, strict=True))
    torch.testing.assert_close(distribution.log_prob(outputs, actions), expected)
    torch.testing.assert_close(distribution.entropy(outputs), sum(part.entropy() for part in parts))
    modes = torch.stack([part.mode for part in parts], -1).reshape(actions.shape)
    assert torch.equal(distribution.mode(outputs), modes)


@pytest.mark.parametrize("distribution", KINDS, ids=str)
def test_numpy_and_torch_sample_alike(distribution: ActionDistribution) -> None:
    outputs, noise = normal(50, distribution.width), noise_for(distribution, 50)
    expected = distribution.sample(outputs, torch.from_numpy(noise)).numpy()
    actions = distribution.sample_numpy(outputs.numpy(), noise)
    assert (actions.dtype, actions.shape) == (distribution.action_dtype, expected.shape)
    np.testing.assert_allclose(actions, expected, rtol=1e-6, atol=1e-6)
    assert np.array_equal(actions, distribution.sample_numpy(outputs.numpy(), noise))


@pytest.mark.parametrize("distribution", KINDS, ids=str)
def test_noise_can_be_prepared_of_many_steps_at_once(distribution: ActionDistribution) -> None:
    """The result is bit-identical to that of single steps, and the noise array does not change."""
    drawn = drawn_for(distribution, 7, 5)
    before = drawn.copy()
    together = distribution.prepare_noise(drawn)
    assert (together.dtype, together.shape) == (np.float32, drawn.shape)
    assert together.tobytes() == np.stack([distribution.prepare_noise(step) for step in drawn]).tobytes()
    assert np.array_equal(drawn, before)


def test_the_noise_of_categories_is_gumbels() -> None:
    drawn = drawn_for(Categorical(4), 100)
    for distribution in (Categorical(4), MultiCategorical((1, 3))):
        expected = -np.log(-np.log(drawn.astype(np.float64)))
        np.testing.assert_allclose(distribution.prepare_noise(drawn), expected, rtol=1e-5, atol=1e-6)


def test_gumbel_max_samples_the_softmax() -> None:
    distribution = Categorical(3)
    logits = torch.tensor([0.0, 1.0, -1.0])
    actions = distribution.sample_numpy(logits.numpy(), noise_for(distribution, 200_000))
    frequencies = np.bincount(actions, minlength=3) / len(actions)
    np.testing.assert_allclose(frequencies, logits.softmax(-1).numpy(), atol=0.004)


def test_multi_categorical_parts_are_independent_choices() -> None:
    distribution = MultiCategorical((2, 3))
    outputs = torch.tensor([9.0, 0.0, 0.0, 0.0, 9.0])
    actions = distribution.sample_numpy(outputs.numpy(), noise_for(distribution, 10_000))
    assert np.mean(actions == [0, 2]) > 0.99


def test_gaussian_samples_have_the_mean_and_deviation_of_the_outputs() -> None:
    distribution = DiagonalGaussian((2,))
    outputs = np.float32([1.0, -2.0, np.log(0.5), np.log(3.0)])
    actions = distribution.sample_numpy(np.broadcast_to(outputs, (100_000, 4)), noise_for(distribution, 100_000))
    np.testing.assert_allclose(actions.mean(0), [1.0, -2.0], atol=0.03)
    np.testing.assert_allclose(actions.std(0), [0.5, 3.0], rtol=0.01)


@pytest.mark.parametrize("value", [0.0, float(np.float32(1) - np.float32(2**-24))])
def test_the_ends_of_uniform_noise_are_harmless(value: float) -> None:
    distribution = Categorical(3)
    noise = distribution.prepare_noise(np.full((1, 3), value, np.float32))
    logits = np.float32([[0.0, 2.0, 1.0]])
    assert distribution.sample_numpy(logits, noise).tolist() == [1]
    assert distribution.sample(torch.from_numpy(logits), torch.from_numpy(noise)).tolist() == [1]


@pytest.mark.parametrize("distribution", KINDS, ids=str)
def test_log_prob_and_entropy_together_are_those_alone(distribution: ActionDistribution) -> None:
    outputs = normal(6, distribution.width)
    actions = distribution.sample(outputs, torch.from_numpy(noise_for(distribution, 6)))
    log_prob, entropy = distribution.log_prob_and_entropy(outputs, actions)
    assert torch.equal(log_prob, distribution.log_prob(outputs, actions))
    assert torch.equal(entropy, distribution.entropy(outputs))


def test_gradients_flow_through_log_prob_and_entropy() -> None:
    for distribution in KINDS:
        outputs = normal(4, distribution.width).requires_grad_()
        actions = distribution.mode(outputs).detach()
        (distribution.log_prob(outputs, actions) + distribution.entropy(outputs)).sum().backward()
        assert outputs.grad is not None
        assert outputs.grad.isfinite().all()


def test_specs_of_environments_choose_the_distribution() -> None:
    assert distribution_for(actions.Discrete(4, start=1)) == Categorical(4)
    assert distribution_for(actions.MultiDiscrete((2, 3))) == MultiCategorical((2, 3))
    assert distribution_for(actions.Box((2,), (-1.0, -1.0), (1.0, 1.0))) == DiagonalGaussian((2,))
    with pytest.raises(NetworkError, match="no action distribution for"):
        distribution_for(SimpleNamespace())  # type: ignore[arg-type]
