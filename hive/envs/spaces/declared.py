"""Reads the spaces that an environment declares, with one error for each way in which it may fail to.

`hive check`, `hive init` and every vector read them here, so all of them accept and refuse the same environments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hive.envs.spaces.observation import leaves_of
from hive.errors import EnvironmentFailed
from hive.runtime.actor.error_location import is_interrupt, named

if TYPE_CHECKING:
    from gymnasium.spaces import Space

OLD_PACKAGE = "gym"  # the package that gymnasium has replaced; its classes have the same names
EXAMPLES = {
    "observation_space": "gymnasium.spaces.Box(low, high, shape, dtype)",
    "action_space": "gymnasium.spaces.Discrete(n)",
}


def spaces_of(id: str, environment: Any, prefix: str = "") -> tuple[Space[Any], Space[Any]]:
    """Return the spaces of observations and actions. Raises EnvironmentFailed, with `id`, for any that hive cannot use.

    prefix: "single_" for a vectorized class. The spaces must exist once the constructor has returned.
    """
    return _space(id, environment, prefix, "observation_space"), _space(id, environment, prefix, "action_space")


def is_old(kind: type) -> bool:
    """Whether a class is from the old package gym, or derived from one of its classes."""
    return any(base.__module__.partition(".")[0] == OLD_PACKAGE for base in kind.__mro__)


def _space(id: str, environment: Any, prefix: str, name: str) -> Space[Any]:
    """Return one space."""

    place, missing = f"`{id}`", object()
    set_it = f"set self.{prefix}{name} in its constructor, for example to {EXAMPLES[name]}"
    try:
        space = getattr(environment, prefix + name)
    except AttributeError as error:
        if error.name != prefix + name:  # from the code of a property
            raise _refused(f"{place} raised {named(error)} when its {prefix}{name} was read", set_it) from error
        space = missing
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise _refused(f"{place} raised {named(error)} when its {prefix}{name} was read", set_it) from error
    if space is missing or space is None:
        raise _refused(f"{place} has no {prefix}{name} after its constructor", set_it)
    return checked_space(f"`{id}`", space, prefix + name, set_it)


def checked_space(place: str, space: Any, name: str, hint: str = "return an object of gymnasium.spaces") -> Space[Any]:
    """Return `space`, the `name` of `place`, if it is a space with elements. Raises EnvironmentFailed, with `hint`."""
    import gymnasium

    kind = space if isinstance(space, type) else type(space)
    if is_old(kind) and not issubclass(kind, gymnasium.Space):
        raise _refused(
            f"the {name} of {place} is a {kind.__name__} of the old package `{OLD_PACKAGE}`, expected one of "
            "gymnasium.spaces",
            "replace `import gym` by `import gymnasium as gym` in its code, or wrap it with the package shimmy",
        )
    if isinstance(space, type):
        raise _refused(f"the {name} of {place} is the class {kind.__name__}, expected an object of it", hint)
    if not isinstance(space, gymnasium.Space):
        if callable(space) or isinstance(space, Mapping):
            hint += "; an environment of several agents lists them in `possible_agents`"
        raise _refused(f"the {name} of {place} is of type {kind.__name__}, expected one of gymnasium.spaces", hint)
    _check_elements(place, space, "observations" if "observation" in name else "actions")
    return space


def _check_elements(place: str, space: Space[Any], what: str) -> None:
    """Raise EnvironmentFailed for an array of a space that has no elements. what: "observations" or "actions"."""
    from gymnasium import spaces

    leaves = [*leaves_of(space)]
    for path, leaf in leaves:
        if leaf.shape is None or 0 not in leaf.shape:
            continue
        if not path:
            raise _refused(
                f"the {what} of {place} have no elements: {_line(leaf)}", "give the space at least one element"
            )
        hint = "leave this part out in a wrapper"
        if what == "observations" and isinstance(space, spaces.Dict) and all(isinstance(key, str) for key in space):
            kept = [key for key in space.spaces if key != path[0]]
            entry = f'{{ name = "FilterObservation", filter_keys = {json.dumps(kept)} }}'
            hint = f"leave it out with env.wrappers = [{entry}]" if kept else hint
        name = ".".join(map(str, path))
        raise _refused(f"the part `{name}` of the {what} of {place} has no elements: {_line(leaf)}", hint)


def _refused(text: str, hint: str) -> EnvironmentFailed:
    return EnvironmentFailed(text, hint=hint, permanent=True)


def _line(space: Space[Any]) -> str:
    return " ".join(str(space).split())
