"""Descriptions of gradients: the steps that hive._native makes consecutive updates of in one call.

    described = algorithm.described()          a Described; or, where only Python can make these gradients, the reason
    described = algorithm.described(memory)    the same of an algorithm that learns from a replay memory
    described.kinds                            the steps of one gradient, for native/include/hive/program.hpp
    described.batches.take(n)                  the batches of the next n of them

A reason is one of hive.records.summary.ROUNDS. A description belongs to gradients that `Algorithm.gradients` or
`ReplayAlgorithm.gradient` also makes, one by one, with the same bytes: both call the same functions in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hive import _native

Step: TypeAlias = tuple[str, dict[str, Any]]
"""The name of a step of a program, and its keys."""

BACKWARD: Step = ("backward", {"of": "network", "to_rows": None})
"""The backward pass of the forward pass `network`, to the gradient."""


class Batches(Protocol):
    """Protocol of the batches of a round: the numbers of their rows, int64 [M], or None for all rows in order."""

    def take(self, most: int) -> list[Tensor | None]: ...

    def put_back(self, numbers: Sequence[Tensor | None]) -> None: ...


Kind: TypeAlias = tuple[_native.Program, NDArray[np.uint8]]
"""The steps of a gradient, and a mask, uint8 [parameters], 1 for the parameters that they write."""


@dataclass(frozen=True)
class Described:
    """Consecutive gradients of some kinds. kind_of: returns which one gradient number n is.

    batches: those that are left of a round; None: drawn from a replay memory.
    """

    kinds: tuple[Kind, ...]
    batches: Batches | None = None
    kind_of: Callable[[int], int] = lambda number: 0


def describes(algorithm: object) -> bool:
    """Return whether the class of this algorithm describes its gradients.

    A subclass may make others than its base, and a wrapper adds to them: they need a `described` of their own. What a
    subclass adds by new names, its constructor and its `advantages`, which a description has got, change none.
    """
    classes = type(algorithm).__mro__
    describing = next((number for number, one in enumerate(classes) if "described" in vars(one)), None)
    if describing is None:
        return False
    changed = {name for one in classes[:describing] for name in vars(one) if not name.startswith("__")}
    return not any(hasattr(classes[describing], name) for name in changed - {"advantages"})


UNDESCRIBED = "algorithm.name: it does not describe its gradients"
MEMORY = "network.memory"
TORCH_COMPUTES = "network: some of its layers or heads are computed by torch"


class _NoBatches:
    """The batches of gradients without samples, of which there is no end."""

    def take(self, most: int) -> list[Tensor | None]:
        return [None] * most

    def put_back(self, numbers: Sequence[Tensor | None]) -> None:
        """Do nothing: there are always more."""


def without_samples(parameters: int) -> Described:
    """Return gradients of zero samples, for the rest of a round. parameters: their number in the network."""
    return Described((nothing(parameters),), _NoBatches())


def nothing(parameters: int) -> Kind:
    """Return a gradient of zero samples. parameters: their number in the network."""
    return _native.Program([]), np.zeros(parameters, np.uint8)


def kind(steps: Sequence[Step | None], mask: NDArray[np.uint8]) -> Kind | None:
    """Return a gradient of these steps; None if one of them is None, because torch computes it."""
    known = [step for step in steps if step is not None]
    return (_native.Program(known), mask) if len(known) == len(steps) else None


def described(steps: Sequence[Step | None], mask: NDArray[np.uint8], batches: Batches | None = None) -> Described | str:
    """Return gradients of one kind, of these steps; or why there are none."""
    made = kind(steps, mask)
    return TORCH_COMPUTES if made is None else Described((made,), batches)
