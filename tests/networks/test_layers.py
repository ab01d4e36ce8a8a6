"""Initialisation and the seeding of it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hive.errors import NetworkError
from hive.networks.build.layers import (
    ACTIVATIONS,
    HIDDEN_GAIN,
    activation_layer,
    dense_layers,
    orthogonal,
    placeholder_weights,
    seeded,
)


def test_weights_are_orthogonal_with_their_gain_and_biases_zero() -> None:
    layer = orthogonal(nn.Linear(8, 3), 0.5)
    torch.testing.assert_close(layer.weight @ layer.weight.T, 0.25 * torch.eye(3), atol=1e-6, rtol=0)
    assert not layer.bias.any()
    kernel = orthogonal(nn.Conv2d(3, 4, 2, bias=False)).weight.flatten(1)
    torch.testing.assert_close(kernel @ kernel.T, HIDDEN_GAIN**2 * torch.eye(4), atol=1e-5, rtol=0)


def test_dense_layers_alternate_with_activations() -> None:
    layers, width = dense_layers(3, (5, 2), "relu")
    assert [type(layer) for layer in layers] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU]
    assert width == 2
    assert dense_layers(3, (), "relu") == ([], 3)


def test_a_layer_norm_stands_before_each_activation() -> None:
    layers, width = dense_layers(3, (5, 2), "relu", layer_norm=True)
    assert [type(layer) for layer in layers] == [nn.Linear, nn.LayerNorm, nn.ReLU] * 2
    assert width == 2
    outputs = layers[1](layers[0](torch.randn(4, 3)))
    torch.testing.assert_close(outputs.mean(1), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(outputs.std(1, correction=0), torch.ones(4), atol=1e-2, rtol=0)


def test_every_activation_name_makes_a_module() -> None:
    for name in ACTIVATIONS:
        assert activation_layer(name)(torch.zeros(2)).shape == (2,)
    with pytest.raises(NetworkError, match="unknown activation `rleu`") as error:
        activation_layer("rleu")
    assert "relu" in error.value.hint


def test_seeded_draws_from_the_given_generator_and_leaves_the_global_one_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(1)
    with seeded(generator):
        one = torch.rand(2)
    assert torch.equal(torch.rand(2), expected)
    with seeded(generator):
        two = torch.rand(2)
    with seeded(torch.Generator().manual_seed(1)):
        assert torch.equal(torch.rand(2), one)
    assert not torch.equal(one, two)


def test_draws_after_placeholder_weights_are_those_after_orthogonal_ones() -> None:
    with seeded(torch.Generator().manual_seed(1)):
        original = orthogonal(nn.Linear(8, 3))
        expected = torch.rand(2)
    with seeded(torch.Generator().manual_seed(1)), placeholder_weights():
        placeholder = orthogonal(nn.Linear(8, 3))
        assert torch.equal(torch.rand(2), expected)
    assert not torch.equal(placeholder.weight, original.weight)
