"""The named parameters that a caller passes to an accumulator: checks of their names, and their gradients.

A frozen parameter counts as zeros, even if its `.grad` holds an earlier gradient. Nothing is copied here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from hive.compat.rlpack.rounds import GradientField


def gradients_of(names: Sequence[str], parameters: Sequence[Any], *, strict: bool) -> list[Tensor | None]:
    """Return the `.grad` of every parameter; None for a frozen one, and for one that did not enter the loss.

    Raises RuntimeError for the latter if `strict`, and if no parameter has a gradient; TypeError for plain tensors.
    """
    gradients: list[Tensor | None] = []
    missing = ""
    found = 0
    for name, parameter in zip(names, parameters, strict=True):
        if parameter.requires_grad:
            gradient = parameter.grad
            gradients.append(gradient)
            if gradient is None:
                missing = missing or name
            else:
                found += 1
        elif isinstance(parameter, nn.Parameter):
            gradients.append(None)
        else:
            raise TypeError(f"`{name}` is not a parameter; pass gradients themselves as a MapOfTensors")
    if missing and (strict or not found):
        raise RuntimeError(f"no gradient of `{missing}`: was backward() called on the loss?")
    return gradients


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return `names` as a tuple. Raises TypeError unless they are strings, ValueError for none and for duplicates."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError("parameter_keys must be a sequence of names")
    if not names:
        raise ValueError("parameter_keys is empty")
    twice = [name for name in names if list(names).count(name) > 1] if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"parameter_keys names `{twice[0]}` twice")
    return tuple(names)


def pairs_of(named_parameters: Any) -> Mapping[str, Any]:
    """Return pairs of names and parameters as a mapping.

    Raises TypeError for anything else, such as a module and its `parameters()`.
    """
    if isinstance(named_parameters, Mapping):
        return named_parameters
    pairs: list[Any] = (
        [named_parameters] if isinstance(named_parameters, nn.Module | Tensor) else list(named_parameters)
    )
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise TypeError("named_parameters must be pairs of names and parameters: pass model.named_parameters()")
    return dict(pairs)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError, which names the argument, unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def field_of(name: str, value: object) -> GradientField:
    """Return the form of a parameter's gradient. Raises TypeError for anything but a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"`{name}` must be a parameter, not {type(value).__name__}")
    return GradientField(name, value.shape, value.dtype, value.device)
