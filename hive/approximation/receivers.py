"""Where a gradient goes that no torch optimizer steps: in a run, into the slot of the gradient worker.

An Approximation whose `optimizer` is a GradientReceiver makes no updates of its own. Its `reinforce` hands the loss
over; the receiver makes the backward pass, on the weights that are bound, and passes the gradient on. So an algorithm
is written once: in a plain script its approximations have torch optimizers, in a run the receiver of their process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

__all__ = ["GradientReceiver", "Part"]

Outputs = TypeVar("Outputs")


@dataclass(frozen=True, slots=True)
class Part:
    """One backward pass. `loss` is a scalar with a graph; `inputs` are those of its forward pass, for reports.

    parameters: the only ones that it reaches; None: all of the network.
    """

    loss: Tensor
    inputs: tuple[Any, ...]
    parameters: Sequence[nn.Parameter] | None = None


@runtime_checkable
class GradientReceiver(Protocol):
    """Takes the gradients of approximations on one network."""

    def watch(self, outputs: Outputs) -> Outputs:
        """Marks outputs of the weights that are bound now: a loss of them is refused once others are bound."""

    def reinforce(self, parts: Sequence[Part], samples: int | None, statistics: Sequence[float]) -> None:
        """Makes one gradient of the parts, a mean over `samples`. Raises NetworkError."""
