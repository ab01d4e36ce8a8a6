"""Where the arrays of plain layers lie, for hive._native: in the block of the parameters, or in one derived from it.

    parameters ──> derived block ──> _native.DenseNetwork ──> its gradient ──> gradient of the parameters

Noisy layers and dueling streams are plain layers whose weights are derived (native/include/hive/derived_weights.hpp).
Their noise is drawn in the order in which torch draws it, from the same words (hive.networks.build.layers.NoisyLinear),
so that both make the same pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive import _native
from hive.networks.build.layers import NoisyLinear
from hive.networks.build.value_heads import TwoStreams
from hive.networks.weights.flat import FlatLayout, Floats, aligned_block

PAD = 16  # floats: every array begins at a multiple of 64 bytes


class Places:
    """The offsets of arrays in the block of the parameters, in floats."""

    def __init__(self, flat: FlatLayout) -> None:
        self.flat = flat

    def of(self, parameter: Tensor) -> int:
        """Return the offset of a parameter."""
        return self.flat.field_of(cast(nn.Parameter, parameter)).offset // 4

    def linear(self, layer: nn.Linear | NoisyLinear) -> dict[str, int]:
        """Return the offsets of the weight and the bias of a linear layer."""
        assert isinstance(layer, nn.Linear)
        return {"weight": self.of(layer.weight), "bias": self.of(layer.bias)}


class DerivedPlaces(Places):
    """The offsets of arrays in a derived block, which grows with each array that is asked for."""

    def __init__(self, flat: FlatLayout) -> None:
        super().__init__(flat)
        self.size = 0
        self.layers: list[NoisyLinear] = []
        self._copies: list[Mapping[str, int]] = []
        self._noisy: list[Mapping[str, int]] = []
        self._streams: list[Mapping[str, int]] = []

    def of(self, parameter: Tensor) -> int:
        place = self._room(parameter.numel())
        self._copies.append({"from": super().of(parameter), "to": place, "count": parameter.numel()})
        return place

    def linear(self, layer: nn.Linear | NoisyLinear) -> dict[str, int]:
        if isinstance(layer, nn.Linear):
            return super().linear(layer)
        inputs, outputs = layer.mean.in_features, layer.mean.out_features
        places = {"weight": self._room(inputs * outputs), "bias": self._room(outputs)}
        parameters = {
            "mean_weight": layer.mean.weight,
            "mean_bias": layer.mean.bias,
            "weight_deviation": layer.weight_deviation,
            "bias_deviation": layer.bias_deviation,
        }
        offsets = {name: super(DerivedPlaces, self).of(parameter) for name, parameter in parameters.items()}
        self._noisy.append({"inputs": inputs, "outputs": outputs, **offsets, **places})
        self.layers.append(layer)
        return places

    def join(self, head: TwoStreams, program: list[dict[str, Any]]) -> None:
        """End a program, whose last layer makes the columns of this head, with the values of all actions."""
        atoms, outputs = head.streams
        last = program[-1]
        apart = head.value is not None and head.advantage is not None
        if head.value is not None and head.advantage is not None:
            last["activation"] = "relu"
            inputs = last["outputs"] // 2
            value, advantage = self.linear(head.value), self.linear(head.advantage)
        else:
            inputs, value = last["inputs"], {name: last[name] for name in ("weight", "bias")}
            advantage = {"weight": value["weight"] + atoms * inputs, "bias": value["bias"] + atoms}
            program.pop()
        width = 2 * inputs if apart else inputs
        places = {"weight": self._room(outputs * width), "bias": self._room(outputs)}
        streams = {
            f"{name}_{array}": place[array]
            for name, place in (("value", value), ("advantage", advantage))
            for array in place
        }
        shape = {"inputs": inputs, "apart": apart, "actions": outputs // atoms, "atoms": atoms}
        self._streams.append({**shape, **streams, **places})
        program.append({"inputs": width, "outputs": outputs, "activation": "none", **places})

    def derivation(self) -> Derivation:
        """Return what writes the block of all arrays that were asked for."""
        elements = self.flat.parameter_elements
        native = _native.DerivedWeights(self._copies, self._noisy, self._streams, elements, self.size)
        return Derivation(native, self.size, self.layers)

    def _room(self, count: int) -> int:
        place = self.size
        self.size += -(-count // PAD) * PAD
        return place


def noise_words(count: int, generator: torch.Generator | None = None) -> NDArray[np.int64]:
    """Draw one word for each of `count` noisy layers (hive.networks.build.layers.NoisyLinear).

    generator: None: torch's own.
    """
    words: NDArray[np.int64] = torch.empty(count, dtype=torch.int64, device="cpu").random_(generator=generator).numpy()
    return words


class Derivation:
    """Writes derived blocks and the gradients of parameters. layers: those with noise, in the order of their passes."""

    def __init__(self, native: _native.DerivedWeights, size: int, layers: list[NoisyLinear]) -> None:
        self.size = size
        self._native = native
        self._layers = layers
        self._slopes = self.block()
        ends = np.cumsum([0, *(layer.mean.in_features + layer.mean.out_features for layer in layers)]).tolist()
        self._parts = [slice(first, end) for first, end in pairwise(ends)]

    def block(self) -> Floats:
        """Return an empty derived block."""
        return aligned_block(4 * self.size).view(np.float32)

    def factors(self, count: int) -> Floats:
        """Draw the noise of one pass through the first `count` noisy layers; zero for those that evaluate."""
        factors = np.zeros(self._native.factors, np.float32)
        pairs = zip(self._layers[:count], self._parts, strict=False)
        drawing = [part for layer, part in pairs if layer.training]
        if drawing:
            for word, part in zip(noise_words(len(drawing)).tolist(), drawing, strict=True):
                _native.philox_factors(word, 0, factors[part])
        return factors

    def described(self, count: int, *, all_draw: bool) -> dict[str, Any]:
        """Return the keys of a pass of a `_native.Program` through the first `count` noisy layers.

        all_draw: whether also those draw noise that evaluate now.
        """
        pairs = zip(self._layers[:count], self._parts, strict=False)
        drawing = [(part.start, part.stop - part.start) for layer, part in pairs if layer.training or all_draw]
        return {"weights": self._native, "drawing": drawing}

    def derive(self, weights: Floats, factors: Floats, block: Floats) -> None:
        """Write the derived block of these weights and this noise."""
        self._native.forward(weights, factors, block)

    def slopes(self) -> Floats:
        """Return the memory for the gradient of a derived block, with zeros."""
        self._slopes[:] = 0.0
        return self._slopes

    def spread(self, factors: Floats, slopes: Floats, gradient: Floats) -> None:
        """Write the gradient of the parameters from that of the derived block."""
        self._native.backward(factors, slopes, gradient)
