"""Several actions at once: sums and columns of the distributions of the parts, and the policy head for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions

from hive.compat.coach.losses import head_loss
from hive.envs import Box, Composite, Discrete, MultiBinary, MultiDiscrete
from hive.errors import NetworkError
from hive.networks import (
    Categorical,
    DiagonalGaussian,
    HeadParameters,
    MultiCategorical,
    PolicyHead,
    PolicyHeadParameters,
    ProductDistribution,
    distribution_for,
)

BOX = Box((2,), (-1.0, -1.0), (1.0, 1.0))
MIXED = Composite((Composite((BOX, Discrete(3)), ("a", "b")), MultiDiscrete((2, 4)), Box((), (0.0,), (1.0,))))
WHOLE = Composite((Discrete(3), MultiBinary((2,))))
PRODUCT = distribution_for(MIXED)
GENERATOR = torch.Generator().manual_seed(5)
OUTPUTS = torch.randn(9, 15, generator=GENERATOR)


def noise(distribution: Any = PRODUCT, *shape: int) -> np.ndarray[Any, Any]:
    drawn: np.ndarray[Any, Any] = distribution.draw_noise(np.random.default_rng(2), *(shape or (9,)))
    return drawn


def test_parts_of_parts_are_side_by_side() -> None:
    parts = (DiagonalGaussian((2,)), Categorical(3), MultiCategorical((2, 4)), DiagonalGaussian(()))
    assert ProductDistribution(parts) == PRODUCT
    assert (PRODUCT.width, PRODUCT.action_shape, PRODUCT.action_dtype) == (15, (6,), "float32")
    assert PRODUCT.noise_shape == (12,)
    whole = distribution_for(WHOLE)
    assert (whole.width, whole.action_shape, whole.action_dtype) == (7, (3,), "int64")


def test_densities_and_entropies_are_sums_of_torchs() -> None:
    actions = PRODUCT.sample(OUTPUTS, torch.from_numpy(noise()))
    reference: list[tuple[Any, Any]] = [
        (distributions.Normal(OUTPUTS[:, 0], OUTPUTS[:, 2].exp()), actions[:, 0]),
        (distributions.Normal(OUTPUTS[:, 1], OUTPUTS[:, 3].exp()), actions[:, 1]),
        (distributions.Categorical(logits=OUTPUTS[:, 4:7]), actions[:, 2]),
        (distributions.Categorical(logits=OUTPUTS[:, 7:9]), actions[:, 3]),
        (distributions.Categorical(logits=OUTPUTS[:, 9:13]), actions[:, 4]),
        (distributions.Normal(OUTPUTS[:, 13], OUTPUTS[:, 14].exp()), actions[:, 5]),
    ]
    log_prob, entropy = PRODUCT.log_prob_and_entropy(OUTPUTS, actions)
    torch.testing.assert_close(log_prob, sum(part.log_prob(action) for part, action in reference))
    torch.testing.assert_close(entropy, sum(part.entropy() for part, _ in reference))
    assert torch.equal(PRODUCT.log_prob(OUTPUTS, actions), log_prob)
    assert torch.equal(PRODUCT.entropy(OUTPUTS), entropy)
    modes = torch.stack([part.mode.float() for part, _ in reference], -1)
    assert torch.equal(PRODUCT.mode(OUTPUTS), modes)


@pytest.mark.parametrize("distribution", [PRODUCT, distribution_for(WHOLE)])
def test_numpy_and_torch_sample_alike_for_any_leading_axes(distribution: ProductDistribution) -> None:
    outputs, drawn = torch.randn(3, 5, distribution.width, generator=GENERATOR), noise(distribution, 3, 5)
    actions = distribution.sample_numpy(outputs.numpy(), drawn)
    assert (actions.dtype, actions.shape) == (distribution.action_dtype, (3, 5, *distribution.action_shape))
    np.testing.assert_allclose(actions, distribution.sample(outputs, torch.from_numpy(drawn)), rtol=1e-6, atol=1e-6)
    assert distribution.log_prob(outputs, torch.from_numpy(actions)).shape == (3, 5)


def test_the_noise_of_each_part_is_of_its_kind() -> None:
    drawn = noise(PRODUCT, 20_000)
    np.testing.assert_allclose(drawn[:, [0, 1, 11]].mean(0), 0.0, atol=0.03)
    np.testing.assert_allclose(drawn[:, 2:11].mean(0), 0.5772, atol=0.03)  # the mean of Gumbel's distribution
    raw = np.random.default_rng(0).random((4, 12), np.float32)
    prepared = PRODUCT.prepare_noise(raw)
    np.testing.assert_array_equal(prepared[:, :2], raw[:, :2])
    np.testing.assert_allclose(prepared[:, 2:11], -np.log(-np.log(raw[:, 2:11])), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("deviation", ["parameter", "output"])
def test_the_head_has_the_outputs_of_all_parts(deviation: str) -> None:
    parameters = PolicyHeadParameters(action_deviation=deviation, initial_deviation=0.5)
    head = PolicyHead(parameters, MIXED)
    assert head.output_shape == (15,)
    assert head.width == (12 if deviation == "parameter" else 15)
    weight, bias = torch.empty(head.width, 20), torch.empty(head.width)
    with torch.no_grad():
        head.initialize(weight, bias, orthogonal=True)
        columns = torch.nn.functional.linear(torch.randn(4, 20, generator=GENERATOR), weight, bias)
        outputs = head(columns)
    assert outputs.shape == (4, 15)
    torch.testing.assert_close(outputs[:, [2, 3, 14]], torch.full((4, 3), np.log(0.5)))
    means = columns[:, :2]
    torch.testing.assert_close(outputs[:, :2], means)
    torch.testing.assert_close(outputs[:, 4:13], columns[:, 2:11] if deviation == "parameter" else columns[:, 4:13])
    if head.log_std is not None:
        with torch.no_grad():
            head.log_std.copy_(torch.tensor([1.0, 2.0, 3.0]))
        assert head(columns)[0, [2, 3, 14]].tolist() == [1.0, 2.0, 3.0]


def test_the_loss_refuses_unknown_actions_of_any_part() -> None:
    head = PolicyHead(HeadParameters("policy"), MIXED)
    actions = PRODUCT.mode(OUTPUTS)
    assert head_loss(head).loss(OUTPUTS, torch.ones(9), actions).shape == (9,)
    actions[3, 4] = 4
    with pytest.raises(NetworkError, match=r"there are only \[2, 4\]"):
        head_loss(head).loss(OUTPUTS, torch.ones(9), actions)


def test_deviations_need_a_gaussian_part() -> None:
    with pytest.raises(NetworkError, match="has no effect"):
        PolicyHead(PolicyHeadParameters(action_deviation="output"), WHOLE)
