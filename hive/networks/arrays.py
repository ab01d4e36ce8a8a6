"""Arrays that come from the caller: are they what the network takes?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from hive.errors import NetworkError
from hive.networks.architecture import Array, Inputs, Targets
from hive.networks.heads import Head
from hive.networks.losses import checked_tensor, extra_input_names
from hive.networks.recurrent import EPISODE_STARTS, RECURRENT_STATE
from hive.networks.spaces import InputSpec

__all__ = ["checked_inputs", "first_not_finite", "refuse_misfits"]


def checked_inputs(
    inputs: Inputs,
    specs: Mapping[str, InputSpec],
    needed: Sequence[str],
    heads: Sequence[Head],
    state_width: int,
    network: str,
    *,
    training: bool = False,
) -> tuple[Tensor | Mapping[str, Tensor], int]:
    """What a module is called with, and the number of samples.

    specs: the inputs there are; needed: those that must be given. state_width: 0 without a memory.
    training: refuse what is not finite and a batch of no samples, before layers such as BatchNorm have seen it.
    Raises NetworkError for an input that is unknown, missing, or of another shape or kind.
    """
    memory = [RECURRENT_STATE, EPISODE_STARTS] if state_width else []
    known = [*specs, *memory, *extra_input_names(heads)]
    for name in inputs:
        if name not in known:
            raise NetworkError(f"network `{network}` has no input `{name}`", hint=f"inputs: {', '.join(known)}")
    for name in [*needed, *memory[:1]]:
        if name not in inputs:
            raise NetworkError(f"network `{network}` needs the input `{name}`", hint=_hint_of(name, inputs))
    count = len(np.atleast_1d(inputs[needed[0]]))
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


def first_not_finite(
    inputs: Inputs, targets: Targets | None, importance_weights: Array | Sequence[Array] | None
) -> str:
    """The first array of a batch that holds NaN or infinity, as `target 1`; an empty text if there is none.

    Targets that are computed of the outputs are not looked at.
    """
    for name, array in inputs.items():
        if not np.isfinite(array).all():
            return f"input `{name}`"
    lists = ("target", targets), ("importance weights of output", importance_weights)
    for what, arrays in lists:
        if arrays is None or callable(arrays):
            continue
        for index, array in enumerate([arrays] if isinstance(arrays, np.ndarray) else arrays):
            if not np.isfinite(array).all():
                return f"{what} {index}"
    return ""


def refuse_misfits(views: Sequence[Array], given: Sequence[Array], what: str) -> None:
    """NetworkError if `given` have not the shapes of `views`, or cannot be converted to their dtypes."""
    shapes, expected = [np.shape(array) for array in given], [view.shape for view in views]
    if shapes != expected:
        raise NetworkError(
            f"{what} do not fit: shapes {shapes}, expected {expected}", hint="take them from an identical network"
        )
    for view, array in zip(views, given, strict=True):
        dtype = np.asarray(array).dtype
        if not np.can_cast(dtype, view.dtype, "same_kind"):
            raise NetworkError(f"{what} do not fit: {dtype} where {view.dtype} is expected")


def _memory(inputs: Inputs, count: int, width: int) -> dict[str, Tensor]:
    """The state that a recurrent network is given, and where episodes start if that is said."""
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
        return "begin with `initial_state(sequences)`, then give it the last output of the step before"
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
