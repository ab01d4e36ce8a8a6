"""Receivers of gradients, which replace torch optimizers in a run: they write the slot of the gradient worker.

An Approximation whose `optimizer` is a GradientReceiver makes no updates. Its `reinforce` passes the loss to the
receiver, which makes the backward pass on the bound weights and sends the gradient to the learner. The same algorithm
thus works in both cases: in a script its approximations have torch optimizers, in a run the receiver of their process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["AnyPart", "ComputedPart", "GradientReceiver", "NativePart", "Part", "RemotePart"]

Outputs = TypeVar("Outputs")


@dataclass(frozen=True, slots=True)
class Part:
    """One backward pass. `loss` is a scalar with a graph; `inputs` are those of its forward pass, for reports.

    parameters: the only parameters whose gradients are computed; None: all of the network.
    """

    loss: Tensor
    inputs: tuple[Any, ...]
    parameters: Sequence[nn.Parameter] | None = None

    @property
    def value(self) -> float:
        """The value of the loss."""
        return self.loss.item()

    def backward(self) -> None:
        """Add the gradient of the loss to `.grad` of the parameters."""
        inputs = None if self.parameters is None else list(self.parameters)
        torch.autograd.backward(self.loss, inputs=inputs)


@dataclass(frozen=True, slots=True)
class RemotePart:
    """One backward pass on a device from the gradients of a loss, which was computed in host memory.

    value: the loss. outputs: those of the network, with a graph. slopes: the gradients of the loss with respect to
    them, float32 of their shapes. inputs: as in a Part.
    """

    value: float
    inputs: tuple[Any, ...]
    outputs: tuple[Tensor, ...]
    slopes: tuple[NDArray[np.float32], ...]
    parameters = None

    def backward(self) -> None:
        """Add the gradient of the loss to `.grad` of the parameters."""
        pairs = zip(self.outputs, self.slopes, strict=True)
        learned = [(output, slope) for output, slope in pairs if output.requires_grad]  # else its layers are frozen
        gradients = [torch.from_numpy(slope).to(output.device) for output, slope in learned]
        torch.autograd.backward([output for output, _ in learned], gradients)


@dataclass(frozen=True, slots=True)
class NativePart:
    """One backward pass by hive._native, which needs no graph. `loss` is its value; `inputs` are as in a Part.

    mask: uint8 [parameters], 1 for those that it has a gradient of. differentiate: writes this gradient into float32
    [parameter_elements] and leaves the others as they are.
    """

    loss: float
    inputs: tuple[Any, ...]
    mask: NDArray[np.uint8]
    differentiate: Callable[[NDArray[np.float32]], None]


ComputedPart: TypeAlias = NativePart | RemotePart
"""A backward pass of a loss that is computed already, without a graph."""
AnyPart: TypeAlias = Part | ComputedPart


@runtime_checkable
class GradientReceiver(Protocol):
    """The interface of an object that receives the gradients of approximations on one network.

    An attribute `device`, if it has one that is not None, is the torch.device on which the network computes.
    """

    def watch(self, outputs: Outputs) -> Outputs:
        """Marks and returns outputs of the bound weights. Once other weights are bound, a loss on these is refused."""

    def reinforce(self, parts: Sequence[AnyPart], samples: int | None, statistics: Sequence[float]) -> None:
        """Computes one gradient from the parts, a mean over `samples`; an empty list is a gradient of 0 samples.

        statistics: means over the samples, for the metrics. Raises NetworkError without `samples`, and for a loss of
        outputs of earlier weights.
        """
