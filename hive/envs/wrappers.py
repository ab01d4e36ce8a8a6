"""Puts the wrappers of `env.wrappers` around a single environment, in the order in which the config gives them.

A wrapper is named by a string, or by a table with the keyword arguments of its constructor beside its name:

    "FlattenObservation"                            a class of gymnasium.wrappers
    { name = "TimeLimit", max_episode_steps = 50 }
    { name = "package.module:Class", size = 7 }     any callable that takes and returns a gymnasium.Env
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hive.config import why_not_found
from hive.envs.loading import construct, import_module
from hive.envs.raw_returns import sum_raw_returns
from hive.errors import EnvironmentFailed, EnvironmentMissing
from hive.paths import short_reference

if TYPE_CHECKING:
    import gymnasium

WrapperConfig = str | Mapping[str, Any]
"""One entry of `env.wrappers`."""

SKIPS = {"AtariPreprocessing": "frame_skip", "MaxAndSkipObservation": "_skip", "RepeatAction": "num_repeats"}
"""Class of Gymnasium -> its attribute with the number of steps that it makes of the environment inside per step."""

NEEDED = {"MiniGrid": ["minigrid.wrappers:ImgObsWrapper"], "BabyAI": ["minigrid.wrappers:ImgObsWrapper"]}
"""First word of an id -> the wrappers without which its observations have a form that hive does not support."""

PLAIN = ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker", "Kept")
"""Classes that `gymnasium.make` and hive put around an environment, which change no spaces."""

ARGUMENTS = 'a wrapper takes its arguments beside its name: env.wrappers = [{ name = "...", argument = value }]'


def needed_wrappers(id: str) -> list[str]:
    """Return the value of env.wrappers without which hive cannot use this environment's observations; mostly empty."""
    return list(NEEDED.get(re.split(r"[-/]", id.rpartition(":")[2])[0], ()))


def wrapped(
    id: str, environment: gymnasium.Env[Any, Any], wrappers: Sequence[WrapperConfig]
) -> gymnasium.Env[Any, Any]:
    """Return `environment` inside `wrappers`, the last of which is the outermost.

    Raises EnvironmentMissing for an unknown wrapper or a package that it lacks, and EnvironmentFailed for arguments
    that its constructor refuses and for a result that is not a gymnasium.Env. `id` is for the messages.
    """
    import gymnasium

    if wrappers:
        sum_raw_returns(environment, is_whole=False)
    for name, given in map(parts_of, wrappers):
        arguments = given if ":" in name else {key: _with_tuples(value) for key, value in given.items()}
        what = f"`{id}` with the wrapper `{name}`"
        constructor = functools.partial(find_wrapper(name), environment, **arguments)
        result = construct("wrapper", name, what, constructor, ARGUMENTS)
        if not isinstance(result, gymnasium.Env):
            kind = type(result).__name__
            raise EnvironmentFailed(
                f"the wrapper `{name}` of `{id}` returned an object of type {kind}, expected a gymnasium.Env",
                permanent=True,
            )
        environment = result
    sum_raw_returns(environment)
    return environment


def _with_tuples(value: Any) -> Any:
    """Return an argument of a wrapper of Gymnasium: TOML has arrays alone, and ResizeObservation takes a tuple."""
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def import_wrappers(wrappers: Sequence[WrapperConfig]) -> None:
    """Import the modules of wrappers. Raises EnvironmentMissing, and EnvironmentFailed if a module raises."""
    for name, _ in map(parts_of, wrappers):
        find_wrapper(name)


def with_names(id: str, wrappers: Sequence[WrapperConfig]) -> str:
    """Return `id` with the names of the wrappers in the config, for errors: any of them may be the cause."""
    names = [
        name for name, _ in map(parts_of, wrappers) if not name.startswith("hive.envs.")
    ]  # that of env.action_mask
    listed, id = ", ".join(f"`{short_reference(name)}`" for name in names), short_reference(id)
    return f"{id} with {listed}" if listed else id


