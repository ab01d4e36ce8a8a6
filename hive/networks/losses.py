"""The losses of a batch: every head's standard loss, weighted, and the L2 regularisation.

Arrays come from the caller and are checked here: a target [N, 1] against an output [N] would broadcast to
[N, N] and train on nonsense without an error.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from hive.errors import NetworkError
from hive.networks.architecture import Array, Inputs, Targets
from hive.networks.heads import Head

__all__ = ["checked_tensor", "extra_input_names", "l2_loss", "weighted_losses"]


def weighted_losses(
    heads: Sequence[Head],
    outputs: Sequence[Tensor],
    inputs: Inputs,
    targets: Targets,
    importance_weights: Array | Sequence[Array] | None = None,
) -> list[Tensor]:
    """The mean loss of every output times its head's weight; arguments as in `accumulate_gradients`."""
    if callable(targets):
        targets = targets(tuple(output.detach().numpy() for output in outputs))
    each_target = [targets] if isinstance(targets, np.ndarray) else targets
    if len(each_target) != len(heads):
        raise NetworkError(
            f"there are {len(heads)} outputs and {len(each_target)} targets", hint="one for each, in order"
        )
    each_weights: Sequence[Array | None]
    if importance_weights is None or isinstance(importance_weights, np.ndarray):
        each_weights = [importance_weights] * len(heads)
    else:
        each_weights = importance_weights
    losses = []
    for index, (head, target, weights) in enumerate(zip(heads, each_target, each_weights, strict=True)):
        output = outputs[index]
        batch = (len(output),)
        wanted = checked_tensor(target, "float32", batch + head.target_shape, f"target {index}")
        extra = [
            checked_tensor(inputs.get(name), dtype, batch + shape, f"input `{name}`")
            for name, (dtype, shape) in zip(_names_of(index, head), head.extra_inputs, strict=True)
        ]
        loss = head.loss(output, wanted, *extra)
        if weights is not None:
            loss = loss * checked_tensor(weights, "float32", batch, f"importance weights of output {index}")
        losses.append(head.settings.loss_weight * loss.mean())
    return losses


def l2_loss(module: nn.Module, weight: float) -> Tensor:
    """`weight` times half the sum of squares of the trainable matrices and kernels; biases are left out."""
    squares = [p.square().sum() for p in module.parameters() if p.requires_grad and p.dim() > 1]
    return 0.5 * weight * sum(squares, torch.zeros(()))


def extra_input_names(heads: Sequence[Head]) -> list[str]:
    """The names of all inputs that losses need beside targets: `output_0_0` for the first one of output 0."""
    return [name for index, head in enumerate(heads) for name in _names_of(index, head)]


def checked_tensor(array: Array | None, dtype: str, shape: tuple[int, ...], what: str) -> Tensor:
    """`array` as a tensor of that `shape`; NetworkError if it is missing, misshapen or of another kind."""
    if array is None:
        raise NetworkError(f"{what} is missing", hint=f"expected {dtype} {list(shape)}")
    values = np.asarray(array)
    if values.shape != shape or not np.can_cast(values.dtype, dtype, "same_kind"):
        raise NetworkError(f"{what} is {values.dtype} {list(values.shape)}, expected {dtype} {list(shape)}")
    return torch.from_numpy(np.ascontiguousarray(values, dtype))


def _names_of(index: int, head: Head) -> list[str]:
    return [f"output_{index}_{place}" for place in range(len(head.extra_inputs))]
