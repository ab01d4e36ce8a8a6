"""What peers share when updates are decentralised in library mode: the gradients of everybody, in one order.

Each of n threads brings its own and gets all n, by their places; who is early waits. Equal gradients in an equal order
make equal updates, so nobody has to send weights. A peer that fails breaks it for all, at once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

__all__ = ["GradientExchange"]

SHARE_S = 60.0  # a peer that brings nothing for so long is taken for lost


class GradientExchange:
    """Among the workers of these indices, in this order."""

    def __init__(self, indices: Sequence[int]) -> None:
        self._places = {index: place for place, index in enumerate(indices)}
        self._given: list[Any] = [None] * len(indices)
        self._barrier = threading.Barrier(len(indices), timeout=SHARE_S)

    def share(self, index: int, gradients: Any) -> list[Any]:
        """Brings the gradients of worker `index`; everybody's. Raises RuntimeError if a peer is gone."""
        self._given[self._places[index]] = gradients
        try:
            self._barrier.wait()
            everybody = list(self._given)
            self._barrier.wait()  # nobody brings the next before all have read these
        except threading.BrokenBarrierError:
            raise RuntimeError(f"a peer of gradient worker {index} has stopped or brought no gradient") from None
        return everybody

    def abort(self) -> None:
        """Wakes up whoever waits, with a RuntimeError. It cannot be used again."""
        self._barrier.abort()
