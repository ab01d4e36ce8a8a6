"""Networks that see the last k observations, oldest first: `env.frame_stack = k`.

Rollouts store each observation once, and rows [N, k, *shape] are put together when the network is called
(hive.algorithms.batches.frames). It gets them in the form of a single input:

    images [H, W]                     [N, k, H, W]        the frames are the channels
    images [C, H, W]                  [N, k * C, H, W]
    images [H, W, C]                  [N, H, W, k * C]    hive.declared says where the channels are
    numbers in bytes                  [N, k, *shape]
    anything else                     [N, k * elements]
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from torch import Tensor, nn

from hive.declared import ABSENT, EARLIER, FIRST, LAST, NO_IMAGE
from hive.networks.build.spaces import InputArray, InputSpec, bounds_of, channels_at, counts_of
from hive.networks.rows.inputs import state_width_of, with_observation

__all__ = ["StackedNetwork", "join_frames", "joined", "seen_shape"]


def seen_shape(spec: InputSpec) -> tuple[int, ...]:
    """Return the shape in which a network is given an observation: [k, *shape] if k observations are stacked."""
    stack = int(getattr(spec, "stack", 1))
    return (stack, *spec.shape) if stack > 1 else tuple(spec.shape)


def joined(spec: InputSpec, stack: int) -> InputSpec:
    """Return the input of the network that `stack` frames of this spec become."""
    shape, channels = tuple(spec.shape), channels_at(spec)
    if stack == 1:
        return spec
    if counts := counts_of(spec):
        return InputArray((stack, *shape), spec.dtype, (), (), NO_IMAGE, counts)
    low, high = (_repeated(bound, shape, channels, stack) for bound in bounds_of(spec))
    array = partial(InputArray, dtype=spec.dtype, low=low, high=high)
    if channels == NO_IMAGE:
        return array((stack * prod(shape),), channels=NO_IMAGE)
    again = EARLIER if getattr(spec, "channels", "") == EARLIER else ""  # env.rules = 1 judges the joined shape
    if channels == ABSENT:
        return array((stack, *shape), channels=again or FIRST)
    if channels == LAST:
        return array((*shape[:2], stack * shape[2]), channels=again or LAST)
    return array((stack * shape[0], *shape[1:]), channels=again or FIRST)


def join_frames(frames: Tensor, spec: InputSpec, stack: int) -> Tensor:
    """Return frames [N, stack, *shape] as the input that `joined` describes."""
    shape = joined(spec, stack).shape
    if channels_at(spec) == LAST:
        frames = frames.permute(0, 2, 3, 1, 4)
    return frames.reshape(frames.shape[0], *shape)  # `len` would be a constant in an export


def _repeated(bound: tuple[float, ...], shape: tuple[int, ...], channels: str, stack: int) -> tuple[float, ...]:
    """Return the bounds of all frames, in the order of their elements."""
    if len(bound) <= 1:
        return bound
    frames = np.broadcast_to(np.array(bound).reshape(shape), (stack, *shape))
    ordered = frames.transpose(1, 2, 0, 3) if channels == LAST else frames
    return tuple(ordered.ravel().tolist())


class StackedNetwork(nn.Module):
    """Calls `network` with frames [N, k, *shape] in the form of one input."""

    def __init__(self, spec: InputSpec, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.state_width = state_width_of(network)
        self._spec = spec
        self._stack = int(getattr(spec, "stack", 1))

    def forward(self, inputs: Any) -> tuple[Tensor, ...]:
        outputs: Any = self.network(with_observation(inputs, self._joined))
        return tuple(outputs)

    def _joined(self, frames: Tensor) -> Tensor:
        return join_frames(frames, self._spec, self._stack)
