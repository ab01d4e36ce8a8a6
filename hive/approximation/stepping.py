"""One optimizer step on gradients that are there: its stages, in one order, and the report of it.

    unscale      the mean of what was accumulated is taken (see means.py); by the GradScaler, if there is one
    check        the global norm is taken; is everything finite?
    clip         to a norm of clip_grad
    optimizer    the optimizer's step
    zero_grad    gradients are cleared
    scheduler    the learning rate is logged, then changed
    target       the target network is updated
    checkpoint   the checkpointer is called

The gradient is that of the parameters which the optimizer holds, whosever they are: it is what the step applies. This
module has the first three stages, on lists of parameters; `Approximation.step` is all eight.
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
from hive.networks.clipping import clip_factor

__all__ = [
    "STAGES",
    "StepReport",
    "clip_gradients",
    "gradient_norm",
    "not_finite_name",
    "parameters_with_gradients",
    "refuse_weight",
    "scale_gradients",
]

STAGES = ("unscale", "check", "clip", "optimizer", "zero_grad", "scheduler", "target", "checkpoint")


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one call of `step` did.

    update: how many updates there have been, this one included if it was one.
    stages: those that were carried out, in their order; one that is switched off, or had nothing to do, is not there.
    norm: the gradient's Euclidean norm before clipping; None if neither clipping nor the check asked for it.
    clipped_norm: afterwards; equal to `norm` where nothing was cut off.
    learning_rate: of the optimizer's first group, in this step.
    not_finite: the first parameter whose gradient was not finite, or an empty text.
    """

    update: int
    stages: tuple[str, ...]
    norm: float | None
    clipped_norm: float | None
    learning_rate: float
    not_finite: str = ""

    @property
    def skipped(self) -> bool:
        """Whether the weights stayed as they were."""
        return "optimizer" not in self.stages


def parameters_with_gradients(optimizer: Optimizer) -> list[Tensor]:
    """The parameters of all groups that a backward pass has reached."""
    return [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def scale_gradients(parameters: Sequence[Tensor], factor: float) -> None:
    """Multiplies every gradient in place."""
    torch._foreach_mul_(_gradients(parameters), factor)


def gradient_norm(parameters: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all gradients together, a scalar: NaN or infinite only if a gradient is.

    Squares of large float32 numbers overflow; the norm is then taken again in float64.
    """
    norm = get_total_norm(_gradients(parameters))
    if math.isfinite(norm) or not all(bool(torch.isfinite(g).all()) for g in _gradients(parameters)):
        return norm
    return get_total_norm([gradient.double() for gradient in _gradients(parameters)])


def clip_gradients(parameters: Sequence[Tensor], limit: float, norm: Tensor) -> float:
    """Scales all gradients so that their norm is at most `limit`, and returns the norm afterwards."""
    factor = clip_factor(float(norm), limit)
    if factor != 1.0:
        scale_gradients(parameters, factor)
    return float(norm) * factor


def refuse_weight(weight: float) -> None:
    """Raises NetworkError for a weight of a loss that is not positive and finite."""
    if not 0.0 < weight < math.inf:
        raise NetworkError(f"the weight of a loss is positive, got {weight}", hint="for example its samples")


def not_finite_name(optimizer: Optimizer, model: nn.Module) -> str:
    """The first of the optimizer's parameters whose gradient is not finite; empty if all are."""
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
