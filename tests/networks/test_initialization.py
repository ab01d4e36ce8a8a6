"""Initial weights and deviations: orthogonal with the gains of the parameters, or those of torch's layers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.compat.coach.losses import head_loss
from hive.envs.spaces.actions import ActionSpec, Box, Discrete, MultiDiscrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError
from hive.networks import (
    DuelingQHeadParameters,
    HeadParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    NetworkParameters,
    PolicyHead,
    PolicyHeadParameters,
    PPOHeadParameters,
    Spaces,
    build_network,
)
from hive.networks.act.bounded import LOG_STD_BOUNDS
from hive.networks.build.value_heads import DuelingQHead

BOX = Box((3,), (-1.0,) * 3, (1.0,) * 3)
VECTOR = ObservationSpec((20,), "float32")
IMAGE = ObservationSpec((8, 8, 3), "uint8")


def build(
    parameters: NetworkParameters, action: ActionSpec | None = None, seen: ObservationSpec = VECTOR, seed: int = 1
) -> Any:
    spaces = Spaces({"observation": seen}, Discrete(3) if action is None else action)
    return build_network(parameters, spaces, torch.Generator().manual_seed(seed))


def layers_of(network: nn.Module) -> list[Any]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]


def assert_orthogonal(weight: Tensor, gain: float) -> None:
    rows = weight.detach().flatten(1).double() / gain
    rows = rows if len(rows) <= rows.shape[1] else rows.T
    torch.testing.assert_close(rows @ rows.T, torch.eye(len(rows)).double(), atol=1e-6, rtol=0)


def assert_uniform(layer: Any) -> None:
    """As torch's: the fan-in is the number of inputs of one output."""
    bound = layer.weight[0].numel() ** -0.5
    for values in (layer.weight, layer.bias):
        largest = float(values.detach().abs().max())
        assert (0.9 if values.numel() > 100 else 0.2) * bound < largest <= bound


@pytest.mark.parametrize("seen", [VECTOR, IMAGE], ids=["vector", "image"])
@pytest.mark.parametrize("separate", [False, True])
def test_each_layer_has_the_gain_of_the_parameters(seen: ObservationSpec, separate: bool) -> None:
    heads = [HeadParameters("policy", gain=0.25), HeadParameters("value", gain=2.0)]
    network = build(
        NetworkParameters(hidden_gain=0.5, heads_parameters=heads, use_separate_networks_per_head=separate), seen=seen
    )
    branches = network.branches if separate else [network]
    for branch in branches:
        *hidden, last = layers_of(branch.trunk)
        assert len(hidden) == (2 if seen is VECTOR else 5)
        for layer in hidden:
            assert_orthogonal(layer.weight, 0.5)
        assert not any(layer.bias.any() for layer in (*hidden, last))
    last = [layers_of(branch.trunk)[-1].weight for branch in branches]
    policy, value = last if separate else (last[0][:3], last[0][3:])
    assert_orthogonal(policy, 0.25)
    assert_orthogonal(value, 2.0)


@pytest.mark.parametrize("seen", [VECTOR, IMAGE], ids=["vector", "image"])
@pytest.mark.parametrize("action", [Discrete(3), BOX], ids=["discrete", "box"])
def test_uniform_weights_are_those_of_torchs_layers(seen: ObservationSpec, action: ActionSpec) -> None:
    embedder = {"observation": InputEmbedderParameters(widths=(64,))}
    parameters = NetworkParameters(initialization="uniform", input_embedders_parameters=embedder)
    layers = layers_of(build(parameters, action, seen))
    assert len(layers) == (4 if seen is VECTOR else 6)
    for layer in layers:
        assert_uniform(layer)


@pytest.mark.parametrize("initialization", ["uniform", "orthogonal"])
def test_an_lstm_is_always_torchs(initialization: str) -> None:
    middleware = LSTMMiddlewareParameters(number_of_lstm_cells=16)
    network = build(NetworkParameters(initialization=initialization, middleware_parameters=middleware))
    for name, parameter in network.cell.named_parameters():
        assert 0.6 * 0.25 < float(parameter.detach().abs().max()) <= 0.25, name
    if initialization == "uniform":
        assert_uniform(network.output)


def test_a_dueling_head_has_its_gain_in_both_streams() -> None:
    head = DuelingQHeadParameters(hidden=32, gain=0.5)
    network = build(NetworkParameters(heads_parameters=[head]))
    dueling = network.heads[0]
    assert isinstance(dueling, DuelingQHead)
    assert dueling.value is not None
    assert dueling.advantage is not None
    assert_orthogonal(dueling.value.weight, 0.5)
    assert_orthogonal(dueling.advantage.weight, 0.5)
    assert_orthogonal(network.trunk[-1].weight, 2**0.5)
    plain = build(NetworkParameters(heads_parameters=[DuelingQHeadParameters(gain=0.5)])).trunk[-1]
    assert_orthogonal(plain.weight, 0.5)
    uniform = build(NetworkParameters(heads_parameters=[head], initialization="uniform"))
    for layer in (uniform.trunk[-1], uniform.heads[0].value, uniform.heads[0].advantage):
        assert layer.bias.any()
        assert float(layer.weight.detach().abs().max()) <= layer.in_features**-0.5


