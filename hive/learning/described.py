"""Descriptions of gradients: the steps that hive._native makes consecutive updates of in one call.

    described = algorithm.described()          a string: why only its own path makes these gradients
    described.program                          the steps of one gradient, for native/include/hive/program.hpp
    described.batches.take(n)                  the batches of the next n of them

A description belongs to gradients that `Algorithm.gradients` or `ReplayAlgorithm.gradient` also makes, one by one, with
the same bytes: both call the same functions in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hive import _native

Step: TypeAlias = tuple[str, dict[str, Any]]
"""The name of a step of a program, and its keys."""

BACKWARD: Step = ("backward", {})


class Batches(Protocol):
    """Protocol of the batches of a round: the numbers of their rows, int64 [M], or None for all rows in order."""

    def take(self, most: int) -> list[Tensor | None]: ...

    def put_back(self, numbers: Sequence[Tensor | None]) -> None: ...


@dataclass(frozen=True)
class Described:
    """Gradients of one program. mask: uint8 [parameters], 1 for those that they write.

    batches: those that are left of a round; None: drawn from a replay memory.
    """

    program: _native.Program
    mask: NDArray[np.uint8]
    batches: Batches | None = None


def describes(algorithm: object) -> bool:
    """Return whether the class of this algorithm describes its gradients.

    A subclass may make others than its base, and a wrapper adds to them: they need a `described` of their own.
    """
    return "described" in vars(type(algorithm))


UNDESCRIBED = "algorithm.name: its gradients are made by torch or by your own code"
TORCH_COMPUTES = "network: some of its layers or heads are computed by torch, noisy or dueling"


def described(steps: Sequence[Step | None], mask: NDArray[np.uint8], batches: Batches | None = None) -> Described | str:
    """Return gradients of these steps, or if one of them is None, because torch computes it, why there are none."""
    known = [step for step in steps if step is not None]
    return Described(_native.Program(known), mask, batches) if len(known) == len(steps) else TORCH_COMPUTES
