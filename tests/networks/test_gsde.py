"""State-dependent exploration against torch.distributions, Stable-Baselines3 and counting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions, nn

from hive.config import NetworkConfig
from hive.envs import Box, Composite, Discrete, ObservationSpec
from hive.errors import NetworkError
from hive.networks import (
    HeadParameters,
    LSTMMiddlewareParameters,
    MiddlewareParameters,
    NetworkParameters,
    PolicyHead,
    PolicyHeadParameters,
    Spaces,
    build_network,
    distribution_for,
)
from hive.networks.act.gsde import EPSILON, StateDependentGaussian, noise_products
from hive.networks.build.configured import configured_distribution, network_parameters
from hive.networks.rows.inputs import RECURRENT_STATE

BOX = Box((2,), (-1.0, -1.0), (1.0, 1.0))
GSDE = StateDependentGaussian((2,), 3)
GENERATOR = torch.Generator().manual_seed(4)
MEANS, FEATURES = torch.randn(50, 2, generator=GENERATOR), torch.randn(50, 3, generator=GENERATOR)
LOG_STD = torch.randn(3, 2, generator=GENERATOR)
OUTPUTS = torch.cat([MEANS, noise_products(FEATURES, LOG_STD)], -1)
ACTIONS = MEANS + torch.randn(50, 2, generator=GENERATOR)


def test_densities_and_entropies_are_torchs() -> None:
    normal = distributions.Normal(MEANS, (FEATURES**2 @ LOG_STD.exp() ** 2 + EPSILON).sqrt())
    log_prob, entropy = GSDE.log_prob_and_entropy(OUTPUTS, ACTIONS)
    torch.testing.assert_close(log_prob, normal.log_prob(ACTIONS).sum(-1))
    torch.testing.assert_close(entropy, normal.entropy().sum(-1))
    assert torch.equal(GSDE.log_prob(OUTPUTS, ACTIONS), log_prob)
    assert torch.equal(GSDE.entropy(OUTPUTS), entropy)
    assert torch.equal(GSDE.mode(OUTPUTS), MEANS)


def test_features_of_zero_leave_a_deviation_of_a_thousandth() -> None:
    normal = distributions.Normal(torch.zeros(2), torch.full((2,), 1e-3))
    outputs, actions = torch.zeros(8), torch.full((2,), 2e-3)
    torch.testing.assert_close(GSDE.entropy(outputs), normal.entropy().sum())
    torch.testing.assert_close(GSDE.log_prob(outputs, actions), normal.log_prob(actions).sum())


def test_a_config_chooses_the_features_and_the_steps() -> None:
    config = NetworkConfig(middleware=(8, 5), action_distribution="gsde", noise_steps=4)
    assert configured_distribution(config, BOX) == StateDependentGaussian((2,), 5, 4)


def test_samples_are_the_features_times_the_noise() -> None:
    noise = GSDE.draw_noise(np.random.default_rng(0), 50)
    expected = MEANS + torch.einsum("ni,nij->nj", FEATURES, LOG_STD.exp() * torch.from_numpy(noise))
    torch.testing.assert_close(GSDE.sample(OUTPUTS, torch.from_numpy(noise)), expected)
    np.testing.assert_allclose(GSDE.sample_numpy(OUTPUTS.numpy(), noise), expected, rtol=1e-4, atol=1e-5)
    square = StateDependentGaussian((2, 2), 3)
    outputs = np.zeros((4, 5, square.width), np.float32)
    assert square.sample_numpy(outputs, square.draw_noise(np.random.default_rng(0), 4, 5)).shape == (4, 5, 2, 2)
    assert square.log_prob(torch.from_numpy(outputs), torch.zeros(4, 5, 2, 2)).shape == (4, 5)


def test_samples_have_the_deviation_of_the_density() -> None:
    outputs = OUTPUTS[:1].numpy().repeat(100_000, 0)
    actions = GSDE.sample_numpy(outputs, GSDE.draw_noise(np.random.default_rng(0), 100_000))
    expected = (FEATURES[0] ** 2 @ LOG_STD.exp() ** 2).sqrt()
    np.testing.assert_allclose(actions.std(0), expected, rtol=0.01)


@pytest.mark.parametrize(("steps", "kept"), [(0, [7]), (3, [3, 3, 1]), (7, [7]), (9, [7]), (1, [1] * 7)])
def test_a_collector_keeps_the_noise_for_some_steps(steps: int, kept: list[int]) -> None:
    made = StateDependentGaussian((2,), 3, steps)
    noise = made.draw_noise(np.random.default_rng(0), 7, 4)
    assert (noise.shape, noise.dtype) == ((7, 4, 3, 2), np.float32)
    ends = np.cumsum(kept)
    pieces = np.split(noise, ends[:-1])
    assert [len(piece) for piece in pieces] == kept
    assert all((piece == piece[0]).all() for piece in pieces)
    assert len({piece[0, env].tobytes() for piece in pieces for env in range(4)}) == 4 * len(kept)
    part = distribution_for(Composite((BOX, Discrete(2))), "gsde", features=3, noise_steps=steps)
    both = part.draw_noise(np.random.default_rng(0), 7, 4)
    assert both.shape == (7, 4, 8)
    assert np.array_equal(both[..., :6], noise.reshape(7, 4, 6))
    assert len(np.unique(both[..., 6:])) == 7 * 4 * 2, "the noise of the other part is drawn for every step"


def test_densities_entropies_and_gradients_are_those_of_stable_baselines() -> None:
    theirs: Any = pytest.importorskip("stable_baselines3.common.distributions", reason="the extra `peers`")
    peer = theirs.StateDependentNoiseDistribution(2)
    peer.proba_distribution_net(3, -2.0)
    results = []
    for ours in (True, False):
        means, features, log_std = (tensor.clone().requires_grad_() for tensor in (MEANS, FEATURES, LOG_STD))
        if ours:
            outputs = torch.cat([means, noise_products(features, log_std)], -1)
            log_prob, entropy = GSDE.log_prob_and_entropy(outputs, ACTIONS)
        else:
            peer.proba_distribution(means, log_std, features)
            log_prob, entropy = peer.log_prob(ACTIONS), peer.entropy()
        (log_prob + 0.3 * entropy).sum().backward()
        assert features.grad is None
        results.append((log_prob.detach(), entropy.detach(), means.grad, log_std.grad))
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def network_of(action: Any = BOX, *, separate: bool = True, **settings: Any) -> nn.Module:
    config = NetworkConfig(middleware=(8, 5), action_distribution="gsde", separate_networks=separate, **settings)
    spaces = Spaces({"observation": ObservationSpec((4,), "float32")}, action)
    return build_network(network_parameters(config), spaces, torch.Generator().manual_seed(1))


@pytest.mark.parametrize("separate", [True, False])
def test_the_features_are_the_outputs_of_the_last_layer(separate: bool) -> None:
    network = network_of(separate=separate, initial_deviation=0.5)
    batch = torch.randn(6, 4, generator=GENERATOR)
    with torch.no_grad():
        policy, value = network(batch)
    branch: Any = network.branches[0] if separate else network  # type: ignore[index]
    with torch.no_grad():
        features = branch.trunk[:-1](batch)
        means = branch.trunk[-1](features)[:, :2]
    assert (policy.shape, value.shape) == ((6, 2 + 5 * 2), (6,))
    torch.testing.assert_close(policy[:, :2], means)
    torch.testing.assert_close(policy[:, 2:].reshape(6, 5, 2), (0.5 * features).unsqueeze(-1).expand(6, 5, 2))


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_a_network_with_a_memory_has_features_too(memory: str) -> None:
    network: Any = network_of(separate=False, memory=memory, memory_size=6)
    state = torch.randn(4, network.state_width, generator=GENERATOR)
    batch = torch.randn(4, 4, generator=GENERATOR)
    with torch.no_grad():
        policy = network({"observation": batch, RECURRENT_STATE: state})[0]
        size = network.cell.hidden_size
        hidden = network({"observation": batch, RECURRENT_STATE: state})[-1][:, :size]
        features = network.output[:-1](hidden)
    assert policy.shape == (4, 12)
    torch.testing.assert_close(policy[:, 2:].reshape(4, 5, 2), features.unsqueeze(-1).expand(4, 5, 2))


def test_parts_of_an_action_have_their_own_deviations() -> None:
    action = Composite((Discrete(3), BOX, Box((), (0.0,), (1.0,))))
    network = network_of(action)
    distribution = configured_distribution(NetworkConfig(middleware=(8, 5), action_distribution="gsde"), action)
    policy = network(torch.randn(6, 4, generator=GENERATOR))[0]
    assert policy.shape == (6, distribution.width) == (6, 3 + 12 + 6)
    head: Any = network.branches[0].heads[0]  # type: ignore[index]
    assert head.log_std.shape == (5, 3)
    with torch.no_grad():
        head.log_std[:, 2] = math.log(3.0)
        again = network.eval()(torch.ones(1, 4))[0]
    torch.testing.assert_close(again[0, -5:], 3.0 * again[0, 5:15:2])


@pytest.mark.parametrize("given", [{}, {"features": 3, "action_deviation": "output"}])
def test_a_head_without_features_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(NetworkError, match='action_distribution = "gsde" with features = '):
        PolicyHead(PolicyHeadParameters(action_distribution="gsde", **given), BOX)
    with pytest.raises(NetworkError, match="has no effect"):
        PolicyHead(PolicyHeadParameters(action_distribution="gsde", features=3), Discrete(2))


@pytest.mark.parametrize(
    ("middleware", "width"),
    [(MiddlewareParameters([4]), 4), (LSTMMiddlewareParameters(number_of_lstm_cells=6), 6)],
)
def test_other_last_layers_are_refused(middleware: Any, width: int) -> None:
    heads: list[HeadParameters] = [PolicyHeadParameters(action_distribution="gsde", features=3)]
    parameters = NetworkParameters(heads_parameters=heads, middleware_parameters=middleware)
    spaces = Spaces({"observation": ObservationSpec((4,), "float32")}, BOX)
    with pytest.raises(NetworkError, match=f"features = 3, but the last layer has {width} outputs"):
        build_network(parameters, spaces, torch.Generator().manual_seed(1))
