"""Environments that a program registered in Gymnasium itself, which other processes do not know."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from hive.envs.loading import top_level

KNOWN = ("gymnasium", "shimmy")  # packages whose environments every process knows


def registration(id: str) -> dict[str, Any] | None:
    """Return the arguments of `gymnasium.register` that register `id` as in this process.

    None for an id that is not registered here, and for those of Gymnasium and of its plugins.
    """
    gymnasium: Any = sys.modules.get("gymnasium")
    spec = None if gymnasium is None else gymnasium.registry.get(id)
    if spec is None or ":" in id:
        return None
    kind = "entry_point" if spec.entry_point else "vector_entry_point"
    entry = getattr(spec, kind)
    if isinstance(entry, str) and entry.startswith("__main__:"):
        entry = getattr(sys.modules["__main__"], entry.partition(":")[2], entry)
        spec = dataclasses.replace(spec, **{kind: entry})
    if _is_known(entry):
        return None
    arguments = {field.name: field.default for field in dataclasses.fields(spec) if field.init and field.name != "id"}
    values = {name: getattr(spec, name) for name in arguments}
    return {name: value for name, value in values.items() if value not in (None, (), {}, arguments[name])}


def _is_known(entry: object) -> bool:
    """Whether every process knows the environment: it is of Gymnasium, or of a plugin that Gymnasium imports."""
    from importlib.metadata import entry_points

    package = top_level(entry if isinstance(entry, str) else str(getattr(entry, "__module__", "")))
    return package in KNOWN or package in {top_level(plugin.value) for plugin in entry_points(group="gymnasium.envs")}
