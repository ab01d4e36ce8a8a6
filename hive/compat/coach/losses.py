"""The losses of a batch: every head's standard loss, weighted, and the L2 regularization.

The arrays of the caller are checked here, because a target [N, 1] and an output [N] would broadcast to
[N, N] and train on nonsense without an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hive.compat.coach.architecture import Array, Inputs, Targets
from hive.compat.coach.head_losses import HeadLoss
from hive.errors import NetworkError


def weighted_losses(
    heads: Sequence[HeadLoss],
    outputs: Sequence[Tensor],
    inputs: Inputs,
    targets: Targets,
    importance_weights: Array | Sequence[Array] | None = None,
) -> list[Tensor]:
    """Return the mean loss of every output times its head's weight, scalars with a graph.

    Arguments and errors are those of `Architecture.accumulate_gradients`.
    """
    if callable(targets):
        targets = targets(tuple(output.detach().numpy() for output in outputs))
    each_target = one_for_each(targets, len(heads), "targets")
    each_weights: Sequence[Array | None] = [None] * len(heads)
    if isinstance(importance_weights, np.ndarray):
        each_weights = [importance_weights] * len(heads)
    elif importance_weights is not None:
        each_weights = one_for_each(importance_weights, len(heads), "importance weights")
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
        losses.append(head.weight * loss.mean())
    return losses


def one_for_each(arrays: Any, outputs: int, what: str) -> Sequence[Array]:
    """Return a list of one array for each output. Raises NetworkError for anything but such a list or a single array.

    what: names the arrays in the message.
    """
    if isinstance(arrays, np.ndarray):
        arrays = [arrays]
    if not isinstance(arrays, Sequence | Tensor) or isinstance(arrays, str):
        found = "missing" if arrays is None else f"given as {type(arrays).__name__}"
        raise NetworkError(f"the {what} are {found}", hint="an array for each output, in order")
    if len(arrays) != outputs:
        raise NetworkError(f"there are {outputs} outputs and {len(arrays)} {what}", hint="one for each, in order")
    return arrays  # type: ignore[return-value]


def l2_loss(module: nn.Module, weight: float) -> Tensor:
    """Return `weight` times half the sum of squares of the trainable matrices and kernels, without biases."""
    squares = [p.square().sum() for p in module.parameters() if p.requires_grad and p.dim() > 1]
    return 0.5 * weight * sum(squares, torch.zeros((), dtype=torch.float32, device="cpu"))


def extra_input_names(heads: Sequence[HeadLoss]) -> list[str]:
    """Return the names of all extra inputs of the losses: `output_0_0` is the first one of output 0."""
    return [name for index, head in enumerate(heads) for name in _names_of(index, head)]


def checked_tensor(array: Array | None, dtype: str, shape: tuple[int, ...], what: str) -> Tensor:
    """Return `array` as a tensor of that dtype and `shape`; raises NetworkError if it is None or does not fit."""
    if array is None:
        raise NetworkError(f"{what} is missing", hint=f"expected {dtype} {list(shape)}")
    values = caller_array(array, what)
    if values.shape != shape or not np.can_cast(values.dtype, dtype, "same_kind"):
        raise NetworkError(f"{what} is {values.dtype} {list(values.shape)}, expected {dtype} {list(shape)}")
    return torch.from_numpy(np.ascontiguousarray(values, dtype))


def caller_array(values: Any, what: str) -> Array:
    """Return `values` as an array. Raises NetworkError if that fails, for example for rows of unequal lengths."""
    try:
        return np.asarray(values.detach() if isinstance(values, Tensor) else values)
    except (TypeError, ValueError) as error:
        raise NetworkError(f"{what} is not an array: {error}") from None


def _names_of(index: int, head: HeadLoss) -> list[str]:
    return [f"output_{index}_{position}" for position in range(len(head.extra_inputs))]
