"""Adopted rounds: gradient slots that an accumulator reduces where they lie, as float32 or compressed.

    mean = (n_0 / n) f_0 g_0 + (n_1 / n) f_1 g_1 + ...     n = n_0 + n_1 + ...     in the order of adoption

Each weight is computed from left to right in float64 and rounded once to float32, and the sums are float32, so every
replica of a learner gets the same bytes. A round of zero samples is never read. The C++ accumulator keeps addresses and
does the work; this module keeps the slots, and knows which parameters had a gradient.
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
    """The slots that `native` has adopted. `native` is prepared for slots of `codec`."""

    def __init__(self, native: _native.GradAccumulator, codec: Codec) -> None:
        self._native = native
        self.codec = codec
        self.samples = 0
        """Total over the rounds held."""
        self.held: list[tuple[Slot, int, float]] = []
        """The slot, the samples and the factor of every round, in the order of adoption."""

    def add(self, slot: Slot, samples: int, factor: float) -> None:
        """Adopts a slot. Raises ValueError and TypeError for one that is not drawn for this codec."""
        try:
            self._native.adopt(slot, samples, factor)
        except KeyError as error:
            raise ValueError(f"the slot has no {error}: it holds no gradient of `{self.codec.name}`") from None
        self.held.append((slot, samples, factor))
        self.samples += samples

    def clear(self) -> None:
        """Releases all slots."""
        self._native.release()
        self.held.clear()
        self.samples = 0

    def counts(self, parameters: int) -> list[int]:
        """Returns in how many rounds each parameter had a gradient, by the slots' masks.

        Without a list of its parameters, the whole gradient counts as one.
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
