"""The report of a reduction, and the error for a non-finite gradient.

The error is a NotFinite of hive.errors and also a RuntimeError, as RLPack documents.
"""

from __future__ import annotations

from typing import NamedTuple

from hive.errors import NotFinite

__all__ = ["GradientNotFinite", "ReductionReport"]


class GradientNotFinite(NotFinite, RuntimeError):
    """A gradient contains NaN or infinity; `parameter` is the name of the first such parameter."""

    def __init__(self, message: str, parameter: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.parameter = parameter


class ReductionReport(NamedTuple):
    """The inputs and the outcome of a reduction.

    `rounds` of `bootstrap_rounds` were held, with the total `weight`; `norm` is the Euclidean norm over all parameters.
    If the result is not `finite`, `parameter` is the name of the first parameter with NaN or infinity, and `bad_round`
    the position of the first such round. They are "" and -1 if there is none, for example if only the sum of finite
    rounds overflows. `samples` is the total over adopted rounds, and 0 for others.
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
        """Whether fewer than `bootstrap_rounds` rounds were held."""
        return self.rounds < self.bootstrap_rounds
