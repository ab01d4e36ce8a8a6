"""The block of a learner's state that holds networks: weights, and a target network where there is one.

    weights, buffers     block_bytes    as hive.networks.flat draws them
    mean, deviation      [2] float64    of a round's advantages over all workers
    target version       [1] int64      1 + the number of updates before the target was taken; 0: none has been
    padding              to 64 bytes after the weights
    target               block_bytes    the target network's weights and buffers; only with a target network

One block is one version of everything, so weights and target change by one store and no reader can pair the weights of
one version with the target of another. Blocks are used again and again, and a target changes seldom: where the block to
be written already holds the target of that version, nothing is copied. The version is set after the bytes, and to 0
before them, so that a block whose writer was killed is never taken for one that holds a target.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hive import _native
from hive.networks.flat import ALIGNMENT, FlatParameters

__all__ = ["StateLayout"]

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

VIEWED_BLOCKS = 128  # more than a board has; in library use, where blocks may be new every time, views are forgotten


class StateLayout:
    """Where things lie in a block of the state. `bytes` is its size; `weight_bytes` that of weights and buffers."""

    def __init__(self, flat: FlatParameters, *, has_target: bool) -> None:
        self.flat = flat
        self.has_target = has_target
        self.weight_bytes = flat.block_bytes
        self.bytes = self.weight_bytes + ALIGNMENT + (self.weight_bytes if has_target else 0)
        self._targets: dict[int, tuple[Bytes, Bytes]] = {}

    def weights(self, block: Bytes) -> Bytes:
        """Weights and buffers, uint8 [weight_bytes]."""
        return block[: self.weight_bytes]

    def parameters(self, block: Bytes) -> Floats:
        """The weights alone, float32 [parameter_elements]."""
        return block[: self.flat.parameter_bytes].view(np.float32)

    def moments(self, block: Bytes) -> npt.NDArray[np.float64]:
        """Mean and deviation of a round's advantages, float64 [2]."""
        return block[self.weight_bytes : self.weight_bytes + 16].view(np.float64)

    def target_version(self, block: Bytes) -> npt.NDArray[np.int64]:
        """The target's version, int64 [1]."""
        return block[self.weight_bytes + 16 : self.weight_bytes + 24].view(np.int64)

    def target(self, block: Bytes) -> Bytes:
        """The target's weights and buffers, uint8 [weight_bytes]; the same object each time for the same block."""
        known = self._targets.get(id(block))
        if known is None or known[0] is not block:
            if len(self._targets) >= VIEWED_BLOCKS:
                self._targets.clear()
            known = self._targets[id(block)] = (block, block[self.weight_bytes + ALIGNMENT : self.bytes])
        return known[1]

    def begin_target(self, block: Bytes) -> None:
        """Makes the target of a first version: equal to its weights."""
        self._write_target(self.weights(block), block, 1)

    def follow(self, before: Bytes, after: Bytes, rate: float, version: int) -> None:
        """The target of `after` = rate * its weights + (1 - rate) * the target of `before`; buffers are copied.

        version: that of the new target. A rate of 0 keeps the target of `before` and its version.
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
        _native.polyak(old[:size].view(np.float32), self.parameters(after), new[:size].view(np.float32), rate)
        new[size:] = self.weights(after)[size:]
        self.target_version(after)[0] = version

    def _write_target(self, source: Bytes, block: Bytes, version: int) -> None:
        self.target_version(block)[0] = 0
        self.target(block)[:] = source
        self.target_version(block)[0] = version
