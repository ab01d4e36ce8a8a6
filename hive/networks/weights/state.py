"""The block of a learner's state that holds networks: the weights and, optionally, a target network.

    weights, buffers     block_bytes    laid out as in hive.networks.weights.flat
    mean, deviation      [2] float64    of a round's advantages over all workers
    target version       [1] int64      1 + the number of updates before the target was set; 0: no target yet
    padding              to 64 bytes after the weights
    target               block_bytes    the target network's weights and buffers; only with a target network

One block holds one version of weights and target, and one store publishes it, so no reader can pair the weights of one
version with the target of another. Blocks are reused and a target changes rarely, so a block that already holds the
target of the required version is not written again. The target version is set to 0 before the bytes are written and to
its value afterwards, so a block whose writer was killed never counts as one with a target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hive.networks.weights.flat import ALIGNMENT, Bytes, FlatParameters, Floats, InitialWeights, polyak

# The greatest number of blocks whose views are cached. A board has fewer; scripts may always use new blocks.
VIEWED_BLOCKS = 128


class Version(NamedTuple):
    """A block of the state, uint8 [bytes], and its optimizer moments, each float32 [parameter_elements]."""

    block: Bytes
    moments: Sequence[Floats] = ()


class StateLayout:
    """The layout of a state block, uint8 [bytes]. `weight_bytes` is the size of weights and buffers.

    frozen: the ranges of parameters that require no gradient when the layout is made; they never change.
    """

    def __init__(self, flat: FlatParameters | InitialWeights, *, has_target: bool) -> None:
        self.flat = flat
        self.has_target = has_target
        self.frozen = flat.frozen()
        self.weight_bytes = flat.block_bytes
        self.bytes = self.weight_bytes + ALIGNMENT + (self.weight_bytes if has_target else 0)
        self._targets: dict[int, tuple[Bytes, Bytes]] = {}

    def weights(self, block: Bytes) -> Bytes:
        """Return a view of weights and buffers, uint8 [weight_bytes]."""
        return block[: self.weight_bytes]

    def parameters(self, block: Bytes) -> Floats:
        """Return a view of the weights alone, float32 [parameter_elements]."""
        return block[: self.flat.parameter_bytes].view(np.float32)

    def moments(self, block: Bytes) -> npt.NDArray[np.float64]:
        """Return a view of mean and deviation of a round's advantages, float64 [2]."""
        return block[self.weight_bytes : self.weight_bytes + 16].view(np.float64)

    def target_version(self, block: Bytes) -> npt.NDArray[np.int64]:
        """Return a view of the target's version, int64 [1]."""
        return block[self.weight_bytes + 16 : self.weight_bytes + 24].view(np.int64)

    def target(self, block: Bytes) -> Bytes:
        """Return a view of the target's weights and buffers, uint8 [weight_bytes].

        Calls with the same block return the same object, for which FlatParameters.bind caches its views.
        """
        known = self._targets.get(id(block))
        if known is None or known[0] is not block:
            if len(self._targets) >= VIEWED_BLOCKS:
                self._targets.clear()
            known = self._targets[id(block)] = (block, block[self.weight_bytes + ALIGNMENT : self.bytes])
        return known[1]

    def begin_target(self, block: Bytes) -> None:
        """Set the target of the first version to its weights."""
        self._write_target(self.weights(block), block, 1)

    def follow(self, before: Bytes, after: Bytes, rate: float, version: int) -> None:
        """Set the target of `after` to rate * its weights + (1 - rate) * the target of `before`; copy the buffers.

        rate: from 0 to 1. version: that of the new target. Rate 0 keeps the target of `before` and its version.
        """
        if rate == 0.0:
            version = self.target_version(before).item()
            if self.target_version(after).item() != version:
                self._write_target(self.target(before), after, version)
            return
        if rate == 1.0:
            self._write_target(self.weights(after), after, version)
            return
        size = self.flat.parameter_bytes
        old, new = self.target(before), self.target(after)
        self.target_version(after)[0] = 0
        target, moved = (block[:size].view(np.float32) for block in (old, new))
        polyak(target, self.parameters(after), moved, rate, self.frozen)
        new[size:] = self.weights(after)[size:]
        self.target_version(after)[0] = version

    def _write_target(self, source: Bytes, block: Bytes, version: int) -> None:
        self.target_version(block)[0] = 0
        self.target(block)[:] = source
        self.target_version(block)[0] = version
