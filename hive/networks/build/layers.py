"""Layers, their initialization, and the contexts in which networks are built.

By default hidden layers have gain sqrt(2), a policy's outputs 0.01 and a value's 1, as in OpenAI's baselines and
Stable-Baselines3. Small policy outputs make the first policy nearly uniform, which matters more than most choices
(Andrychowicz et al. 2021, "What Matters in On-Policy RL?", 3.2). Without a gain, layers keep the initial values of
torch.nn.Linear: weights and biases uniform in +-1 / sqrt(inputs), as in Stable-Baselines3 with `ortho_init=False`.

Initial values are drawn from torch's global generator. `seeded` seeds it from the caller's generator while a network
is built, and restores its state afterwards. Thus custom modules are as reproducible as built-in ones, and building a
network does not change the random numbers of the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

from hive import _native
from hive.errors import MemoryShort, NetworkError
from hive.runtime.process.user_code.torch_state import DEVICE

HIDDEN_GAIN = 2.0**0.5

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}

_PLACEHOLDER: ContextVar[bool] = ContextVar("placeholder", default=False)

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def activation_layer(name: str) -> nn.Module:
    """Return the activation of that name as a module. Raises NetworkError, which lists all names, for other names."""
    if name not in ACTIVATIONS:
        raise NetworkError(f"unknown activation `{name}`", hint=f"one of: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()


def orthogonal(layer: Layer, gain: float = HIDDEN_GAIN) -> Layer:
    """Initialize `layer` with orthogonal weights (Saxe et al. 2013) of that gain and zero biases, and return it."""
    if _PLACEHOLDER.get():
        layer.weight.new_empty(layer.weight.shape).normal_()  # later draws are then the same
    else:
        nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def hidden_layer(layer: Layer, gain: float | None) -> Layer:
    """Initialize `layer` with orthogonal weights of that gain, None: not at all, and return it."""
    return layer if gain is None else orthogonal(layer, gain)


def dense_layers(
    inputs: int,
    widths: Sequence[int],
    activation: str,
    gain: float | None = HIDDEN_GAIN,
    *,
    layer_norm: bool = False,
    first: type[nn.Linear] = nn.Linear,
) -> tuple[list[nn.Module], int]:
    """Return a linear layer and an activation for each of `widths`, and the width of their output.

    inputs: the width of their input, float32 [N, inputs]. gain: that of `hidden_layer`. layer_norm: put a LayerNorm
        between the two (Ba et al. 2016), with trainable scales, initially 1, and shifts, initially 0. first: the class
        of the first linear layer. Raises NetworkError for an unknown activation.
    """
    layers: list[nn.Module] = []
    for width in widths:
        linear = nn.Linear if layers else first
        layers.append(hidden_layer(linear(inputs, width), gain))
        if layer_norm:
            layers.append(nn.LayerNorm(width))
        layers.append(activation_layer(activation))
        inputs = width
    return layers, inputs


@contextmanager
def in_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Run the block with all of `module` in training or evaluation mode, and restore the mode of each child."""
    modes = {child: child.training for child in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for child, mode in modes.items():
            child.training = mode


@contextmanager
def placeholder_weights() -> Iterator[None]:
    """Build networks in the block without making weights orthogonal; the caller copies the initial weights.

    For a layer of 4096 x 4096 that takes seven seconds, in every process of a run.
    """
    before = _PLACEHOLDER.set(True)
    try:
        yield
    finally:
        _PLACEHOLDER.reset(before)


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Run the block with torch's global generator seeded from `generator`, and restore it afterwards."""
    seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: it also keeps a stack trace for CUDA, which takes 3 to 8 ms in a new process.
        torch.default_generator.manual_seed(seed)
        yield


class NoisyLinear(nn.Module):
    """The linear layer `mean` with noise in its weights, whose deviations are trained: NoisyNet, Fortunato et al. 2018.

        y = (mean + deviation * f(e_out) f(e_in)^T) x + bias mean + bias deviation * f(e_out),   f(e) = sign(e) sqrt|e|

    e_in and e_out are N(0, 1), one number for each input and output (factorized noise, equations 10 and 11). They are
    drawn at each forward pass in training mode, and are the same for all rows of it. In evaluation mode the weights are
    their means. A pass takes one word of torch's generator, which is the seed of its numbers (_native.philox_factors),
    so a native pass draws the same (hive.networks.weights.derived). On a device torch draws them.

    deviation: the initial deviation of a weight, times the square root of the number of inputs; the paper has 0.5.
    """

    def __init__(self, mean: nn.Linear, deviation: float) -> None:
        super().__init__()
        self.mean = mean
        initial = deviation / math.sqrt(mean.in_features)
        self.weight_deviation = nn.Parameter(torch.full((mean.out_features, mean.in_features), initial))
        self.bias_deviation = nn.Parameter(torch.full((mean.out_features,), initial))

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = self.mean(input)
        if not self.training:
            return output
        like = self.mean.weight
        count = self.mean.in_features + self.mean.out_features
        if like.device.type == "cpu":
            factors = np.empty(count, np.float32)
            _native.philox_factors(int(torch.empty((), dtype=torch.int64, device="cpu").random_()), 0, factors)
            noise = torch.from_numpy(factors).to(like.dtype)
        else:
            drawn = torch.randn(count, dtype=like.dtype, device=like.device)
            noise = drawn.sign() * drawn.abs().sqrt()
        inputs, outputs = noise.split_with_sizes((self.mean.in_features, self.mean.out_features))
        return output + outputs * linear(input * inputs, self.weight_deviation, self.bias_deviation)


def with_noise(module: nn.Module, deviation: float) -> nn.Module:
    """Replace every linear layer in `module` by a NoisyLinear with its weights as means, and return the result."""
    if isinstance(module, nn.Linear):
        return NoisyLinear(module, deviation)
    for name, child in module.named_children():
        setattr(module, name, with_noise(child, deviation))
    return module


def acting(module: nn.Module) -> nn.Module:
    """Put `module` into evaluation mode, except for the noise of NoisyLinear layers, and return it.

    This is the mode of collectors and of target networks: dropout is off, and the noise explores.
    """
    module.eval()
    for child in module.modules():
        if isinstance(child, NoisyLinear):
            child.training = True
    return module


# Initial values, which a sketch has none of. On "meta" torch would import 800 modules for these, which takes seconds.
DRAWS = frozenset({"normal_", "uniform_", "trunc_normal_"})


class _NoDraws(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if getattr(func, "__name__", "") in DRAWS:
            tensor = args[0] if args else named["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **named)


@contextmanager
def without_memory() -> Iterator[None]:
    """Build the networks of the block without memory: on torch's device "meta" a tensor has a shape and no values.

    It takes milliseconds, however large they are, so the sizes of a run are known before anything is allocated.
    Raises MemoryShort for a network whose bytes are no 64-bit number.
    """
    before = DEVICE.set("meta")
    try:
        with _NoDraws(), placeholder_weights():
            yield
    except (RuntimeError, OverflowError, TypeError) as error:
        if "overflow" not in str(error).lower():
            raise
        raise MemoryShort("the network has more parameters than any machine has room for") from None
    finally:
        DEVICE.reset(before)