# --- deviations of a Gaussian

OBSERVATIONS = torch.randn((7, 20), generator=torch.Generator().manual_seed(2))


def gaussian(
    kind: Any = PolicyHeadParameters, initialization: str = "orthogonal", separate: bool = False, **given: Any
) -> Any:
    heads = [kind(**given), HeadParameters("value")]
    return build(
        NetworkParameters(
            heads_parameters=heads, initialization=initialization, use_separate_networks_per_head=separate
        ),
        BOX,
    )


@pytest.mark.parametrize("kind", [PolicyHeadParameters, PPOHeadParameters])
@pytest.mark.parametrize("initialization", ["orthogonal", "uniform"])
@pytest.mark.parametrize("form", ["parameter", "output"])
@pytest.mark.parametrize("deviation", [1.0, math.exp(-2.0)])
def test_every_observation_has_the_initial_deviation(
    deviation: float, form: str, initialization: str, kind: Any
) -> None:
    network = gaussian(kind, initialization, action_deviation=form, initial_deviation=deviation)
    policy, _ = network(OBSERVATIONS)
    mean, log_std = policy.detach().chunk(2, -1)
    torch.testing.assert_close(log_std.exp(), torch.full((7, 3), deviation))
    assert (mean.std(0) > 0).all()
    assert ("heads.0.log_std" in dict(network.named_parameters())) is (form == "parameter")


@pytest.mark.parametrize("separate", [False, True])
def test_an_output_begins_with_the_gains_of_the_policy(separate: bool) -> None:
    network = gaussian(action_deviation="output", separate=separate, gain=0.25)
    last = (network.branches[0] if separate else network).trunk[-1]
    assert_orthogonal(last.weight[:3], 0.25)
    assert not last.weight[3:6].any()
    if not separate:
        assert_orthogonal(last.weight[6:], 1.0)


def test_an_output_is_trained_and_depends_on_the_observation() -> None:
    network = gaussian(action_deviation="output")
    policy, _ = network(OBSERVATIONS)
    policy[:, 3:].sum().backward()
    last = network.trunk[-1]
    assert (last.weight.grad[3:6].abs().sum(-1) > 0).all()
    with torch.no_grad():
        last.weight -= 0.1 * last.weight.grad
    assert (network(OBSERVATIONS)[0][:, 3:].std(0) > 0).all()


def test_the_gradient_of_an_output_is_that_of_a_normal_distribution() -> None:
    """Two columns beyond the clamp: torch.distributions in float64, with the clamp written as a maximum and minimum."""
    head = PolicyHead(PolicyHeadParameters(action_deviation="output", beta_entropy=0.3), BOX)
    assert head.width == 6
    columns = torch.randn((5, 6), generator=torch.Generator().manual_seed(3))
    columns[1, 4], columns[2, 5] = -25.0, 3.0
    actions = torch.randn((5, 3), generator=torch.Generator().manual_seed(4))
    actions[1, 1] = columns[1, 1]  # a density of exp(20) has a finite slope at its mean only
    advantages = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0])
    given = columns.clone().requires_grad_()
    loss = head_loss(head).loss(head(given), advantages, actions)
    loss.sum().backward()

    exact = columns.double().requires_grad_()
    log_std = torch.maximum(exact[:, 3:], torch.tensor(LOG_STD_BOUNDS[0], dtype=torch.float64))
    log_std = torch.minimum(log_std, torch.tensor(LOG_STD_BOUNDS[1], dtype=torch.float64))
    normal = torch.distributions.Normal(exact[:, :3], log_std.exp())
    expected = -normal.log_prob(actions.double()).sum(-1) * advantages - 0.3 * normal.entropy().sum(-1)
    expected.sum().backward()
    torch.testing.assert_close(loss.detach(), expected.detach().float(), atol=1e-6, rtol=1e-6)
    assert given.grad is not None
    assert exact.grad is not None
    torch.testing.assert_close(given.grad, exact.grad.float(), atol=1e-6, rtol=1e-6)
    assert given.grad[1, 4] == given.grad[2, 5] == 0.0


@pytest.mark.parametrize("kind", [PolicyHeadParameters, PPOHeadParameters])
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"action_distribution": "squashed"}, "action_distribution = 'squashed' has no effect"),
        ({"action_deviation": "output"}, "action_deviation = 'output' has no effect"),
        ({"initial_deviation": 0.5}, "initial_deviation = 0.5 has no effect"),
    ],
)
def test_deviations_of_discrete_actions_are_refused(kind: Any, given: dict[str, Any], text: str) -> None:
    for action in (Discrete(3), MultiDiscrete((2, 3))):
        with pytest.raises(NetworkError, match=text) as caught:
            build(NetworkParameters(heads_parameters=[kind(**given)]), action)
        assert "box" in caught.value.hint


@pytest.mark.parametrize("deviation", [1e-9, 7.4])
def test_an_initial_deviation_outside_of_the_clamp_is_refused(deviation: float) -> None:
    with pytest.raises(NetworkError, match=r"initial_deviation = .* is not between 2.06e-09 and 7.39"):
        gaussian(action_deviation="output", initial_deviation=deviation)
    gaussian(action_deviation="parameter", initial_deviation=deviation)
