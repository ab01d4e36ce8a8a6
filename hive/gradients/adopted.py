"""Adopted rounds: gradient slots, float32 or compressed, that an accumulator reduces in place.

    mean = (n_0 / n) f_0 g_0 + (n_1 / n) f_1 g_1 + ...     n = n_0 + n_1 + ...     in the order of adoption

Each weight is computed from left to right in float64 and rounded once to float32, and the sums are float32, so all
replicas of a learner compute bit-identical results. A round of zero samples is never read. The C++ accumulator stores
addresses and computes; this module keeps the slots alive and counts the parameters with a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from hive import _native
from hive.gradients.codecs import Codec

__all__ = ["AdoptedRounds", "Slot"]

Slot = Mapping[str, NDArray[Any]]


class AdoptedRounds:
    """The slots that `native` has adopted. `native` must have a layout for slots of `codec`."""

    def __init__(self, native: _native.GradAccumulator, codec: Codec) -> None:
        self._native = native
        self.codec = codec
        self.samples = 0
        """The number of samples of all rounds held."""
        self.held: list[tuple[Slot, int, float]] = []
        """The slot, the samples and the factor of every round, in the order of adoption."""

    def add(self, slot: Slot, samples: int, factor: float) -> None:
        """Adopts a slot. Raises ValueError and TypeError for one whose fields are not those of this codec."""
        try:
            self._native.adopt(slot, samples, factor)
        except KeyError as error:
            raise ValueError(f"the slot has no {error}, which the codec `{self.codec.name}` needs") from None
        self.held.append((slot, samples, factor))
        self.samples += samples

    def clear(self) -> None:
        """Releases all slots."""
        self._native.release()
        self.held.clear()
        self.samples = 0

    def counts(self, parameters: int) -> list[int]:
        """Returns for each parameter the number of rounds with a gradient of it, according to the slots' masks.

        parameters: how many there are; an accumulator without a list of parameters counts the whole gradient as one.
        """
        counts = [0] * parameters
        for slot, samples, _ in self.held:
            if samples:
                mask = slot["mask"]
                had = mask.tolist() if len(mask) == parameters else [mask.any()] * parameters
                counts = [count + bool(one) for count, one in zip(counts, had, strict=True)]
        return counts

    def copies(self) -> list[tuple[Slot, int, float]]:
        """Returns the rounds with copies of their slots."""
        return [({name: part.copy() for name, part in slot.items()}, n, f) for slot, n, f in self.held]
