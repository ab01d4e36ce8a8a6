"""Convolutions of bytes against torch in float64, and what changes with bfloat16."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from hive.envs import Discrete
from hive.errors import NetworkError
from hive.networks import InputArray, NetworkParameters, Spaces, build_network
from hive.networks.build import convolutions
from hive.networks.build.network import Network

needs_bfloat16 = pytest.mark.skipif(
    not convolutions.has_bfloat16_instructions(), reason="this processor has no bfloat16 instructions"
)
ROUNDING = {"float32": 2e-6, "bfloat16": 0.1}
"""Precision -> allowed distance from the gradient in float64, as a share of its norm."""

SHAPES = [(40, 40, 4), (4, 40, 40), (40, 40), (9, 9, 2)]


def built(shape: tuple[int, ...] = (40, 40, 4), precision: str = "float32", dtype: str = "uint8") -> Network:
    spaces = Spaces({"observation": InputArray(shape, dtype)}, Discrete(3))
    parameters = NetworkParameters(precision=precision)  # type: ignore[arg-type]
    network = build_network(parameters, spaces, torch.Generator().manual_seed(3))
    assert isinstance(network, Network)
    for parameter in network.parameters():  # biases that matter
        parameter.data += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5))
    return network


def images(shape: tuple[int, ...], count: int = 16) -> Tensor:
    return torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(7))


def gradient_of(network: Network, observations: Tensor) -> list[Tensor]:
    policy, value = network(observations)
    assert policy.dtype == value.dtype == torch.float32
    (policy.square().sum() + value.square().sum()).backward()
    return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]


def divided_in_float64(network: Network, shape: tuple[int, ...], observations: Tensor) -> list[Tensor]:
    """Return the gradient by torch's own layers in float64, of images that are divided by 255."""
    pixels = observations.double() / 255
    x = pixels[:, None] if len(shape) == 2 else pixels.permute(0, 3, 1, 2) if shape[2] <= shape[0] else pixels
    parameters = [parameter.detach().double().requires_grad_() for parameter in network.parameters()]
    pairs = iter(zip(parameters[::2], parameters[1::2], strict=True))
    for layer in network.trunk:
        if isinstance(layer, nn.Conv2d):
            x = nn.functional.conv2d(x, *next(pairs), layer.stride, layer.padding)
        elif isinstance(layer, nn.Linear):
            x = nn.functional.linear(x.flatten(1), *next(pairs))
        elif isinstance(layer, nn.ReLU | nn.Tanh):
            x = layer(x)
    x.square().sum().backward()
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=needs_bfloat16)])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_divided_pixels(shape: tuple[int, ...], precision: str) -> None:
    network, observations = built(shape, precision), images(shape)
    found = gradient_of(network, observations)
    expected = divided_in_float64(network, shape, observations)
    assert len(found) == len(expected) == len(list(network.parameters()))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert float((one - other).norm() / other.norm()) < ROUNDING[precision]


class Calls(TorchDispatchMode):
    """Records the torch functions that are called, each with its result."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.found.append((func.overloadpacket.__name__, result))
        return result


@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_are_converted_once_and_not_touched_again(shape: tuple[int, ...]) -> None:
    network, observations = built(shape), images(shape)
    with Calls() as calls:
        network(observations)
    names = [name for name, _ in calls.found]
    before = calls.found[: names.index("convolution")]
    size = observations.numel()
    passes = [(name, made) for name, made in before if made.is_floating_point() and made.numel() == size]
    assert [name for name, _ in passes] == ["_to_copy"]
    assert passes[0][1].is_contiguous(memory_format=torch.channels_last)


@needs_bfloat16
def test_bfloat16_repeats_in_another_process() -> None:
    program = "import sys, torch; sys.path.insert(0, sys.argv[1]); torch.set_num_threads(1)"
    program += "; import test_convolutions; print(test_convolutions.digest())"
    command = [sys.executable, "-P", "-c", program, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == digest(), done.stderr


def digest() -> str:
    found = gradient_of(built(precision="bfloat16"), images((40, 40, 4)))
    return hashlib.sha256(b"".join(gradient.numpy().tobytes() for gradient in found)).hexdigest()


def test_the_two_precisions_have_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "has_bfloat16_instructions", lambda: True)
    one, other = built().state_dict(), built(precision="bfloat16").state_dict()
    assert list(one) == list(other)
    assert all(torch.equal(one[name], other[name]) and one[name].dtype == torch.float32 for name in one)


def test_bfloat16_is_refused_where_it_is_slow_or_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "has_bfloat16_instructions", lambda: True)
    with pytest.raises(NetworkError, match="has no effect on this network: it has no convolutions"):
        built((4,), "bfloat16", "float32")
    monkeypatch.setattr(convolutions, "has_bfloat16_instructions", lambda: False)
    with pytest.raises(NetworkError, match="no bfloat16 instructions"):
        built(precision="bfloat16")
