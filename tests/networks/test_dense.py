"""hive.networks.weights.dense against torch in float64: outputs, gradients, and which networks it computes."""

from __future__ import annotations

import copy
import dataclasses
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from hive import _native
from hive.envs import Box, Composite, Discrete, MultiDiscrete
from hive.errors import NetworkError
from hive.networks import (
    CategoricalQHeadParameters,
    DuelingQHeadParameters,
    GRUMiddlewareParameters,
    HeadParameters,
    InputArray,
    MiddlewareParameters,
    NetworkParameters,
    PolicyHeadParameters,
    QuantileQHeadParameters,
    Spaces,
    build_network,
)
from hive.networks.build.head_kinds import make_head
from hive.networks.build.network import Network, compute_natively
from hive.networks.weights.flat import FlatParameters, aligned_block

CLOSE = 2e-6  # allowed difference as a share of the largest element: about 17 roundings of float32
ACTIONS: dict[str, Any] = {
    "discrete": Discrete(3),
    "multi-discrete": MultiDiscrete((2, 4)),
    "box": Box((5,), (-1.0,) * 5, (1.0,) * 5),
}
BOXES = {"boxes": Composite((Box((1,), (), ()), Box((2,), (), ())), ("a", "b"))}


def built(
    inputs: int = 7, action: str = "discrete", heads: Any = (), value_widths: Any = None, **changes: Any
) -> nn.Module:
    middleware = MiddlewareParameters(
        changes.pop("widths", (20, 33)), changes.pop("activation", "tanh"), layer_norm=changes.pop("layer_norm", False)
    )
    parameters = NetworkParameters(middleware_parameters=middleware, heads_parameters=list(heads), **changes)
    parameters.hidden_gain = 1.0
    if value_widths is not None:
        parameters.value_middleware_parameters = dataclasses.replace(middleware, widths=value_widths)
    spaces = Spaces({"observation": InputArray((inputs,), "float32")}, (ACTIONS | BOXES)[action])
    network = build_network(parameters, spaces, torch.Generator().manual_seed(3))
    for parameter in network.parameters():  # biases and gains that matter
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5))
    return network


def native(network: nn.Module) -> tuple[Any, FlatParameters]:
    """A copy of the network that computes natively."""
    made = copy.deepcopy(network)
    flat = FlatParameters(made)
    compute_natively(made, flat, "native")
    return made, flat


def rows_of(count: int, inputs: int = 7) -> Tensor:
    return torch.randn((count, inputs), generator=torch.Generator().manual_seed(count))


def assert_close(found: Tensor, expected: Tensor, terms: int = 1, rounding: float = 0.0) -> None:
    """terms: numbers of about 1 that each element is the sum of. rounding: what torch's float32 deviates by."""
    tolerance = CLOSE * float(expected.detach().abs().max()) + 1e-7 * (terms + 9) + 9 * rounding
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=0, atol=tolerance)


