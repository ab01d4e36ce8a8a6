"""Finds and builds environments; every possible failure has an error message of one sentence.

An id is one of
    CartPole-v1             registered with Gymnasium; for a namespace in PACKAGES its package is imported first
    package.module:Class    a callable that returns a gymnasium.Env; called with the config's options
    package.module:Name-v0  a registered id after the colon; the module is imported first to register it

Gymnasium's own environment checker is disabled, because the vectors check every row themselves at a lower cost. Ids
must include a version, because the newest version would change the meaning of a config over time.
"""

from __future__ import annotations

import copy
import difflib
import importlib
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hive.envs.observation import observation_spec
from hive.envs.spec import EnvironmentSpec, action_spec
from hive.errors import ConfigError, EnvironmentFailed, EnvironmentMissing, HiveError
from hive.runtime.actor.error_location import is_interrupt, named

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.vector import VectorEnv

__all__ = ["PACKAGES", "describe", "make_environment", "make_native", "takes_native"]

PACKAGES = {"ALE": ("ale_py", "ale-py")}
"""Namespace of an id -> the module that registers its ids, and the name of its package for pip."""

EXTRAS = {"Box2D": "box2d", "mujoco": "mujoco"}
"""Module that environments of Gymnasium import -> the extra of Gymnasium, and of hive, that installs it."""

SUGGESTIONS = 3  # maximum ids that are suggested for a misspelled one
SIMILAR = 0.8  # least similarity (0 to 1) of the second and third; the first needs difflib's default of 0.6
VERSION = re.compile(r"-v\d+$")