def step_limit_of(environment: gymnasium.Env[Any, Any]) -> int | None:
    """Return the declared maximum of steps per episode, counted in steps of the outermost wrapper; None without one.

    It is that of the outermost TimeLimit, which may be another than that of the spec; without a TimeLimit, the spec's.
    """
    import gymnasium
    from gymnasium.wrappers import TimeLimit

    inside: Any = environment
    while isinstance(inside, gymnasium.Wrapper) and type(inside) is not TimeLimit:
        inside = inside.env
    declared = environment.spec.max_episode_steps if environment.spec else None
    limit = inside._max_episode_steps if type(inside) is TimeLimit else declared
    return None if limit in (None, math.inf) else math.ceil(limit / steps_inside(environment, TimeLimit))


def skip_of(environment: gymnasium.Env[Any, Any]) -> int:
    """Return the number of frames per step that the environment and its wrappers declare; 1 if they declare none.

    Environments of ale_py declare it as `frameskip`; a random number of frames counts as 1.
    """
    declared = environment.spec.kwargs.get("frameskip", 1) if environment.spec else 1
    return (declared if isinstance(declared, int) else 1) * steps_inside(environment)


def steps_inside(environment: gymnasium.Env[Any, Any], end: type | None = None) -> int:
    """Return how many steps one step is of the outermost wrapper of class `end`, or of the bare environment."""
    import gymnasium

    steps = 1
    while isinstance(environment, gymnasium.Wrapper) and not (end is not None and type(environment) is end):
        name = type(environment).__name__
        if type(environment).__module__.startswith("gymnasium.") and name in SKIPS:
            steps *= max(1, int(getattr(environment, SKIPS[name], 1)))
        environment = environment.env
    return steps


def parts_of(wrapper: WrapperConfig) -> tuple[str, dict[str, Any]]:
    """Return the name of a wrapper in the config, and its arguments."""
    if isinstance(wrapper, str):
        return wrapper, {}
    return str(wrapper["name"]), {name: value for name, value in wrapper.items() if name != "name"}


def lacking(environment: Any, wrappers: Sequence[WrapperConfig]) -> list[str]:
    """Return the names of those of these wrappers that are not around an environment.

    What a function puts around it is not known: its name is returned if there are no wrappers but PLAIN ones.
    """
    import gymnasium

    layers = []
    while isinstance(environment, gymnasium.Wrapper):
        layers.append(environment)
        environment = environment.env
    plain = all(type(layer).__name__ in PLAIN for layer in layers)
    found = []
    for name, _ in map(parts_of, wrappers):
        wrapper = find_wrapper(name)
        is_there = any(isinstance(layer, wrapper) for layer in layers) if isinstance(wrapper, type) else not plain
        found += [] if is_there or name in PLAIN else [name]
    return found


def find_wrapper(name: str) -> Callable[..., Any]:
    """Return the callable that `name` refers to. Raises EnvironmentMissing."""
    import gymnasium

    module, _, attribute = name.rpartition(":")
    known: dict[str, Callable[..., Any]]
    if module:
        place = import_module("wrapper", name, module)
        known = {one: value for one, value in vars(place).items() if callable(value)}
    else:
        place = gymnasium.wrappers
        wrappers = ((one, value) for one, value in vars(place).items() if isinstance(value, type))
        known = {one: value for one, value in wrappers if issubclass(value, gymnasium.Wrapper)}
    if attribute in known:
        return known[attribute]
    by_lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(attribute.lower(), by_lower, n=1)
    clause, hint = why_not_found(name)
    if clause:
        raise EnvironmentMissing(f"no wrapper `{name}`: {clause}", hint=hint)
    custom = (
        f"module `{module}` has no callable `{attribute}`" if module else 'write a custom one as "package.module:Class"'
    )
    raise EnvironmentMissing(
        f"no wrapper `{name}`" if module else f"no wrapper `{name}` in gymnasium.wrappers",
        hint=f"did you mean `{name.removesuffix(attribute)}{by_lower[close[0]]}`?" if close else custom,
    )
