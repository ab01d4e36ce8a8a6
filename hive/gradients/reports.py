"""What an accumulator tells of its reductions, and the error for a gradient that is not finite.

The error is a NotFinite of hive.errors and also a RuntimeError, as RLPack documents. Nothing here computes.
"""

from __future__ import annotations

from dataclasses import dataclass

from hive.errors import NotFinite

__all__ = ["GradientNotFinite", "ReductionReport"]


class GradientNotFinite(NotFinite, RuntimeError):
    """NaN or infinity in a gradient; `parameter` is the first that has one."""

    def __init__(self, message: str, parameter: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class ReductionReport:
    """What the last reduction was made of, and what came out.

    `rounds` of `bootstrap_rounds` were held, of `weight` together; `norm` is the Euclidean norm over all parameters;
    `parameter` is the first that is not finite in the result, or "".
    """

    rounds: int
    bootstrap_rounds: int
    weight: float
    norm: float
    finite: bool
    parameter: str

    @property
    def partial(self) -> bool:
        """Whether fewer rounds were held than there can be."""
        return self.rounds < self.bootstrap_rounds
