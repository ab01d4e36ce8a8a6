"""Checks that arrays from the caller fit the network."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hive.compat.coach.architecture import Array, Inputs, Targets
from hive.compat.coach.losses import HeadLoss, caller_array, checked_tensor, extra_input_names
from hive.errors import NetworkError
from hive.networks.build.heads import Head
from hive.networks.build.spaces import InputSpec
from hive.networks.rows.inputs import EPISODE_STARTS, RECURRENT_STATE


def checked_inputs(
    inputs: Inputs,
    specs: Mapping[str, InputSpec],
    needed: Sequence[str],
    losses: Sequence[HeadLoss],
    state_width: int,
    network: str,
    *,
    training: bool = False,
) -> tuple[Tensor | Mapping[str, Tensor], int]:
    """Return the argument for the module (a tensor, or a mapping from names to tensors), and the number of samples.

    specs: all inputs of the network; needed: the names of the required ones. state_width: that of a recurrent
        network's state, else 0.
    training: also refuse non-finite values and an empty batch, before layers such as BatchNorm store them.
    Raises NetworkError for an input that is unknown, missing, or of another shape or kind.
    """
    inputs = merged_inputs(inputs)
    memory = [RECURRENT_STATE, EPISODE_STARTS] if state_width else []
    known = [*specs, *memory, *extra_input_names(losses)]
    for name in inputs:
        if name not in known:
            raise NetworkError(f"network `{network}` has no input `{name}`", hint=f"inputs: {', '.join(known)}")
    for name in [*needed, *memory[:1]]:
        if name not in inputs:
            raise NetworkError(f"network `{network}` needs the input `{name}`", hint=_hint_of(name, inputs))
    count = len(np.atleast_1d(caller_array(inputs[needed[0]], f"input `{needed[0]}`")))
    tensors = {
        name: checked_tensor(inputs[name], spec.dtype, (count, *spec.shape), f"input `{name}`")
        for name, spec in specs.items()
        if name in inputs
    }
    if state_width:
        tensors |= _memory(inputs, count, state_width)
    if training:
        _refuse_untrainable(tensors, count, network)
    if state_width or len(specs) > 1:
        return tensors, count
    return next(iter(tensors.values())), count


def merged_inputs(inputs: Any, more: Any = None) -> Inputs:
    """Return both mappings as one, `more` taking precedence. Raises NetworkError for anything but mappings."""
    for part in (inputs, {} if more is None else more):
        if not isinstance(part, Mapping):
            hint = 'for example {"observation": array}'
            raise NetworkError(f"inputs are a mapping from names to arrays, not {type(part).__name__}", hint=hint)
    return {**inputs, **(more or {})}


def first_not_finite(
    inputs: Inputs, targets: Targets | None, importance_weights: Array | Sequence[Array] | None
) -> str:
    """Return the name of the first array of a batch that holds NaN or infinity, such as `target 1`; "" if none does.

    Targets given as a function are not checked.
    """
    for name, array in inputs.items():
        if not np.isfinite(array).all():
            return f"input `{name}`"
    lists = ("target", targets), ("importance weights of output", importance_weights)
    for what, arrays in lists:
        if arrays is None or callable(arrays):
            continue
        for index, array in enumerate([arrays] if isinstance(arrays, np.ndarray) else arrays):
            if array is not None and not np.isfinite(array).all():
                return f"{what} {index}"
    return ""


def common_rows(*groups: Iterable[Array]) -> int:
    """Return the number of rows of all arrays. Raises NetworkError if there are none or their rows differ."""
    shapes = [caller_array(array, "an array of a batch").shape for group in groups for array in group]
    rows = {shape[:1] for shape in shapes}
    if len(rows) != 1 or rows == {()}:
        raise NetworkError(f"arrays of one batch must have equal numbers of rows, got {list(map(list, shapes))}")
    return int(shapes[0][0])


def chosen_outputs(outputs: Any, count: int, heads: Sequence[Head], network: str) -> list[int]:
    """Return the numbers of the requested outputs (None: all). Raises NetworkError for invalid numbers."""
    if outputs is None:
        return list(range(count))
    names = [head.settings.name for head in heads] + [""] * (count - len(heads))
    hint = "by number: " + ", ".join(f"{number} {name}".rstrip() for number, name in enumerate(names))
    if isinstance(outputs, str) or not isinstance(outputs, Sequence | np.ndarray):
        raise NetworkError(f"outputs of network `{network}` must be a list, not {outputs!r}", hint=hint)
    for output in outputs:
        if not is_output_number(output) or not 0 <= output < count:
            raise NetworkError(f"network `{network}` has no output {output!r}", hint=hint)
    return [int(output) for output in outputs]


def is_output_number(output: Any) -> bool:
    """Return whether `output` is a whole number of Python or NumPy; booleans are not."""
    return isinstance(output, numbers.Integral) and not isinstance(output, bool)


def refuse_misfits(views: Sequence[Array], given: Sequence[Array], what: str) -> None:
    """Raise NetworkError unless `given` have the shapes of `views` and can be converted to their dtypes.

    what: names the arrays in the message.
    """
    hint = "take them from an identical network"
    if not isinstance(given, Sequence) or len(given) != len(views):
        found = f"{len(given)} arrays" if isinstance(given, Sequence) else type(given).__name__
        raise NetworkError(f"{what} do not fit: {found}, expected a list of {len(views)} arrays", hint=hint)
    arrays = [caller_array(array, f"one of the {what}") for array in given]
    shapes, expected = [array.shape for array in arrays], [view.shape for view in views]
    if shapes != expected:
        raise NetworkError(f"{what} do not fit: shapes {shapes}, expected {expected}", hint=hint)
    for view, dtype in zip(views, (array.dtype for array in arrays), strict=True):
        if not np.can_cast(dtype, view.dtype, "same_kind"):
            raise NetworkError(f"{what} do not fit: {dtype} where {view.dtype} is expected")


def _memory(inputs: Inputs, count: int, width: int) -> dict[str, Tensor]:
    """Return the checked `recurrent_state` and, if given, `episode_starts`."""
    state = np.asarray(inputs[RECURRENT_STATE])
    sequences = len(state) if state.ndim == 2 else 0
    if not sequences or count % sequences:
        raise NetworkError(
            f"input `{RECURRENT_STATE}` is {state.dtype} {list(state.shape)}, for a batch of {count} rows",
            hint=f"float32 [B, {width}] for T * B rows, time-major; see `initial_state`",
        )
    tensors = {RECURRENT_STATE: checked_tensor(state, "float32", (sequences, width), f"input `{RECURRENT_STATE}`")}
    if EPISODE_STARTS in inputs:
        tensors[EPISODE_STARTS] = checked_tensor(inputs[EPISODE_STARTS], "uint8", (count,), f"input `{EPISODE_STARTS}`")
    return tensors


def _hint_of(name: str, inputs: Inputs) -> str:
    if name == RECURRENT_STATE:
        return "begin with `initial_state(sequences)`, then pass the last output of the previous step"
    return f"given: {', '.join(inputs)}"


def _refuse_untrainable(tensors: Mapping[str, Tensor], count: int, network: str) -> None:
    if not count:
        raise NetworkError(f"network `{network}` cannot be trained on a batch of no samples")
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise NetworkError(
                f"input `{name}` of network `{network}` is not finite; nothing was accumulated",
                hint="look for NaN in the observations of this batch",
            )
