"""Restores objects and settings in the module of a session."""

from __future__ import annotations

import decimal
from collections import deque
from collections.abc import Mapping
from typing import Any, TypeVar

from hive.runtime.process.user_code.torch_state import NumpyState, environments_begin_with

T = TypeVar("T")


def restored(kind: type[T], attributes: Mapping[str, Any]) -> T:
    """Return an object of a plain Python class with these attributes, without calling its constructor."""
    instance = kind.__new__(kind)
    instance.__dict__.update(attributes)
    return instance


def refilled(old: Any, new: Any) -> Any:
    """Return `new`; or `old` with the contents of `new` if it is of this type, as other modules may hold it."""
    if type(old) is not type(new) or old is new:
        return new
    if isinstance(old, dict | set):
        old.clear()
        old.update(new)
    elif isinstance(old, list | deque):
        old.clear()
        old.extend(new)
    elif hasattr(old, "__dict__") and not hasattr(old, "__slots__"):
        vars(old).clear()
        vars(old).update(vars(new))
    else:
        return new
    return old


def set_decimal(context: decimal.Context) -> None:
    """Let this thread, and those that begin later, compute with decimal numbers as `context` says."""
    decimal.setcontext(context)
    for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp"):
        setattr(decimal.DefaultContext, name, getattr(context, name))
    decimal.DefaultContext.traps = context.traps


def set_numpy(errors: Mapping[str, Any], printing: Mapping[str, Any]) -> None:
    """Let environments of this process have these settings of NumPy."""
    environments_begin_with(NumpyState(errors, printing))


def set_torch(dtype: str, gradients: bool) -> None:
    """Let environments of this process have these settings of torch."""
    environments_begin_with(dtype=dtype, gradients=gradients)
