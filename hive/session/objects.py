"""Restores objects in the module of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def restored(kind: type[T], attributes: Mapping[str, Any]) -> T:
    """Return an object of a plain Python class with these attributes, without calling its constructor."""
    instance = kind.__new__(kind)
    instance.__dict__.update(attributes)
    return instance
