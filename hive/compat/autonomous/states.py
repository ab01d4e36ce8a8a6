"""States, the arguments of the networks of this package.

    a tensor             observations [N, *shape]; no state is terminal
    a mapping            "observation" [*leading, *shape] and optionally "mask" [*leading]
    an object            with attributes of these names, such as a State of autonomous-learning-library

The mask is 0 for terminal states, whose value is 0, and 1 for the others. Its axes are those of the states: a mask []
is a single state, [T, B] an array of them. Without a mask the first axis is that of the states.

A model is always called with one batch axis, and its result is reshaped to the axes of the states.

The value of a terminal state must be 0 even if its observation or the model's output for it is not finite. Setting the
value afterwards is not enough: the backward pass would multiply its gradient 0 by an infinity in the model, which is
NaN. So `over_live_states` replaces the terminal state by another one for the model, and `masked` then sets the value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from hive.errors import NetworkError

States: TypeAlias = Any  # a tensor, a mapping or an object, see above

HINT = "give a tensor [N, *shape], or a mapping with `observation` and `mask`"


def observation_of(states: States) -> Tensor:
    """Return the observations, [*leading, *shape]. Raises NetworkError for states without them."""
    found = states if isinstance(states, Tensor) else _entry(states, "observation")
    if not isinstance(found, Tensor):
        kind = type(states).__name__ if found is None else f"{type(found).__name__} as `observation`"
        raise NetworkError(f"states are given as {kind}, which has no tensor of observations", hint=HINT)
    return found


def leading_shape(states: States) -> torch.Size:
    """Return the shape of the states, `leading`. Raises NetworkError if mask and observations do not fit."""
    observation, mask = observation_of(states), _mask_of(states)
    if mask is None:
        if observation.dim() == 0:
            raise NetworkError("observations of shape [] have no batch axis", hint=HINT)
        return observation.shape[:1]
    if observation.shape[: mask.dim()] != mask.shape:
        raise NetworkError(
            f"a mask {list(mask.shape)} does not fit observations {list(observation.shape)}",
            hint="the mask needs one number for each state",
        )
    return mask.shape


def over_states(model: Callable[..., Any], states: States, *extra: Tensor) -> Tensor:
    """Call `model` with the observations and `extra` as [N, ...]; return its result as [*leading, ...].

    extra: [*leading, ...], further arguments of the model. The mask is not applied. Raises NetworkError if the result
    is not a tensor with N rows.
    """
    leading = leading_shape(states)
    return _with_axes(model(*_batches(leading, states, extra)), leading)


def over_live_states(model: Callable[..., Any], states: States, *extra: Tensor, keep_finite: bool = False) -> Tensor:
    """Do what `over_states` does, with every terminal state replaced by the first one that is not terminal.

    If all states are terminal, the model gets zeros. keep_finite: replace only rows that are not finite.
    """
    leading = leading_shape(states)
    batches, mask = _batches(leading, states, extra), _mask_of(states)
    if mask is not None and leading.numel():
        live = mask.reshape(-1) != 0
        batches = [_without_terminal(batch, live.to(batch.device), keep_finite) for batch in batches]
    return _with_axes(model(*batches), leading)


def _batches(leading: torch.Size, states: States, extra: Sequence[Tensor]) -> list[Tensor]:
    axes, count = len(leading), leading.numel()
    return [argument.reshape((count, *argument.shape[axes:])) for argument in (observation_of(states), *extra)]


def _without_terminal(batch: Tensor, live: Tensor, keep_finite: bool) -> Tensor:
    """Return `batch` [N, ...] with terminal rows replaced by the first live one, without synchronizing a device."""
    first = batch.index_select(0, live.to(torch.uint8).argmax().reshape(1))
    first = torch.where(live.any(), first, torch.zeros_like(first))
    kept = live | torch.isfinite(batch.flatten(1)).all(1) if keep_finite and batch.dim() > 1 else live
    return torch.where(kept.reshape(-1, *[1] * (batch.dim() - 1)), batch, first)


def _with_axes(result: Any, leading: torch.Size) -> Tensor:
    count = leading.numel()
    if not isinstance(result, Tensor) or result.dim() == 0 or len(result) != count:
        found = list(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise NetworkError(
            f"the model returns {found} for {count} states",
            hint="return one tensor with a row for each state",
        )
    return result.reshape((*leading, *result.shape[1:]))


def masked(values: Tensor, states: States, terminal: Tensor | None = None) -> Tensor:
    """Return `values` [*leading, ...] with those of terminal states replaced by 0, or by the row `terminal`."""
    mask = _mask_of(states)
    if mask is None:
        return values
    live = (mask.to(values.device) != 0).reshape((*mask.shape, *[1] * (values.dim() - mask.dim())))
    return torch.where(live, values, values.new_zeros(()) if terminal is None else terminal.to(values.dtype))


def with_observation(states: States, features: Tensor) -> States:
    """Return a copy of the states with `features` as observations and everything else unchanged.

    Raises NetworkError for an object that is neither a mapping nor a dataclass and has no method `update(name, value)`.
    """
    if isinstance(states, Tensor):
        return features
    if not hasattr(states, "observation") and isinstance(states, Mapping):
        return {**states, "observation": features}
    if dataclasses.is_dataclass(states) and not isinstance(states, type):
        return dataclasses.replace(states, observation=features)
    changed = states.update("observation", features) if hasattr(states, "update") else None
    if changed is None:
        raise NetworkError(
            f"the observations of a `{type(states).__name__}` cannot be replaced",
            hint="make it a dataclass, or add a method update(name, value) that returns a changed copy",
        )
    return changed


def action_tensor(
    actions: Tensor | Sequence[Any], leading: torch.Size, device: torch.device, count: int | None = None
) -> Tensor:
    """Return discrete actions as int64 [*leading] on `device`.

    actions: a tensor, or a list of numbers or of tensors, one action for each state. count: the size of the action
    space. Raises NetworkError if the number of actions is wrong (torch would broadcast them), if they are not whole
    numbers, or if actions in host memory are not below `count`. On another device the last check is left out, because
    it would synchronise the device.
    """
    if not isinstance(actions, Tensor):
        if not isinstance(actions, Iterable) or any(isinstance(action, str) for action in actions):
            raise NetworkError(f"discrete actions are whole numbers, not {actions!r}", hint="one for each state")
        parts = [torch.as_tensor(action, device=device).reshape(-1) for action in actions]
        actions = torch.cat(parts).reshape(leading) if sum(map(len, parts)) == leading.numel() else torch.zeros(0)
    if actions.shape != leading:
        raise NetworkError(f"actions do not fit states {list(leading)}", hint="give one action for each state")
    if actions.is_floating_point() or actions.is_complex():
        raise NetworkError(f"discrete actions are whole numbers, these are {actions.dtype}")
    outside = count is not None and actions.device.type == "cpu" and ((actions < 0) | (actions >= count))
    if isinstance(outside, Tensor) and bool(outside.any()):
        found = f"{int(actions.min())} to {int(actions.max())}"
        raise NetworkError(f"actions range from {found}, but there are only {count}", hint="actions are counted from 0")
    return actions.to(device, torch.int64)


def _mask_of(states: States) -> Tensor | None:
    mask = None if isinstance(states, Tensor) else _entry(states, "mask")
    if mask is None:
        return None
    try:
        return mask if isinstance(mask, Tensor) else torch.as_tensor(mask, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise NetworkError(f"the mask of these states is not a tensor: {error}", hint=HINT) from None


def _entry(states: States, name: str) -> Any:
    if hasattr(states, name):
        return getattr(states, name)
    return states.get(name) if isinstance(states, Mapping) else None
