"""What an accumulator tells of its reductions, and the error for a gradient that is not finite.

The error is a NotFinite of hive.errors and also a RuntimeError, as RLPack documents. Nothing here computes.
"""

from __future__ import annotations

from typing import NamedTuple

from hive.errors import NotFinite

__all__ = ["GradientNotFinite", "ReductionReport"]


class GradientNotFinite(NotFinite, RuntimeError):
    """NaN or infinity in a gradient; `parameter` is the first that has one."""

    def __init__(self, message: str, parameter: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.parameter = parameter


class ReductionReport(NamedTuple):
    """What the last reduction was made of, and what came out.

    `rounds` of `bootstrap_rounds` were held, of `weight` together; `norm` is the Euclidean norm over all parameters.
    Where the result is not `finite`, `parameter` is the first parameter that has NaN or infinity, and `bad_round` the
    position of the first round that has; "" and -1 where there is none, as when finite rounds overflow together.
    `samples` is the total over adopted rounds, and 0 for others.
    """

    rounds: int
    bootstrap_rounds: int
    weight: float
    norm: float
    finite: bool
    parameter: str
    bad_round: int = -1
    samples: int = 0

    @property
    def partial(self) -> bool:
        """Whether fewer rounds were held than there can be."""
        return self.rounds < self.bootstrap_rounds