def make_environment(id: str, options: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Build one environment with `options` as keyword arguments.

    Raises EnvironmentMissing if the environment or a module that it needs is not installed, and EnvironmentFailed if
    its constructor raises or returns something other than a gymnasium.Env.
    """
    import gymnasium

    found = _find(id)
    if isinstance(found, gymnasium.envs.registration.EnvSpec):
        spec = copy.copy(found)
        # Without the wrapper that refuses a step before the first reset, a CartPole step is 3 % faster.
        spec.order_enforce = False
        environment = _build(id, lambda: gymnasium.make(spec, disable_env_checker=True, **options))
    else:
        environment = _build(id, lambda: found(**options))
    if not isinstance(environment, gymnasium.Env):
        raise EnvironmentFailed(
            f"`{id}` built an object of type {type(environment).__name__}, expected a gymnasium.Env",
            permanent=True,
        )
    return environment


def make_native(id: str, options: Mapping[str, Any], count: int) -> VectorEnv[Any, Any, Any]:
    """Build the environment's own vectorised class with `count` copies.

    Raises ConfigError if the environment has none, otherwise as `make_environment`.
    """
    import gymnasium

    found = _find(id)
    if not isinstance(found, gymnasium.envs.registration.EnvSpec) or found.vector_entry_point is None:
        raise ConfigError(f"`{id}` has no vectorised class", hint='set env.vector = "python"')
    vector: VectorEnv[Any, Any, Any] = _build(
        id, lambda: gymnasium.make_vec(found, count, vectorization_mode="vector_entry_point", **options)
    )
    return vector


def takes_native(id: str, kind: str) -> bool:
    """Whether `kind` ("auto", "python" or "native") selects the environment's own vectorised class.

    "auto" selects it only if the environment has no single form, because vectorised classes spend steps on resets and
    share one random generator.
    """
    return kind == "native" or (kind == "auto" and getattr(_find(id), "entry_point", id) is None)


def describe(id: str, options: Mapping[str, Any], kind: str = "auto") -> EnvironmentSpec:
    """Build the environment once, read its spaces and close it.

    `kind` is as for `make_vector`, because a vectorised class may have other spaces than the single environment
    (Atari's has stacked frames of 84 x 84). Raises the errors of `make_vector`, and EnvironmentFailed for spaces that
    hive does not support.
    """
    environment: Any = make_native(id, options, 1) if takes_native(id, kind) else make_environment(id, options)
    try:
        observations = getattr(environment, "single_observation_space", environment.observation_space)
        actions = getattr(environment, "single_action_space", environment.action_space)
        limit = _limit(environment.spec)
        return EnvironmentSpec(id, observation_spec(id, observations), action_spec(id, actions), limit)
    finally:
        environment.close()


def _limit(spec: EnvSpec | None) -> int | None:
    """Return the time limit: an argument of vectorised classes, a field of single environments."""
    return None if spec is None else spec.kwargs.get("max_episode_steps", spec.max_episode_steps)


def _find(id: str) -> EnvSpec | Callable[..., Any]:
    """Return the registered spec, or the class or function that the id refers to."""
    import gymnasium

    if not id:  # a run with a custom topology may leave it out
        raise EnvironmentMissing("the config names no environment", hint="add --set env.id=CartPole-v1, for example")
    module, _, name = id.rpartition(":")
    package = module or PACKAGES.get(name.partition("/")[0], ("", ""))[0]
    imported = _import(id, package) if package else None
    target = getattr(imported, name, None)
    if callable(target):
        return target  # type: ignore[no-any-return]
    spec = gymnasium.registry.get(name)
    if spec is None:
        names = [*gymnasium.registry, *(vars(imported) if module else ())]
        raise EnvironmentMissing(f"no environment `{id}`", hint=_nearest(id.removesuffix(name), name, names))
    return spec


def _nearest(prefix: str, name: str, names: list[str]) -> str:
    """Return a hint with the nearest ids, at most one version of each."""
    by_lower = {candidate.lower(): candidate for candidate in sorted(names)}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    close += difflib.get_close_matches(name.lower(), by_lower, n=len(by_lower), cutoff=SIMILAR)
    nearest: dict[str, str] = {}
    for word in close:
        nearest.setdefault(VERSION.sub("", word), f"`{prefix}{by_lower[word]}`")
    if nearest:
        return f"did you mean {' or '.join([*nearest.values()][:SUGGESTIONS])}?"
    return 'write a custom class as "package.module:Class", and an id that a package registers as "package:Name-v0"'


def _import(id: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise _lacks(id, error) from error
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise EnvironmentFailed(f"importing `{module}` raised {named(error)}") from error


def _build(id: str, constructor: Callable[[], Any]) -> Any:
    import gymnasium

    try:
        return constructor()
    except HiveError:
        raise
    except ModuleNotFoundError as error:
        raise _lacks(id, error) from error
    except gymnasium.error.DependencyNotInstalled as error:
        cause = str(error).partition(",")[0]
        raise EnvironmentMissing(f"`{id}` cannot be built: {cause}", hint=_install(str(error))) from error
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise EnvironmentFailed(f"`{id}` cannot be built: its constructor raised {named(error)}") from error


def _install(text: str) -> str:
    """Return a hint with the commands in Gymnasium's error, or or with hive's extra of the same name."""
    extra = re.search(rf"\[({'|'.join(EXTRAS.values())})\]", text)
    commands = [f"pip install {_hive_with(extra[1])}"] if extra else re.findall(r"pip install [^`]+", text)
    return f"install it with: {' and '.join(f'`{command}`' for command in commands)}" if commands else ""


def _hive_with(extra: str) -> str:
    """Return the requirement of hive with an extra, quoted for a shell."""
    return f"'hive[{extra}]'"


def _lacks(id: str, error: ModuleNotFoundError) -> EnvironmentMissing:
    """Return the error for a missing module: the one in the id, one of PACKAGES, or one that these import."""
    missing = error.name or str(error)
    top = missing.partition(".")[0]
    if top == id.partition(":")[0].partition(".")[0]:
        return EnvironmentMissing(
            f"no environment `{id}`: there is no module `{missing}`",
            hint="start hive in a folder from which the module can be imported",
        )
    package = _hive_with(EXTRAS[top]) if top in EXTRAS else dict(PACKAGES.values()).get(top, top)
    return EnvironmentMissing(
        f"`{id}` needs the module `{missing}`, which is not installed",
        hint=f"install it with: `pip install {package}`",
    )
