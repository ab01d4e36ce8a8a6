"""Gives environments values during a run, each between two of its episodes.

    set_attributes(vector, {"difficulty": 3})        each environment of the vector has it from its next reset on

A name is looked up from the outermost wrapper inwards, and is that of an attribute, a property or a method, which is
called with the value. Where no layer has it, a method `set_NAME` is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, cast

from hive.config.values import closest
from hive.errors import EnvironmentFailed

MOST_LAYERS = 100  # wrappers around an environment; more are a cycle
MOST_NAMED = 12  # attributes that an error lists


class TakesAttributes(Protocol):
    """A vector whose environments can be given values."""

    def set_attributes(self, values: Mapping[str, Any]) -> None:
        """Give every environment these values before its next reset."""


def takes_attributes(vector: object) -> bool:
    """Whether environments of this vector can be given values; compiled ones cannot."""
    own = getattr(vector, "takes_attributes", True)
    return bool(own) and hasattr(vector, "set_attributes")


def set_attributes(vector: object, values: Mapping[str, Any]) -> None:
    """Give every environment of a vector these values before its next reset. Raises EnvironmentFailed."""
    if not values:
        return
    if not takes_attributes(vector):
        raise EnvironmentFailed(
            f"env.set({next(iter(values))!r}, ...): compiled environments and programs have no attributes",
            hint="env.options(...) makes compiled environments again, with other options",
            permanent=True,
        )
    cast(TakesAttributes, vector).set_attributes(values)


class Pending:
    """The values of a vector's environments, and which environments do not have them yet."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[int, Any]] = {}  # name -> the call of `set` that has given it, and the value
        self._seen: dict[int, tuple[Any, int]] = {}  # number -> environment, and how many calls of `set` it has seen
        self._calls = 0

    def set(self, values: Mapping[str, Any]) -> None:
        """Give these values to each environment before its next reset."""
        self._calls += 1
        self._values |= {name: (self._calls, value) for name, value in values.items()}

    def apply(self, index: int, environment: Any) -> None:
        """Give environment number `index`, which is about to be reset, what it does not have yet."""
        known, seen = self._seen.get(index, (None, 0))
        seen = seen if known is environment else 0
        if seen == self._calls:
            return
        self._seen[index] = environment, self._calls
        for name, (call, value) in self._values.items():
            if call > seen:
                set_attribute(environment, name, value)


def set_attribute(environment: Any, name: str, value: Any) -> None:
    """Set one attribute of an environment, in whichever layer has it. Raises EnvironmentFailed if none has."""
    layers = [*layers_of(environment)]
    try:
        for layer in layers:
            if _has(layer, name):
                _set(layer, name, value)
                return
        for layer in layers:
            if callable(method := getattr(layer, f"set_{name}", None)) and _has(layer, f"set_{name}"):
                method(value)
                return
    except Exception as error:
        kind = type(error).__name__
        raise EnvironmentFailed(f"env.set({name!r}, {value!r}) raised {kind}: {error}", permanent=True) from error
    known = sorted({key for layer in layers for key in vars_of(layer) if not key.startswith("_")})
    close = closest(name, known)
    kinds = ", ".join(type(layer).__name__ for layer in layers)
    raise EnvironmentFailed(
        f"env.set({name!r}, ...): no attribute or method of this name in {kinds}",
        hint=f"did you mean `{close}`?" if close else f"they have {', '.join(known[:MOST_NAMED])}",
        permanent=True,
    )


def layers_of(environment: Any) -> Iterator[Any]:
    """Yield the wrappers of an environment from the outermost inwards, then the environment itself."""
    seen: set[int] = set()
    while environment is not None and id(environment) not in seen and len(seen) < MOST_LAYERS:
        seen.add(id(environment))
        yield environment
        inner = vars_of(environment).get("env")
        environment = inner if inner is not None else vars_of(environment).get("aec_env")


def vars_of(layer: Any) -> dict[str, Any]:
    """Return the attributes of an object; {} for one with slots only."""
    return getattr(layer, "__dict__", {})


def _has(layer: Any, name: str) -> bool:
    """Whether the layer itself has the name, rather than one that it forwards to."""
    return name in vars_of(layer) or hasattr(type(layer), name)


def calls_method(environment: Any, name: str) -> bool:
    """Return whether `set_attribute` calls a method instead of setting an attribute or property."""
    layer = next((layer for layer in layers_of(environment) if _has(layer, name)), None)
    return layer is None or _is_method(layer, name)


def _is_method(layer: Any, name: str) -> bool:
    declared = inspect.getattr_static(type(layer), name, None)
    is_routine = inspect.isroutine(declared) or isinstance(declared, classmethod | staticmethod)
    return is_routine and name not in vars_of(layer)


def _set(layer: Any, name: str, value: Any) -> None:
    if _is_method(layer, name):
        getattr(layer, name)(value)
    else:
        setattr(layer, name, value)
