"""Networks built from parameters, and user-defined modules."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.envs.spaces.actions import ActionSpec, Box, Discrete, MultiDiscrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError
from hive.networks import (
    EmbeddingMergerType,
    FlatParameters,
    HeadParameters,
    InputEmbedderParameters,
    MiddlewareParameters,
    Network,
    NetworkParameters,
    Spaces,
    build_network,
)
from hive.networks.build.custom import buffers_that_training_changes, from_module
from hive.networks.build.layers import ACTIVATIONS

VECTOR = ObservationSpec((4,), "float32")
BOX = Box((2, 3), (-1.0,) * 6, (1.0,) * 6)


def spaces(action: ActionSpec, **inputs: ObservationSpec) -> Spaces:
    return Spaces(inputs or {"observation": VECTOR}, action)


def build(parameters: NetworkParameters, where: Spaces, seed: int = 1) -> Any:
    return build_network(parameters, where, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("action", "width"),
    [(Discrete(3), 3), (MultiDiscrete((2, 5)), 7), (BOX, 12)],
    ids=["discrete", "multi", "box"],
)
def test_the_default_network_returns_policy_and_value(action: ActionSpec, width: int) -> None:
    network = build(NetworkParameters(), spaces(action))
    policy, value = network(torch.randn(5, 4))
    assert (policy.shape, value.shape) == ((5, width), (5,))
    assert policy.dtype == value.dtype == torch.float32
    from_module(network, spaces(action))  # fulfils the contract of users' modules


def test_forward_equals_calling_the_layers_in_order() -> None:
    network = build(NetworkParameters(), spaces(Discrete(3)))
    first, second, output = (layer for layer in network.trunk if isinstance(layer, nn.Linear))
    x = torch.randn(5, 4)
    columns = output(second(first(x).tanh()).tanh())
    policy, value = network(x)
    assert torch.equal(policy, columns[:, :3])
    assert torch.equal(value, columns[:, 3])


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("layer_norm", [False, True], ids=["", "layer norm"])
@pytest.mark.parametrize("image", [False, True], ids=["vector", "image"])
def test_its_steps_are_its_layers_bit_for_bit(activation: str, image: bool, layer_norm: bool) -> None:
    """Forward and backward, with and without a graph: `trunk` called as a module is the layers one by one."""
    shape, x = ((6, 6, 2), torch.randn(7, 6, 6, 2)) if image else ((4,), torch.randn(7, 4))
    parameters = NetworkParameters(
        middleware_parameters=MiddlewareParameters((8, 5), activation, layer_norm=layer_norm),
        input_embedders_parameters={"observation": InputEmbedderParameters((9,), activation, layer_norm=layer_norm)},
    )
    network = build(parameters, spaces(Discrete(3), observation=ObservationSpec(shape, "float32")))
    assert sum(isinstance(layer, nn.LayerNorm) for layer in network.trunk) == (3 if layer_norm else 0)
    before, results = x.clone(), []
    for columns in (network.trunk(x), torch.cat([part.reshape(7, -1) for part in network(x)], -1)):
        network.zero_grad()
        columns.square().sum().backward()
        results.append([columns, *[parameter.grad for parameter in network.parameters()]])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    with torch.inference_mode():
        policy, value = network(x)
    assert torch.equal(torch.cat([policy, value[:, None]], -1), results[0][0])
    assert torch.equal(x, before)


def test_observations_are_not_overwritten() -> None:
    """An activation that comes first has no output of a layer to write into, only the observations."""
    heads = build(NetworkParameters(), spaces(Discrete(2))).heads
    for first in (nn.ReLU(), nn.Tanh()):
        x = torch.tensor([[-1.0, 2.0, -3.0, 4.0]])
        Network([nn.Flatten(), first], 4, list(heads))(x)
        assert x.tolist() == [[-1.0, 2.0, -3.0, 4.0]]


def test_parameters_may_be_replaced_and_layers_be_ones_own() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2.0 * super().forward(input)

    heads = build(NetworkParameters(), spaces(Discrete(2))).heads
    network = Network([Doubled(4, 4, bias=False), nn.Linear(4, 4, bias=False)], 4, list(heads))
    for layer in network.trunk:
        layer.weight = nn.Parameter(torch.eye(4)[: len(layer.weight)])
    assert network(torch.ones(1, 4))[0].tolist() == [[2.0, 2.0]]


def test_heads_are_initialised_with_their_own_gains() -> None:
    weight = build(NetworkParameters(), spaces(Discrete(3))).trunk[-1].weight
    torch.testing.assert_close(weight[:3] @ weight[:3].T, 1e-4 * torch.eye(3), atol=1e-8, rtol=0)
    torch.testing.assert_close(weight[3].norm(), torch.tensor(1.0))


def test_the_log_deviation_of_a_gaussian_is_one_trained_vector() -> None:
    network = build(NetworkParameters(), spaces(BOX))
    policy, _ = network(torch.randn(5, 4))
    assert not policy[:, 6:].any()
    policy.sum().backward()
    assert network.heads[0].log_std.grad.tolist() == [5.0] * 6


def test_the_generator_decides_the_weights_and_nothing_else_does() -> None:
    def weights(seed: int) -> Tensor:
        return torch.cat([p.flatten() for p in build(NetworkParameters(), spaces(Discrete(2)), seed).parameters()])

    torch.manual_seed(1)
    first = weights(7)
    torch.manual_seed(2)
    assert torch.equal(first, weights(7))
    assert not torch.equal(first, weights(8))


def test_a_copy_is_independent() -> None:
    network = build(NetworkParameters(), spaces(Discrete(2)))
    twin = copy.deepcopy(network)
    x = torch.randn(3, 4)
    expected = network(x)[0].detach()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert not network(x)[0].any()
    assert torch.equal(twin(x)[0], expected)


def test_it_reads_its_weights_from_a_block() -> None:
    network = build(NetworkParameters(), spaces(Discrete(2)))
    flat = FlatParameters(network)
    flat.arrays(flat.block)["trunk.4.bias"][:] = [1.0, 2.0, 3.0]
    flat.arrays(flat.block)["trunk.4.weight"][:] = 0.0
    policy, value = network(torch.randn(1, 4))
    assert (policy.tolist(), value.tolist()) == ([[1.0, 2.0]], [3.0])


def test_images_of_bytes() -> None:
    network = build(NetworkParameters(), spaces(Discrete(4), observation=ObservationSpec((10, 10, 4), "uint8")))
    policy, value = network(torch.full((2, 10, 10, 4), 255, dtype=torch.uint8))
    assert (policy.shape, value.shape) == ((2, 4), (2,))


def test_several_inputs_are_merged_in_the_order_of_their_names() -> None:
    where = spaces(Discrete(2), b=VECTOR, a=ObservationSpec((2,), "float32"))
    parameters = NetworkParameters(middleware_parameters=MiddlewareParameters(widths=()))
    network = build(parameters, where)
    inputs = {"b": torch.randn(3, 4), "a": torch.randn(3, 2)}
    expected = network.trunk[-1](torch.cat([inputs["a"], inputs["b"]], -1))
    assert torch.equal(network(inputs)[0], expected[:, :2])


def test_inputs_can_be_chosen_and_added() -> None:
    where = spaces(Discrete(2), a=VECTOR, b=VECTOR, c=VECTOR)
    chosen = {"a": InputEmbedderParameters(), "b": InputEmbedderParameters()}
    parameters = NetworkParameters(input_embedders_parameters=chosen, embedding_merger_type=EmbeddingMergerType.Sum)
    a, b = torch.randn(2, 3, 4)
    network = build(parameters, where)
    assert torch.equal(network({"a": a, "b": b})[0], network({"a": a + b, "b": torch.zeros(3, 4)})[0])
    with pytest.raises(NetworkError, match="no input `d` for an embedder"):
        build(NetworkParameters(input_embedders_parameters={"d": InputEmbedderParameters()}), where)


def test_one_chosen_input_of_several_still_comes_by_name() -> None:
    where = spaces(Discrete(2), a=VECTOR, b=VECTOR)
    network = build(NetworkParameters(input_embedders_parameters={"b": InputEmbedderParameters()}), where)
    assert network({"b": torch.zeros(2, 4)})[1].shape == (2,)


def test_separate_networks_share_nothing() -> None:
    network = build(NetworkParameters(use_separate_networks_per_head=True), spaces(Discrete(2)))
    policy, value = network(torch.randn(3, 4))
    value.sum().backward()
    branches = [[p.grad is not None for p in branch.parameters()] for branch in network.branches]
    assert branches == [[False] * 6, [True] * 6]
    assert policy.shape == (3, 2)


def test_copies_of_a_head_are_outputs_of_their_own() -> None:
    heads = [HeadParameters("value", num_output_head_copies=2), HeadParameters("policy")]
    one, two, policy = build(NetworkParameters(heads_parameters=heads), spaces(Discrete(2)))(torch.randn(3, 4))
    assert not torch.equal(one, two)
    assert policy.shape == (3, 2)


@pytest.mark.parametrize("factor", [0.0, -1.0, 0.5])
def test_rescaling_a_head_changes_the_gradient_below_it_only(factor: float) -> None:
    def gradients(factor: float) -> tuple[Tensor, dict[str, Tensor]]:
        value = HeadParameters("value", rescale_gradient_from_head_by_factor=factor)
        network = build(NetworkParameters(heads_parameters=[HeadParameters("policy"), value]), spaces(Discrete(2)))
        output = network(torch.ones(3, 4))[1]
        output.sum().backward()
        return output, {name: p.grad for name, p in network.named_parameters()}

    output, plain = gradients(1.0)
    rescaled_output, rescaled = gradients(factor)
    torch.testing.assert_close(output, rescaled_output)
    for name, gradient in plain.items():
        expected = gradient if name.startswith("trunk.4") else factor * gradient
        torch.testing.assert_close(rescaled[name], expected)


def test_the_rescaling_is_neither_trained_nor_there_without_need() -> None:
    value = HeadParameters("value", rescale_gradient_from_head_by_factor=0.5)
    network = build(NetworkParameters(heads_parameters=[value]), spaces(Discrete(2)))
    assert [name for name, _ in network.named_buffers()] == ["trunk.4.rescale"]
    assert not list(build(NetworkParameters(), spaces(Discrete(2))).buffers())


def test_an_unknown_head_is_refused() -> None:
    with pytest.raises(NetworkError, match="unknown head `qu`") as error:
        build(NetworkParameters(heads_parameters=[HeadParameters("qu")]), spaces(Discrete(2)))
    assert error.value.hint.startswith("one of: policy, value, q")


def test_spaces_without_anything_to_see_or_to_choose_are_refused() -> None:
    with pytest.raises(NetworkError, match="have no observations"):
        build(NetworkParameters(), Spaces({}, Discrete(2)))
    heads = [None, [HeadParameters("q")]]
    for action, head in ((Discrete(0), 0), (Discrete(0), 1), (MultiDiscrete((2, 0)), 0), (MultiDiscrete(()), 0)):
        with pytest.raises(NetworkError, match="leaves nothing to choose"):
            build(NetworkParameters(heads_parameters=heads[head] or []), spaces(action))


@pytest.mark.parametrize("made", [None, 3, lambda observations: (observations, observations)])
def test_a_module_that_is_none_is_refused(made: Any) -> None:
    with pytest.raises(NetworkError, match=r"not a torch\.nn\.Module"):
        build(NetworkParameters(module=lambda _: made), spaces(Discrete(2)))


class Own(nn.Module):
    """A user-defined module whose outputs can be made wrong."""

    def __init__(self, where: Spaces, spoil: Any = None) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.spoil = spoil

    def forward(self, observations: Tensor) -> Any:
        outputs = self.layer(observations)
        correct = outputs[:, :2], outputs[:, 2]
        return correct if self.spoil is None else self.spoil(*correct)


def test_a_users_module_is_built_reproducibly_from_the_spaces() -> None:
    one = build(NetworkParameters(module=Own), spaces(Discrete(2)), seed=3)
    torch.rand(5)
    two = build(NetworkParameters(module=Own), spaces(Discrete(2)), seed=3)
    assert torch.equal(one.layer.weight, two.layer.weight)


def test_the_probe_leaves_training_modes_as_they_were() -> None:
    module = Own(spaces(Discrete(2)))
    module.layer.eval()
    from_module(module, spaces(Discrete(2)))
    assert (module.training, module.layer.training) == (True, False)


def test_buffers_that_training_changes_are_found_and_left_as_they_were() -> None:
    module = Own(spaces(Discrete(2)))
    assert buffers_that_training_changes(module, spaces(Discrete(2))) == []
    module.layer = nn.Sequential(module.layer, nn.BatchNorm1d(module.layer.out_features), nn.Dropout())
    module.register_buffer("constant", torch.ones(2))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    generator = torch.random.get_rng_state()
    found = buffers_that_training_changes(module, spaces(Discrete(2)))
    assert found == ["layer.1.running_mean", "layer.1.running_var", "layer.1.num_batches_tracked"]
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert module.training


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda policy, value: policy, "`Own` returns Tensor, expected a tuple"),
        (lambda policy, value: (policy,), "`Own` returns 1 outputs, expected a tuple"),
        (
            lambda policy, value: (policy, value[:, None]),
            r"value of torch.float32 \[2, 1\] for 2 observations",
        ),
        (lambda policy, value: (policy[:1], value), r"policy of torch.float32 \[1, 2\] for 2 observations"),
        (lambda policy, value: (policy.double(), value), r"policy of torch.float64 \[2, 2\]"),
        (lambda policy, value: (None, value), "policy of NoneType"),
    ],
)
def test_a_module_that_breaks_the_contract_raises_an_error_with_the_reason(spoil: Any, message: str) -> None:
    with pytest.raises(NetworkError, match=message) as error:
        from_module(Own(spaces(Discrete(2)), spoil), spaces(Discrete(2)))
    assert "policy [N, 2], value [N]" in error.value.hint


def test_a_module_may_return_more_than_two_outputs() -> None:
    module = Own(spaces(Discrete(2)), lambda policy, value: (policy, value, {"features": policy}))
    assert from_module(module, spaces(Discrete(2))) is module


def test_the_layers_before_the_heads_can_be_given() -> None:
    heads = build(NetworkParameters(), spaces(Discrete(2))).heads
    network = Network([nn.Flatten(), nn.ReLU()], 4, list(heads))
    assert network(torch.randn(2, 2, 2))[0].shape == (2, 2)
