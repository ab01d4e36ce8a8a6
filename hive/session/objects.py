"""Restores objects in the module of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

Kind = TypeVar("Kind")


def restored(kind: type[Kind], attributes: Mapping[str, Any]) -> Kind:
    """Return an object of a plain Python class with these attributes, without calling its constructor."""
    made = kind.__new__(kind)
    made.__dict__.update(attributes)
    return made
