"""One optimizer step on the present gradients: its stages, in a fixed order, and its report.

    unscale      compute the mean of the accumulated gradients (see means.py), and divide by the GradScaler's factor
    check        compute the global norm and check that it is finite
    clip         clip the gradient to the norm clip_grad
    optimizer    call the optimizer's step
    zero_grad    clear the gradients
    scheduler    log the learning rate, then change it
    target       update the target network
    checkpoint   call the checkpointer

The gradient comprises all parameters of the optimizer, even those of other models, because the step changes them. This
module has the first three stages, on lists of parameters; `Approximation.step` has all eight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from hive.errors import NetworkError
from hive.networks.weights.optimizers import clip_factor

STAGES = ("unscale", "check", "clip", "optimizer", "zero_grad", "scheduler", "target", "checkpoint")


@dataclass(frozen=True, slots=True)
class StepReport:
    """The report of one call of `step`.

    update: the number of updates, including this one unless it was skipped.
    stages: the executed stages in order, without those that were switched off or had nothing to do.
    norm: the gradient's Euclidean norm before clipping; None if neither clipping nor the check needed it.
    clipped_norm: the norm after clipping; equal to `norm` for a gradient within the limit.
    learning_rate: the rate of the optimizer's first group in this step.
    not_finite: the name of the first parameter with a non-finite gradient, or "".
    """

    update: int
    stages: tuple[str, ...]
    norm: float | None
    clipped_norm: float | None
    learning_rate: float
    not_finite: str = ""

    @property
    def skipped(self) -> bool:
        """Whether the step left the weights unchanged."""
        return "optimizer" not in self.stages


def parameters_with_gradients(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters of all groups that have a gradient.

    Clears the gradients of parameters that were frozen after their backward pass, because an optimizer steps whatever
    has a gradient.
    """
    held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    for parameter in held:
        if not parameter.requires_grad:
            parameter.grad = None
    return [parameter for parameter in held if parameter.grad is not None]


def scale_gradients(parameters: Sequence[Tensor], factor: float) -> None:
    """Multiply every gradient by `factor`, in place."""
    torch._foreach_mul_(_gradients(parameters), factor)


def gradient_norm(parameters: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm of all gradients together, a scalar; not finite only if some gradient is not.

    The squares of large float32 numbers overflow; the norm is then computed again in float64.
    """
    norm = get_total_norm(_gradients(parameters))
    if math.isfinite(norm) or not all(bool(torch.isfinite(g).all()) for g in _gradients(parameters)):
        return norm
    return get_total_norm([gradient.double() for gradient in _gradients(parameters)])


def clip_gradients(parameters: Sequence[Tensor], limit: float, norm: Tensor) -> float:
    """Scale all gradients so that their norm is at most `limit`, and return the norm afterwards."""
    factor = clip_factor(float(norm), limit)
    if factor != 1.0:
        scale_gradients(parameters, factor)
    return float(norm) * factor


def refuse_weight(weight: float) -> None:
    """Raise NetworkError for a weight of a loss that is not positive and finite."""
    if not 0.0 < weight < math.inf:
        raise NetworkError(
            f"the weight of a loss must be positive and finite, got {weight}",
            hint="for example the number of samples in the loss",
        )


def not_finite_name(optimizer: Optimizer, model: nn.Module) -> str:
    """Return the name of the optimizer's first parameter with a non-finite gradient; "" if all are finite."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for place, parameter in _places(optimizer):
        if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
            return names.get(id(parameter), place)
    return ""


def _places(optimizer: Optimizer) -> Iterator[tuple[str, Tensor]]:
    for number, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            yield f"parameter {index} of group {number}", parameter


def _gradients(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
