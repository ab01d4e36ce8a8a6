"""Networks that see the last k observations, oldest first: `env.frame_stack = k`.

Rollouts store each observation once, and rows [N, k, *shape] are put together when the network is called
(hive.algorithms.frames). It gets them in the form of a single input:

    images [H, W]                     [N, k, H, W]        the frames are the channels
    images [C, H, W]                  [N, k * C, H, W]
    images [H, W, C]                  [N, H, W, k * C]    the channel axis is found as in hive.networks.embedders
    anything else                     [N, k * elements]
"""

from __future__ import annotations

from math import prod
from typing import Any

from torch import Tensor, nn

from hive.networks.convolutions import ImageInput
from hive.networks.embedders import is_image
from hive.networks.inputs import state_width_of, with_observation
from hive.networks.spaces import InputArray, InputSpec

__all__ = ["StackedNetwork", "join_frames", "joined", "seen_shape"]


def seen_shape(spec: InputSpec) -> tuple[int, ...]:
    """Return the shape in which a network is given an observation: [k, *shape] if k observations are stacked."""
    stack = int(getattr(spec, "stack", 1))
    return (stack, *spec.shape) if stack > 1 else tuple(spec.shape)


def joined(spec: InputSpec, stack: int) -> InputSpec:
    """Return the input of the network that `stack` frames of this spec become."""
    shape = tuple(spec.shape)
    if stack == 1:
        return spec
    if not is_image(spec):
        return InputArray((stack * prod(shape),), spec.dtype)
    if len(shape) == 2:
        return InputArray((stack, *shape), spec.dtype)
    if ImageInput(shape).channels_last:
        return InputArray((*shape[:2], stack * shape[2]), spec.dtype)
    return InputArray((stack * shape[0], *shape[1:]), spec.dtype)


def join_frames(frames: Tensor, spec: InputSpec, stack: int) -> Tensor:
    """Return frames [N, stack, *shape] as the input that `joined` describes."""
    shape = joined(spec, stack).shape
    if is_image(spec) and len(spec.shape) == 3 and ImageInput(tuple(spec.shape)).channels_last:
        frames = frames.permute(0, 2, 3, 1, 4)
    return frames.reshape(frames.shape[0], *shape)  # `len` would be a constant in an export


class StackedNetwork(nn.Module):
    """Calls `network` with frames [N, k, *shape] in the form of one input."""

    def __init__(self, spec: InputSpec, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.state_width = state_width_of(network)
        self._spec = InputArray(tuple(spec.shape), spec.dtype)
        self._stack = int(getattr(spec, "stack", 1))

    def forward(self, inputs: Any) -> tuple[Tensor, ...]:
        outputs: Any = self.network(with_observation(inputs, self._joined))
        return tuple(outputs)

    def _joined(self, frames: Tensor) -> Tensor:
        return join_frames(frames, self._spec, self._stack)
