"""The layers of image networks, in float32 or bfloat16, with weights that are float32 in both.

    images uint8 ─ ImageInput ─ Convolution, activation ... ─ Features ─ FeatureLayer ─ float32 [N, width]
                   one conversion                                        the first dense layer

Pixels in bytes are not divided by 255: the weights of the first convolution are, in every pass (likewise for other
declared ranges that begin at 0). That is 8,192 numbers
instead of 28,224 for each image of 84 x 84 x 4, and the gradients of the weights are those of divided pixels, up to
rounding.

With `precision = "bfloat16"` these layers convert their weights in every pass, so no cache can be out of date. Bytes
are exact in bfloat16. Everything after the first dense layer, the losses, and all gradients of weights that reach the
optimizer are float32.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hive.declared import ABSENT, LAST, Bounds
from hive.errors import NetworkError


def has_bfloat16_instructions() -> bool:
    """Whether this processor multiplies bfloat16 by AVX-512 or AMX. Without, torch emulates it, slower than float32."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def check_bfloat16() -> None:
    """Raise NetworkError if this processor has no bfloat16 instructions."""
    if not has_bfloat16_instructions():
        raise NetworkError(
            'precision = "bfloat16" would be slower than "float32" here: this processor has no bfloat16 instructions',
            hint='set network.precision = "float32"; the weights of a run fit both',
        )


class ImageInput(nn.Module):
    """Converts images [N, H, W, C], [N, C, H, W] or [N, H, W] to `dtype` [N, C, H, W].

    channels: where they are, as in hive.declared. bounds: numbers that become 0 and 1; if there is one range and it
    begins at 0, the first convolution divides by its end instead (`scale`).
    The result lies in memory as [N, H, W, C]: torch's convolutions on the CPU are then up to 1.8 times faster.
    """

    def __init__(
        self, shape: tuple[int, ...], channels: str, bounds: Bounds = ((), ()), dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.without_channels = channels == ABSENT
        self.channels_last = channels == LAST
        if self.without_channels:
            self.channels, self.height, self.width = 1, *shape
        elif self.channels_last:
            self.height, self.width, self.channels = shape
        else:
            self.channels, self.height, self.width = shape
        found = scaling(bounds, shape)
        self.scale = found if isinstance(found, float) else 1.0
        self._affine = None if isinstance(found, float) else found

    def forward(self, observations: Tensor) -> Tensor:
        images = observations if self._affine is None else scaled(observations, self._affine)
        if self.without_channels:
            images = images.unsqueeze(1)
        elif self.channels_last:
            images = images.permute(0, 3, 1, 2)
        # Bytes are moved before they are converted: there are a quarter as many, and both in one pass take longer.
        return images.contiguous(memory_format=torch.channels_last).to(self.dtype)


Affine: TypeAlias = tuple[Tensor, Tensor]
"""float32 [*shape] or []: the shift and the factor of each element."""


def scaling(bounds: Bounds, shape: tuple[int, ...]) -> float | Affine | None:
    """Return the factor of all elements where one range begins at 0; else shifts and factors; None without bounds."""
    low, high = (np.array(bound, np.float64) for bound in bounds)
    if not low.size:
        return None
    if low.size == 1 and low[0] == 0.0:
        return 1.0 / float(high[0])
    each = () if low.size == 1 else shape
    factors = 1.0 / (high - low)
    shift, factor = (torch.from_numpy(one.astype(np.float32).reshape(each)) for one in (low, factors))
    return shift, factor


def scaled(numbers: Tensor, affine: Affine) -> Tensor:
    """Return numbers [N, *shape] of any dtype in the scale of their bounds, float32."""
    shift, factor = affine
    return (numbers.to(torch.float32) - shift) * factor


class Convolution(nn.Conv2d):
    """A convolution of `scale` times its input, [N, C, H, W] of `dtype`, with float32 weights; returns `dtype`."""

    def __init__(self, *shape: Any, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> None:
        """shape: the positional arguments of torch.nn.Conv2d, from the number of channels to the padding."""
        super().__init__(*shape)
        self.scale = scale
        self.compute_dtype = dtype

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight if self.scale == 1.0 else self.weight * self.scale
        assert self.bias is not None
        weight, bias = weight.to(self.compute_dtype), self.bias.to(self.compute_dtype)
        return functional.conv2d(input, weight, bias, self.stride, self.padding)


class Features(nn.Module):
    """Flattens [N, C, H, W] to `dtype` [N, C * H * W]."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1).to(self.dtype)


class FeatureLayer(nn.Linear):
    """A linear layer that computes in bfloat16: bfloat16 [N, inputs] -> float32 [N, outputs], with float32 weights."""

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = self.weight.to(torch.bfloat16), self.bias.to(torch.bfloat16)
        return functional.linear(input, weight, bias).to(torch.float32)
