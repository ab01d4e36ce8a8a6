"""Refuse definitions that would be something else in another process, or could not be executed there."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Mapping
from typing import Any

from hive.errors import UsageError
from hive.session.changes import redefined_base
from hive.session.sources import Found


def check_use(name: str, used: str, *, at_once: bool, gone: Collection[str], names: Mapping[str, Any]) -> None:
    """Raise UsageError if a definition uses a name that no other process can have.

    at_once: whether it does while it is defined. gone: locals of functions.
    """
    if used in gone:
        raise UsageError(
            f"`{name}` uses `{used}` of the function in which it is defined, and only while it is defined",
            hint=f"define `{name}` at the top of the file or cell, or give `{used}` to its constructor",
        )
    if at_once and used not in names and used not in vars(builtins):
        raise UsageError(
            f"`{name}` uses `{used}` while it is defined, and `{used}` is gone",
            hint=f"keep `{used}`, or define `{name}` without it",
        )


def check_class(name: str, value: type, found: Found, names: Mapping[str, Any]) -> None:
    """Raise UsageError for a class whose source gives another class now."""
    if not isinstance(found.node, ast.ClassDef):
        return
    if base := redefined_base(value, found.node, names):
        raise UsageError(
            f"`{name}` is not what its source says: its base class `{base}` was defined anew after it",
            hint=f"define `{name}` again, too",
        )
    # Without functions, whose code has a line, the source of an older version looks like that of the newest.
    if not found.functions and names.get(value.__qualname__, value) is not value:
        raise UsageError(
            f"`{name}` was defined anew, and an object of the older `{name}` is left",
            hint="make that object again, too",
        )
