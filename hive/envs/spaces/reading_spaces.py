"""Reads the spaces of an environment in a child process that is thrown away, for processes that fork others later.

    fork server ── child: imports the modules ── threads, children, files left? ── constructs, reads the spaces, closes
                   spaces, answer as plain data
    imports the modules too, if the answer is no, so that the processes forked later share them

Otherwise each process of the run imports them itself. The child's comparison of a compiled environment with Gymnasium's
is taken over too, so that no process repeats it.

A description is sent as lists of JSON: ["Box", {field: value}] for one of its dataclasses, and lists for tuples.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from hive.config import START_LIMIT_S
from hive.envs.make import describe, import_modules
from hive.envs.recipe import Recipe
from hive.envs.spaces import actions, observation, spec
from hive.envs.spaces.spec import EnvironmentSpec
from hive.errors import EnvironmentFailed
from hive.runtime.process.user_code.throwaway import Holdings, in_child

CLASSES: Mapping[str, Any] = {
    name: value
    for module in (spec, observation, actions)
    for name, value in vars(module).items()
    if dataclasses.is_dataclass(value) and getattr(value, "__module__", "") == module.__name__
}
"""The dataclasses of descriptions by their names; a description holds no other objects."""


def described_by_child(recipe: Recipe, limit_s: float = START_LIMIT_S) -> EnvironmentSpec:
    """Return what `describe` returns in a child, and import the modules here if that is safe. Raises its errors.

    limit_s: env.start_limit_s. Raises EnvironmentFailed, too, if the child crashes or takes longer.
    """
    from hive.envs.vectors import compiled

    def read() -> dict[str, Any]:
        before = Holdings.now()
        import_modules(recipe)
        shareable = Holdings.now().shareable_after(before)
        return {"spec": to_plain(describe(recipe)), "shareable": shareable, "compared": compiled.COMPARED}

    reply = in_child(read, f"the environment `{recipe.id}`", limit_s, key="env.start_limit_s")
    if reply["shareable"]:
        import_modules(recipe)
    compiled.COMPARED.update(reply["compared"])
    described: EnvironmentSpec = from_plain(reply["spec"])
    return described


def to_plain(value: Any) -> Any:
    """Return a description as lists, maps and scalars. Raises EnvironmentFailed for what these cannot hold."""
    if dataclasses.is_dataclass(value) and type(value).__name__ in CLASSES:
        fields = (field.name for field in dataclasses.fields(value) if field.init)
        return [type(value).__name__, {name: to_plain(getattr(value, name)) for name in fields}]
    match value:
        case None | bool() | str():
            return value
        case np.bool_():
            return bool(value)
        case numbers.Integral():
            return int(value)
        case numbers.Real():
            return float(value)
        case tuple():
            return [to_plain(one) for one in value]
    raise EnvironmentFailed(
        f"the spaces of the environment hold {value!r} of type {type(value).__name__}, expected text or numbers",
        hint="name the parts of Dict spaces by texts",
        permanent=True,
    )


def from_plain(value: Any) -> Any:
    """Return the description that `to_plain` made lists of."""
    if not isinstance(value, list):
        return value
    if len(value) == 2 and isinstance(value[1], dict):
        return CLASSES[value[0]](**{name: from_plain(one) for name, one in value[1].items()})
    return tuple(from_plain(one) for one in value)