def test_the_outputs_of_several_boxes_are_those_of_torch() -> None:
    """Each box has its means and then its deviations; the deviations do not follow all means."""
    network: Any = built(action="boxes")
    rows = torch.rand(5, 7)
    expected = [output.detach().numpy() for output in network(rows)]
    compute_natively(network, FlatParameters(network))
    natively = network.dense.outputs(rows) or [output.detach().numpy() for output in network(rows)]
    for found, wanted in zip(natively, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


class Centred(nn.Linear):
    """A linear layer whose weights have the mean 0."""

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.linear(input, self.weight - self.weight.mean(1, keepdim=True), self.bias)


TWICE = nn.Linear(8, 8)
UNKNOWN: dict[str, list[nn.Module]] = {
    "a norm after the activation": [nn.Linear(7, 8), nn.Tanh(), nn.LayerNorm(8)],
    "a subclass": [Centred(7, 8), nn.Tanh()],
    "a layer used twice": [nn.Linear(7, 8), nn.Tanh(), TWICE, nn.Tanh(), TWICE, nn.Tanh()],
    "derived weights": [nn.utils.parametrizations.weight_norm(nn.Linear(7, 8)), nn.Tanh()],
    "weights of a hook": [nn.utils.spectral_norm(nn.Linear(7, 8)), nn.Tanh()],
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_layers_that_compute_what_only_torch_knows_stay_torchs(what: str) -> None:
    heads = [make_head(head, Discrete(3)) for head in NetworkParameters().heads()]
    network = Network(UNKNOWN[what], 8, heads)
    compute_natively(network, FlatParameters(network))
    assert network.dense is None


def test_inputs_that_change_before_the_backward_pass_are_refused() -> None:
    made, _ = native(built())
    hidden = rows_of(5) * torch.ones(7, requires_grad=True)
    outputs = made(hidden)
    hidden.mul_(5.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs[0].sum().backward()


@settings(max_examples=40, deadline=None)
@given(
    inputs=st.integers(1, 40),
    widths=st.lists(st.integers(1, 70), max_size=3),
    activation=st.sampled_from(["tanh", "relu", "silu"]),
    layer_norm=st.booleans(),
    separate=st.booleans(),
    values=st.none() | st.lists(st.integers(1, 70), max_size=3),
    action=st.sampled_from(list(ACTIONS)),
    count=st.integers(1, 230),
)
def test_outputs_and_gradients_are_those_of_torch_in_float64(
    inputs: int,
    widths: list[int],
    activation: str,
    layer_norm: bool,
    separate: bool,
    values: list[int] | None,
    action: str,
    count: int,
) -> None:
    values = values if separate else None  # the widths of the value's network
    network = built(
        inputs,
        action,
        value_widths=values,
        widths=tuple(widths),
        activation=activation,
        layer_norm=layer_norm,
        use_separate_networks_per_head=separate,
    )
    made, _ = native(network)
    rows = rows_of(count, inputs)
    exact, seen = rows.double().requires_grad_(), rows.clone().requires_grad_()
    each = [*widths, *(values or ())]
    narrow = layer_norm and min(each, default=9) < 9  # nearly equal numbers have a deviation that multiplies rounding
    plain = [output.detach() for output in network(rows)]
    expected, found = network.double()(exact), made(seen)
    noise = torch.Generator().manual_seed(1)
    slopes = [torch.randn(output.shape, generator=noise) for output in found]
    torch.autograd.backward(list(found), slopes)
    torch.autograd.backward(list(expected), [slope.double() for slope in slopes])
    widest = max(inputs, *each) if each else inputs
    for one, other, single in zip(found, expected, plain, strict=True):
        rounding = float((single - other.detach()).abs().max()) if narrow else 0.0
        assert_close(one, other, terms=widest, rounding=rounding)
    if narrow:
        return
    for one, other in zip([*made.parameters(), seen], [*network.parameters(), exact], strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert_close(one.grad, other.grad, terms=count + widest)


@pytest.mark.parametrize("action", list(ACTIONS))
@pytest.mark.parametrize("separate", [True, False])
def test_the_gradient_without_a_graph_has_the_bytes_of_that_with_one(action: str, separate: bool) -> None:
    made, flat = native(built(action=action, use_separate_networks_per_head=separate))
    rows = rows_of(100)
    outputs = made(rows)
    slopes = [torch.randn(output.shape, generator=torch.Generator().manual_seed(1)) for output in outputs]
    torch.autograd.backward(list(outputs), slopes)
    expected = aligned_block(flat.parameter_bytes).view(np.float32)
    mask = flat.gradient(expected)
    direct = made.dense.begin(rows)
    made.dense.begin(rows_of(30))  # later passes may take its memory
    made.dense.begin(rows_of(20))
    for found in (direct.outputs, made.dense.outputs(rows)):
        for one, other in zip(found, outputs, strict=True):
            np.testing.assert_array_equal(one, other.detach())
    gradient = aligned_block(flat.parameter_bytes).view(np.float32)
    direct.differentiate([slope.numpy() for slope in slopes], gradient)
    assert direct.mask.tolist() == mask.tolist()
    for name, one, other in zip(
        flat.names, flat.gradient_arrays(gradient), flat.gradient_arrays(expected), strict=True
    ):
        tolerance = 1e-6 if "log_std" in name else 0.0  # torch and NumPy sum these rows in different orders
        np.testing.assert_allclose(one, other, rtol=tolerance, err_msg=name)


def test_a_row_has_the_same_outputs_in_every_batch() -> None:
    made, _ = native(built())
    rows = rows_of(200)
    with torch.no_grad():
        whole, some = made(rows)[0], [made(rows[first : first + 7])[0] for first in range(0, 200, 7)]
    assert torch.equal(whole, torch.cat(some))


def test_an_earlier_pass_can_be_differentiated_after_a_later_one() -> None:
    made, _ = native(built())
    rows, others = rows_of(10), rows_of(30)
    made(rows)[0].sum().backward()
    expected = [parameter.grad.clone() for parameter in made.parameters() if parameter.grad is not None]
    made.zero_grad(set_to_none=True)
    first = made(rows)[0].sum()
    made(others)
    with torch.no_grad():
        made(others)
    first.backward()
    for parameter, gradient in zip((p for p in made.parameters() if p.grad is not None), expected, strict=True):
        assert torch.equal(parameter.grad, gradient)


def test_a_loss_of_one_output_leaves_the_gradient_of_the_other_network_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = native(built(use_separate_networks_per_head=True))
    empty = np.empty
    with monkeypatch.context() as patch:  # as memory that was used before
        patch.setattr(np, "empty", lambda *args, **kwargs: fill(empty(*args, **kwargs)))
        made(rows_of(10))[0].sum().backward()
    found = {name: parameter.grad for name, parameter in made.named_parameters() if parameter.grad is not None}
    of_values = [gradient for name, gradient in found.items() if name.startswith("branches.1")]
    assert of_values
    assert all(not gradient.any() for gradient in of_values)
    assert all(torch.isfinite(gradient).all() for gradient in found.values())


def fill(array: Any) -> Any:
    if array.dtype.kind == "f":
        array.fill(np.nan)
    return array


def test_gradients_of_inputs_alone_when_the_weights_are_frozen() -> None:
    network = built()
    made, _ = native(network)
    rows, exact = rows_of(10).requires_grad_(), rows_of(10).double().requires_grad_()
    made.requires_grad_(False)
    made(rows)[0].sum().backward()
    network.double()(exact)[0].sum().backward()
    assert rows.grad is not None
    assert exact.grad is not None
    assert_close(rows.grad, exact.grad)
    assert all(parameter.grad is None for parameter in made.parameters())
    assert made.dense.begin(rows_of(10)) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("activation", ["tanh", "relu", "silu"])
def test_what_is_not_finite_spreads_as_in_torch(value: float, activation: str) -> None:
    network = built(activation=activation)
    made, _ = native(network)
    rows = rows_of(20)
    rows[3, 2] = value
    expected, found = network(rows), made(rows)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.isnan(), other.isnan())
        assert torch.equal(one.isfinite(), other.isfinite())
    (expected[0].sum() + expected[1].sum()).backward()
    (found[0].sum() + found[1].sum()).backward()
    for one, other in zip(made.parameters(), network.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad.isfinite(), other.grad.isfinite())


@pytest.mark.parametrize(
    "head",
    [
        DuelingQHeadParameters(hidden=6),
        CategoricalQHeadParameters(atoms=5, dueling=6),
        QuantileQHeadParameters(atoms=5, dueling=6),
    ],
    ids=["q", "categories", "quantiles"],
)
def test_streams_beside_another_head_are_joined_by_torch_from_native_columns(head: HeadParameters) -> None:
    network = built(heads=[head, HeadParameters("value")])
    made, _ = native(network)
    rows = rows_of(9)
    assert_close(made(rows)[0], network(rows)[0])
    assert made.dense.outputs(rows) is None
    assert made.dense.begin(rows) is None


def value_head(kind: str, atoms: int, dueling: int | None) -> HeadParameters:
    """The parameters of a head of values. dueling: the width of its streams' hidden layers; None: it has no streams."""
    if kind == "q":
        return HeadParameters("q") if dueling is None else DuelingQHeadParameters(hidden=dueling)
    made = CategoricalQHeadParameters if kind == "categories" else QuantileQHeadParameters
    return made(atoms=atoms, dueling=dueling or 0)


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(["q", "categories", "quantiles"]),
    atoms=st.integers(2, 20),
    dueling=st.none() | st.sampled_from([0, 1, 16, 17]),
    noisy=st.sampled_from([0.0, 0.5]),
    widths=st.lists(st.integers(9, 40), max_size=2),  # narrow layer norms multiply rounding
    layer_norm=st.booleans(),
    count=st.integers(1, 120),
)
def test_noise_and_streams_are_those_of_torch_in_float64(
    kind: str, atoms: int, dueling: int | None, noisy: float, widths: list[int], layer_norm: bool, count: int
) -> None:
    """Also for a pass whose memory was needed for later ones: it is made again with the same noise."""
    network = built(
        heads=[value_head(kind, atoms, dueling)], widths=tuple(widths), layer_norm=layer_norm, noisy_deviation=noisy
    )
    made, flat = native(network)
    exact, rows = copy.deepcopy(network).double(), rows_of(count)
    torch.manual_seed(count)
    given_rows = rows.double().requires_grad_()
    expected = exact(given_rows)[0]
    slopes = torch.randn(expected.shape, generator=torch.Generator().manual_seed(4))
    (expected * slopes.double()).sum().backward()
    found = []
    for later in (0, 2):
        torch.manual_seed(count)
        forward = made.dense.begin(rows)
        for _ in range(later):
            made.dense.begin(rows_of(3))
        gradient = np.full_like(flat.weights, np.nan)
        forward.differentiate((slopes.numpy(),), gradient)
        found.append(gradient)
    np.testing.assert_array_equal(found[0], found[1])
    torch.manual_seed(count)
    terms = 40 * (1 + int(10 * noisy))  # weights of layers with noise are larger
    for outputs in (forward.outputs[0], made.dense.outputs(rows)[0]):
        assert_close(torch.from_numpy(outputs), expected, terms)
    assert given_rows.grad is not None
    assert_close(torch.from_numpy(forward.to_rows((slopes.numpy(),))), given_rows.grad, terms)
    for parameter, reference in zip(made.parameters(), exact.parameters(), strict=True):
        place = found[0][made.dense.offsets(parameter)]
        assert reference.grad is not None
        assert_close(torch.from_numpy(place).view(parameter.shape), reference.grad, count * terms)


def test_a_noisy_network_has_its_means_in_evaluation_mode_and_draws_nothing() -> None:
    network = built(heads=[DuelingQHeadParameters(hidden=6)], noisy_deviation=0.5)
    made, _ = native(network.eval())
    before = torch.get_rng_state()
    assert_close(torch.from_numpy(made.dense.outputs(rows_of(9))[0]), network(rows_of(9))[0], terms=40)
    assert torch.equal(torch.get_rng_state(), before)


def test_noise_without_streams_is_in_the_graph_of_torch_too() -> None:
    network = built(noisy_deviation=0.5)
    made, _ = native(network)
    for each in (network, made):
        torch.manual_seed(1)
        sum(output.sum() for output in each(rows_of(9))).backward()
    for parameter, reference in zip(made.parameters(), network.parameters(), strict=True):
        assert parameter.grad is not None
        assert reference.grad is not None
        assert_close(parameter.grad, reference.grad, terms=200)


def test_derived_arrays_outside_of_a_block_are_refused() -> None:
    for copied in ({"from": 5, "to": 0, "count": 4}, {"from": 0, "to": 5, "count": 4}):
        with pytest.raises(ValueError, match="outside its block"):
            _native.DerivedWeights([copied], [], [], 8, 8)
    derived = _native.DerivedWeights([{"from": 0, "to": 4, "count": 4}], [], [], 8, 8)
    with pytest.raises(ValueError, match="factors has 1 elements, expected 0"):
        derived.forward(np.zeros(8, np.float32), np.zeros(1, np.float32), np.zeros(8, np.float32))


def test_a_copy_computes_by_torch_and_new_flat_parameters_move_the_native_network() -> None:
    made, flat = native(built())
    rows = rows_of(5)
    before = made(rows)[0]
    copied = copy.deepcopy(made)
    assert copied.dense is None
    assert_close(copied(rows)[0], before)
    other = FlatParameters(made)
    flat.block[:] = 0  # the memory of the first no longer counts
    assert made.dense.flat is other
    assert torch.equal(made(rows)[0], before)


@pytest.mark.parametrize(
    "changes",
    [
        {"activation": "gelu"},
        {"heads": [PolicyHeadParameters(action_distribution="gsde", features=33)], "action": "box"},
        {"heads": [HeadParameters("value", rescale_gradient_from_head_by_factor=0.5)]},
    ],
    ids=["activation", "gsde", "rescaled"],
)
def test_other_networks_are_left_to_torch(changes: dict[str, Any]) -> None:
    network = built(**changes)
    compute_natively(network, flat := FlatParameters(network), "auto")
    assert getattr(network, "dense", None) is None
    with pytest.raises(NetworkError, match='backend = "native" cannot compute this network'):
        compute_natively(network, flat, "native")


def test_a_recurrent_network_is_refused() -> None:
    spaces = Spaces({"observation": InputArray((3,), "float32")}, Discrete(2))
    network = build_network(
        NetworkParameters(middleware_parameters=GRUMiddlewareParameters()), spaces, torch.Generator().manual_seed(0)
    )
    with pytest.raises(NetworkError, match="cannot compute"):
        compute_natively(network, FlatParameters(network), "native")


def test_threads_may_call_one_network() -> None:
    made, _ = native(built(widths=(64, 64)))
    rows = [rows_of(count) for count in (150, 170)]
    with torch.no_grad():
        expected = [made(some)[0] for some in rows]
    wrong: list[int] = []

    def call(number: int) -> None:
        with torch.no_grad():
            wrong.extend(number for _ in range(200) if not torch.equal(made(rows[number])[0], expected[number]))

    threads = [threading.Thread(target=call, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


PROGRAM = """
import sys, numpy as np
from hive import _native
random = np.random.default_rng(0)
block = np.zeros(16 * 200, np.float32)
whole = random.standard_normal(len(block), np.float32)
first = {"inputs": 5, "outputs": 33, "activation": sys.argv[1], "weight": 0, "bias": 176, "scale": 224, "shift": 272,
         "epsilon": 1e-5}
second = {"inputs": 33, "outputs": 3, "activation": "none", "weight": 320, "bias": 432}
for layer in (first, second):
    for name, size in (("weight", layer["inputs"] * layer["outputs"]), ("bias", layer["outputs"])):
        block[layer[name] :][:size] = whole[layer[name] :][:size]
block[224:257] = 1.5
network = _native.DenseNetwork([[first, second]], len(block))
rows, out = random.standard_normal((101, 5), np.float32), np.empty((101, 3), np.float32)
network.forward(block, rows, [out], keep=True)
gradient, to_rows = np.zeros_like(block), np.empty_like(rows)
network.backward(block, rows, [out], gradient, to_observations=to_rows)
results = out.tobytes() + gradient.tobytes() + to_rows.tobytes()
sys.stdout.buffer.write(_native.dense_instructions().encode() + b"|" + results)
"""


@pytest.mark.skipif(_native.dense_instructions() != "avx512", reason="needs a processor with AVX-512 to compare")
@pytest.mark.parametrize("activation", ["tanh", "relu", "silu"])
def test_vectors_of_other_widths_give_the_same_bytes(activation: str) -> None:
    results: dict[str, bytes] = {}
    for most in ("avx512", "avx2", "plain"):
        made = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM, activation],
            env={**os.environ, "HIVE_DENSE": most},
            capture_output=True,
            check=True,
        )
        name, _, results[most] = made.stdout.partition(b"|")
        assert name.decode() == most
    assert results["avx512"] == results["avx2"]
    plain, fused = (np.frombuffer(results[name], np.float32) for name in ("plain", "avx2"))
    np.testing.assert_allclose(
        plain, fused, rtol=0, atol=1e-6 * np.abs(fused).max()
    )  # without fused products: other last bits


def bad_calls() -> list[tuple[str, Any]]:
    layer = {"inputs": 2, "outputs": 3, "activation": "none", "weight": 0, "bias": 16}
    return [
        ("outside the block", lambda: _native.DenseNetwork([[layer]], 16)),
        ("not aligned", lambda: _native.DenseNetwork([[{**layer, "bias": 17}]], 64)),
        ("at least one branch", lambda: _native.DenseNetwork([], 64)),
        ("inputs of a layer", lambda: _native.DenseNetwork([[layer, layer]], 64)),
        ("last layer", lambda: _native.DenseNetwork([[{**layer, "activation": "tanh"}]], 64)),
        ("activation is gelu", lambda: _native.DenseNetwork([[{**layer, "activation": "gelu"}]], 64)),
        ("64 elements, expected 32", lambda: _forward(layer, block=64)),
        ("3 columns, expected 2", lambda: _forward(layer, inputs=3)),
        ("2 columns, expected 3", lambda: _forward(layer, outputs=2)),
        ("9 rows, expected 5", lambda: _forward(layer, rows=9)),
    ]


def _forward(layer: dict[str, Any], block: int = 32, inputs: int = 2, outputs: int = 3, rows: int = 5) -> None:
    def zeros(*shape: int) -> NDArray[np.float32]:
        return np.zeros(shape, np.float32)

    _native.DenseNetwork([[layer]], 32).forward(zeros(block), zeros(5, inputs), [zeros(rows, outputs)])


@pytest.mark.parametrize(("message", "call"), bad_calls(), ids=[message for message, _ in bad_calls()])
def test_wrong_arrays_are_refused(message: str, call: Any) -> None:
    with pytest.raises(ValueError, match=message):
        call()
