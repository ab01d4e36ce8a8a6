"""Networks for observations as they are stored: in rows of bytes, and the last k of them at once.

    rows uint8 [N, bytes] ─┬ numbers ─ normalizer ─┬ parts by path ─ network ─ outputs
                           ├ bytes ────────────────┘                           │ first output: forbidden
                           └ action mask ──────────────────────────────────────┘ actions become FORBIDDEN

The mask works on the first output of the network: the logits of discrete actions, the values of all actions, or the
distributions of their returns, of which all atoms become FORBIDDEN. What reads them (distributions, losses, greedy
play, loaded policies) therefore needs no knowledge of masks: a forbidden action has the probability 0 and is never the
best one. Huang and Ontanon 2020, "A Closer Look at Invalid Action Masking in Policy Gradient Algorithms", show that
this gives the gradient of the policy over the allowed actions.

Rollouts store each observation once. With `env.frame_stack = k` rows [N, k, *shape], oldest first, are put together
when the network is called (hive.algorithms.batches.frames). It gets them in the form of a single input:

    images [H, W]                     [N, k, H, W]        the frames are the channels
    images [C, H, W]                  [N, k * C, H, W]
    images [H, W, C]                  [N, H, W, k * C]    hive.declared says where the channels are
    numbers in bytes                  [N, k, *shape]
    anything else                     [N, k * elements]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from hive.declared import ABSENT, FIRST, LAST, NO_IMAGE
from hive.networks.build.spaces import InputArray, InputSpec, bounds_of, channels_at, counts_of
from hive.networks.rows.inputs import InputName, observation_of, state_width_of, with_observation


def seen_shape(spec: InputSpec) -> tuple[int, ...]:
    """Return the shape in which a network is given an observation: [k, *shape] if k observations are stacked."""
    stack = int(getattr(spec, "stack", 1))
    return (stack, *spec.shape) if stack > 1 else tuple(spec.shape)


def stacked_spec(spec: InputSpec, stack: int) -> InputSpec:
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
    if channels == ABSENT:
        return array((stack, *shape), channels=FIRST)
    if channels == LAST:
        return array((*shape[:2], stack * shape[2]), channels=LAST)
    return array((stack * shape[0], *shape[1:]), channels=FIRST)


def join_frames(frames: Tensor, spec: InputSpec, stack: int) -> Tensor:
    """Return frames [N, stack, *shape] as the input that `stacked_spec` describes."""
    shape = stacked_spec(spec, stack).shape
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
        self.mask = None  # as of `PackedNetwork`
        self.state_width = state_width_of(network)
        self._spec = spec
        self._stack = int(getattr(spec, "stack", 1))

    def forward(self, inputs: Any) -> tuple[Tensor, ...]:
        outputs: Any = self.network(with_observation(inputs, self.joined))
        return tuple(outputs)

    def forbidden(self, inputs: Any) -> None:
        """As of `PackedNetwork`."""

    def joined(self, frames: Tensor) -> Tensor:
        """Return frames as the input of `network`."""
        return join_frames(frames, self._spec, self._stack)

    @property
    def keeps_order(self) -> bool:
        """Whether the numbers of that input are those of the frames, in the same order."""
        return channels_at(self._spec) != LAST


FORBIDDEN = -1e8
"""The output of an action that is not allowed. It is finite, so that 0 * log 0 in the entropy is 0 and not NaN."""

FLOAT_BYTES = 4


@dataclass(frozen=True)
class MaskColumns:
    """The mask of `actions` actions, from byte `offset` of a row on. `earlier` bytes precede the newest row."""

    offset: int
    actions: int
    earlier: int = 0

    def forbids(self, rows: Tensor) -> Tensor:
        """Return which actions are not allowed, bool [N, actions], for rows uint8 [N, bytes] or [N, rows, bytes]."""
        newest = rows[:, -1] if rows.dim() > 2 else rows
        return newest[:, self.offset : self.offset + self.actions] == 0


def masked(output: Tensor, forbidden: Tensor) -> Tensor:
    """Return an output [N, actions] or [N, actions, atoms] that is FORBIDDEN for these actions, [N, actions]."""
    return output.masked_fill(forbidden if output.dim() == 2 else forbidden.unsqueeze(-1), FORBIDDEN)


@runtime_checkable
class PackedPart(InputSpec, Protocol):
    """A part of a row: an array of this shape and dtype at byte `offset`."""

    @property
    def name(self) -> str: ...

    @property
    def offset(self) -> int: ...


class PackedMask(Protocol):
    """The action mask of a row: uint8 [sum(choices)] at byte `offset`."""

    @property
    def choices(self) -> Sequence[int]: ...

    @property
    def offset(self) -> int: ...


@runtime_checkable
class PackedSpec(InputSpec, Protocol):
    """An observation that may be stored as a row: of `parts`, or as one array if there are none."""

    @property
    def parts(self) -> Sequence[PackedPart]: ...

    @property
    def mask(self) -> PackedMask | None: ...

    @property
    def floats(self) -> int:
        """Number of float32 elements with which a row begins."""

    @property
    def stack(self) -> int:
        """Number of rows, those of the last observations, that the network sees at once."""


def numbers_and_bytes(rows: Tensor, floats: int) -> tuple[Tensor, Tensor]:
    """Return views of rows uint8 [..., bytes]: their numbers float32 [..., floats], and all their bytes."""
    return rows[..., : FLOAT_BYTES * floats].view(torch.float32), rows


def views_of(rows: Tensor | tuple[Tensor, Tensor], floats: int) -> tuple[Tensor, Tensor]:
    """Return numbers and bytes of rows as `numbers_and_bytes` does; a pair of both is returned as it is."""
    return rows if isinstance(rows, tuple) else numbers_and_bytes(rows, floats)


class Parts(nn.Module):
    """Takes rows apart: numbers float32 [N, floats] and bytes uint8 [N, bytes] -> tensors by the paths of the parts.

    A single part has no path. stack: number of rows that the network sees at once; then each part is stacked. named:
    the keys are the names of the parts, for a custom module.
    """

    def __init__(self, spec: PackedSpec, stack: int, *, named: bool = False) -> None:
        super().__init__()
        self._stack = stack
        self._parts = tuple((part.name if named else part_key(part), _slice(part), part) for part in spec.parts)

    def forward(self, numbers: Tensor, whole: Tensor) -> Tensor | Mapping[InputName, Tensor]:
        parts: dict[InputName, Tensor] = {}
        for name, where, spec in self._parts:
            columns = (numbers if spec.dtype == "float32" else whole)[..., where]
            part = columns.reshape(*columns.shape[:-1], *spec.shape)
            parts[name] = join_frames(part, spec, self._stack) if self._stack > 1 else part
        return parts if len(parts) > 1 else next(iter(parts.values()))


def part_key(part: PackedPart) -> InputName:
    """Return the path of a part, which addresses it among the inputs of a network."""
    path: InputName = getattr(part, "path", (part.name,))
    return path


class PackedNetwork(nn.Module):
    """Takes rows apart, calls `network` with a mapping from the paths of parts to tensors, and applies the mask.

    Called with rows uint8 [N, bytes], or with what `numbers_and_bytes` returned, its numbers normalized. With one part
    the network gets this part alone, as it does for an observation that is not packed. A recurrent network gets its
    other inputs beside the parts. Of stacked rows [N, k, bytes] each part is stacked, and the newest mask counts.
    """

    def __init__(self, spec: PackedSpec, network: nn.Module, *, named: bool = False) -> None:
        """named: as for `Parts`."""
        super().__init__()
        self.network = network
        self.state_width = state_width_of(network)
        self.places: Mapping[InputName, tuple[InputSpec, int]] = {
            part.name if named else part_key(part): (part, part.offset) for part in spec.parts
        }
        """Each part, and the byte of a row that it begins at."""
        self._floats = spec.floats
        self._stack = spec.stack
        self._parts = Parts(spec, spec.stack, named=named)
        earlier, mask = (spec.stack - 1) * prod(spec.shape), spec.mask
        self.mask = None if mask is None else MaskColumns(mask.offset, sum(mask.choices), earlier)
        """The mask of the actions of the first output; None if all are allowed."""

    def forward(self, inputs: Any) -> tuple[Tensor, ...]:
        outputs: Any = self.network(with_observation(inputs, self.joined))
        forbidden = self.forbidden(inputs)
        return tuple(outputs) if forbidden is None else (masked(outputs[0], forbidden), *outputs[1:])

    def forbidden(self, inputs: Any) -> Tensor | None:
        """Return which actions the mask of these inputs forbids, bool [N, actions]; None without a mask."""
        return None if self.mask is None else self.mask.forbids(views_of(observation_of(inputs), self._floats)[1])

    def joined(self, rows: Tensor | tuple[Tensor, Tensor]) -> Tensor | Mapping[InputName, Tensor]:
        """Return rows as the input of `network`."""
        parts: Tensor | Mapping[InputName, Tensor] = self._parts(*views_of(rows, self._floats))
        return parts


def _slice(part: PackedPart) -> slice:
    """Return the columns of a part: of the numbers if it is float32, otherwise of the bytes."""
    first = part.offset // FLOAT_BYTES if part.dtype == "float32" else part.offset
    return slice(first, first + prod(part.shape))
