"""Answers what users of other trainers type at objects of hive: an error of Python, with hive's way as its hint.

`other_names.toml` has the ways, in a table for each class: by the name of an attribute or keyword, and by
`__init__`, `__call__` or `__getitem__` for calls of another form. Indices also answer loops and `first, second = it`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])
AnyClass = TypeVar("AnyClass", bound=type)


def answers(table: str) -> Callable[[AnyClass], AnyClass]:
    """Make a class answer attributes and indices that it does not have, and calls of its constructor."""

    def decorated(cls: AnyClass) -> AnyClass:
        def get_attribute(self: object, name: str) -> Any:
            text = f"'{type(self).__name__}' object has no attribute '{name}'"
            hint = "" if name.startswith("__") else _way(table, name)
            # Without the name Python adds no similar one.
            raise _with_hint(AttributeError(text, name=None if hint else name, obj=self), hint)

        def get_item(self: object, key: object) -> Any:
            text = f"'{type(self).__name__}' object is not subscriptable, and has no values to unpack"
            raise _with_hint(TypeError(text), _way(table, "__getitem__"))

        for name, function in (("__getattr__", get_attribute), ("__getitem__", get_item)):
            setattr(cls, name, function)
        if "__init__" in vars(cls):
            cls.__init__ = answered(table)(cls.__init__)  # type: ignore[misc]
        return cls

    return decorated


def answered(table: str) -> Callable[[AnyFunction], AnyFunction]:
    """Make a function name hive's way where it is called with other arguments than it has."""

    def decorated(function: AnyFunction) -> AnyFunction:
        inner: Any = inspect.unwrap(function)
        known = inspect.signature(inner).parameters.keys()

        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named)
            except TypeError as error:
                if not _reached(error, inner.__code__):
                    ways = [_way(table, name) for name in named if name not in known]
                    _with_hint(error, next(filter(None, ways), _way(table, inner.__name__)))
                raise

        return cast(AnyFunction, call)

    return decorated


def _way(table: str, name: str) -> str:
    # By its name: the module imports all keys, and so classes that this module decorates.
    return str(importlib.import_module("hive.config.other_names").way_of(table, name))


def _with_hint(error: Any, hint: str) -> Any:
    if hint:
        error.add_note(f"hint: {hint}")
    return error


def _reached(error: BaseException, code: object) -> bool:
    """Whether an error was raised inside of a function, and not by the call of it."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is code:
            return True
        trace = trace.tb_next
    return False
