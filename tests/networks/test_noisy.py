"""Noisy layers against their formula, and networks in which the noise is drawn, or not."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hive import _native
from hive.envs import Discrete, ObservationSpec
from hive.errors import NetworkError
from hive.learning import Approximation, SharedTarget
from hive.networks import DuelingQHeadParameters, HeadParameters, LSTMMiddlewareParameters, NetworkParameters, Spaces
from hive.networks.build.custom import buffers_that_training_changes
from hive.networks.build.layers import NoisyLinear, acting, with_noise
from hive.networks.build.network import build_network

SPACES = Spaces({"observation": ObservationSpec((5,), "float32")}, Discrete(3))
SEEN = torch.randn((4, 5), generator=torch.Generator().manual_seed(0))


def built(deviation: float = 0.5, **changes: Any) -> nn.Module:
    parameters = NetworkParameters(
        heads_parameters=[DuelingQHeadParameters(hidden=6)], noisy_deviation=deviation, **changes
    )
    return build_network(parameters, SPACES, torch.Generator().manual_seed(1))


def outputs(network: nn.Module, seed: int) -> Tensor:
    torch.manual_seed(seed)
    with torch.no_grad():
        return network(SEEN)[0]


def test_a_layer_is_the_formula_of_the_paper() -> None:
    """Its weights are mean + deviation * f(e_out) f(e_in), drawn once for all rows."""
    layer = NoisyLinear(nn.Linear(5, 2), 0.5)
    assert torch.equal(layer.weight_deviation, torch.full((2, 5), 0.5 / 5**0.5))
    assert torch.equal(layer.bias_deviation, torch.full((2,), 0.5 / 5**0.5))
    with torch.no_grad():
        layer.weight_deviation.copy_(torch.rand(2, 5))
        layer.bias_deviation.copy_(torch.rand(2))
    torch.manual_seed(3)
    drawn = np.empty(7, np.float32)
    _native.philox_normals(int(torch.empty((), dtype=torch.int64).random_()), 0, drawn)
    noise = torch.from_numpy(np.sign(drawn) * np.sqrt(np.abs(drawn)))
    weight = layer.mean.weight + layer.weight_deviation * torch.outer(noise[5:], noise[:5])
    bias = layer.mean.bias + layer.bias_deviation * noise[5:]
    torch.manual_seed(3)
    torch.testing.assert_close(layer(SEEN), nn.functional.linear(SEEN, weight, bias))
    layer.eval()
    torch.testing.assert_close(layer(SEEN), layer.mean(SEEN), rtol=0, atol=0)


def test_a_network_draws_for_each_pass_and_has_the_means_in_evaluation_mode() -> None:
    network, plain = built(), built(0.0)
    assert torch.equal(outputs(network, 7), outputs(network, 7))
    assert not torch.equal(outputs(network, 7), outputs(network, 8))
    network.eval()
    assert torch.equal(outputs(network, 7), outputs(plain, 8))  # the initial means are those without noise


def test_every_linear_layer_has_noise_and_nothing_but_parameters() -> None:
    network = built()
    noisy = [layer for layer in network.modules() if isinstance(layer, NoisyLinear)]
    assert len(noisy) == 5  # two of the middleware, the heads' common one, and one of each stream
    assert sum(isinstance(layer, nn.Linear) for layer in network.modules()) == 5
    assert not list(network.buffers())
    assert buffers_that_training_changes(network, SPACES) == []


def test_all_parameters_have_gradients() -> None:
    network = built()
    network(SEEN)[0].square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())


def test_acting_keeps_the_noise_alone() -> None:
    network = nn.Sequential(nn.Linear(5, 50), nn.Dropout(0.5), nn.Linear(50, 3))
    noisy = with_noise(network, 0.5)
    assert noisy is network
    modes = [(type(child), child.training) for child in acting(noisy)]
    assert modes == [(NoisyLinear, True), (nn.Dropout, False), (NoisyLinear, True)]
    assert isinstance(with_noise(nn.Linear(5, 3), 0.5), NoisyLinear)


def test_the_target_of_a_run_has_noise_of_its_own() -> None:
    class First(nn.Module):
        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, seen: Tensor) -> Any:
            return self.network(seen)[0]

    online, follows = built(), built()
    values = Approximation(First(online), None, name="q", target=SharedTarget(online, follows))
    torch.manual_seed(1)
    drawn = [values.target(SEEN), values.target(SEEN), values.no_grad(SEEN)]
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    torch.manual_seed(1)
    assert torch.equal(values.target(SEEN), drawn[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"middleware_parameters": LSTMMiddlewareParameters()},
        {"heads_parameters": [HeadParameters("q", rescale_gradient_from_head_by_factor=0.5)]},
        {"module": lambda spaces: built(0.0)},
    ],
    ids=["lstm", "rescaled", "module"],
)
def test_networks_without_such_layers_are_refused(changes: dict[str, Any]) -> None:
    parameters = NetworkParameters(**{"heads_parameters": [HeadParameters("q")], "noisy_deviation": 0.5, **changes})
    with pytest.raises(NetworkError, match=r"noisy_deviation = 0\.5 is only for networks of embedders"):
        build_network(parameters, SPACES, torch.Generator().manual_seed(1))


def test_a_copy_of_a_noisy_network_is_noisy() -> None:
    network = built()
    assert torch.equal(outputs(copy.deepcopy(network), 7), outputs(network, 7))
