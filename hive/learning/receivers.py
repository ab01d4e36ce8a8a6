"""Receivers of gradients: the slot of a gradient worker, in a run.

`Approximation.reinforce` and `jointly` compute losses and hand over their backward passes as parts. The receiver makes
these on the bound weights and sends the gradient to the learner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive.learning.passes import RemotePass
from hive.networks.build.agents import LogSlope
from hive.networks.weights.dense import DensePass

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
    """One backward pass on a device from the slopes of a loss, which was computed in host memory.

    value: the loss. slopes: its gradients with respect to the first outputs, float32 of their shapes. inputs: as in a
    Part.
    """

    value: float
    inputs: tuple[Any, ...]
    forward: RemotePass
    slopes: tuple[NDArray[np.float32], ...]
    parameters = None

    def backward(self) -> None:
        """Add the gradient of the loss to `.grad` of the parameters."""
        pairs = zip(self.forward.tensors, self.slopes, strict=False)
        learned = [(output, slope) for output, slope in pairs if output.requires_grad]  # else its layers are frozen
        gradients = [torch.from_numpy(slope).to(output.device) for output, slope in learned]
        torch.autograd.backward([output for output, _ in learned], gradients)


@dataclass(frozen=True, slots=True)
class NativePart:
    """One backward pass by hive._native, which needs no graph: `forward.differentiate(slopes, gradient)`.

    value: the loss. slopes: its gradients with respect to the outputs. inputs: as in a Part.
    """

    value: float
    inputs: tuple[Any, ...]
    forward: DensePass | LogSlope
    slopes: tuple[NDArray[np.float32], ...]


ComputedPart: TypeAlias = NativePart | RemotePart
"""A backward pass of a loss that is computed already, without a graph."""
AnyPart: TypeAlias = Part | ComputedPart


@runtime_checkable
class GradientReceiver(Protocol):
    """The interface of an object that receives the gradients of approximations on one network.

    An attribute `device`, if it has one that is not None, is the torch.device on which the network computes.
    """

    def watch(self, outputs: Outputs) -> Outputs:
        """Mark and return outputs of the bound weights. Once other weights are bound, a loss on these is refused."""

    def reinforce(self, parts: Sequence[AnyPart], samples: int | None, statistics: Sequence[float]) -> None:
        """Compute one gradient from the parts, a mean over `samples`; an empty list is a gradient of 0 samples.

        statistics: means over the samples, for the metrics. Raises NetworkError without `samples`, and for a loss of
        outputs of earlier weights.
        """
