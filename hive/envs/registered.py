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
    module = entry if isinstance(entry, str) else str(getattr(entry, "__module__", ""))
    if top_level(module) in KNOWN or _is_of_plugin(top_level(module)):
        return None
    arguments = {field.name: field.default for field in dataclasses.fields(spec) if field.init and field.name != "id"}
    values = {name: getattr(spec, name) for name in arguments}
    return {name: value for name, value in values.items() if value not in (None, (), {}, arguments[name])}


def _is_of_plugin(package: str) -> bool:
    """Whether Gymnasium itself imports a package, which then registers its environments in every process."""
    from importlib.metadata import entry_points

    return package in {top_level(plugin.value) for plugin in entry_points(group="gymnasium.envs")}
