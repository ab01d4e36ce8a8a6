"""Environments that a program registered in Gymnasium itself, which other processes do not know."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

GIVEN = ("entry_point", "reward_threshold", "nondeterministic", "max_episode_steps", "order_enforce")
GIVEN_TOO = ("disable_env_checker", "kwargs", "additional_wrappers", "vector_entry_point")
KNOWN = ("gymnasium", "shimmy")  # packages whose environments every process knows


def registration(id: str) -> dict[str, Any] | None:
    """Return the arguments of `gymnasium.register` that register `id` as in this process.

    None for an id that is not registered here, and for those of Gymnasium and of its plugins.
    """
    gymnasium: Any = sys.modules.get("gymnasium")
    spec = None if gymnasium is None else gymnasium.registry.get(id)
    if spec is None or ":" in id:
        return None
    entry = spec.entry_point or spec.vector_entry_point
    if isinstance(entry, str) and entry.startswith("__main__:"):
        entry = getattr(sys.modules["__main__"], entry.partition(":")[2], entry)
        spec = dataclasses.replace(spec, **{"entry_point" if spec.entry_point else "vector_entry_point": entry})
    package = (entry if isinstance(entry, str) else str(getattr(entry, "__module__", ""))).partition(":")[0]
    if package.partition(".")[0] in KNOWN or _is_of_plugin(package):
        return None
    defaults = {one.name: one.default for one in dataclasses.fields(spec)}
    given = {name: getattr(spec, name, None) for name in (*GIVEN, *GIVEN_TOO)}
    return {name: value for name, value in given.items() if value not in (None, (), {}) and value != defaults.get(name)}


def _is_of_plugin(package: str) -> bool:
    """Whether Gymnasium itself imports a package, which then registers its environments in every process."""
    from importlib.metadata import entry_points

    tops = {one.value.partition(":")[0].partition(".")[0] for one in entry_points(group="gymnasium.envs")}
    return package.partition(".")[0] in tops
