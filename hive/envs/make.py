"""Finding and building environments; every way in which that fails is one sentence.

An id is one of
    CartPole-v1             registered with Gymnasium; a namespace in PACKAGES has its package imported first
    package.module:Class    anything callable that returns a gymnasium.Env; called with the config's options
    package.module:Name-v0  the module is imported, then the id after the colon is looked up

Gymnasium's own environment checker stays off: the vectors check each row themselves, on every step and
cheaper. Ids must carry their version: taking the newest one would make a config mean something else next
year.
"""

from __future__ import annotations

import copy
import difflib
import importlib
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hive.envs.spec import EnvironmentSpec, action_spec, observation_spec
from hive.errors import ConfigError, EnvironmentFailed, EnvironmentMissing, HiveError
from hive.runtime.error_location import named

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.vector import VectorEnv

__all__ = ["PACKAGES", "describe", "make_environment", "make_native", "takes_native"]

PACKAGES = {"ALE": ("ale_py", "ale-py")}
"""Namespace of an id -> the module that registers it, and its name for pip."""


def make_environment(id: str, options: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Builds one. Raises EnvironmentMissing, or EnvironmentFailed where the constructor raises."""
    import gymnasium

    found = _find(id)
    if isinstance(found, gymnasium.envs.registration.EnvSpec):
        spec = copy.copy(found)
        # The wrapper that guards against a step before the reset costs 3 % of a CartPole step.
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
    """Builds the environment's own vectorised class of `count` copies; ConfigError where it has none."""
    import gymnasium

    found = _find(id)
    if not isinstance(found, gymnasium.envs.registration.EnvSpec) or found.vector_entry_point is None:
        raise ConfigError(f"`{id}` has no vectorised class of its own", hint='set env.vector = "python"')
    vector: VectorEnv[Any, Any, Any] = _build(
        id, lambda: gymnasium.make_vec(found, count, vectorization_mode="vector_entry_point", **options)
    )
    return vector


def takes_native(id: str, kind: str) -> bool:
    """Whether `kind`, "auto", "python" or "native", means the environment's own vectorised class.

    "auto" takes it only where there is no other, because it steps through its resets and draws from one
    generator.
    """
    return kind == "native" or (kind == "auto" and getattr(_find(id), "entry_point", id) is None)


def describe(id: str, options: Mapping[str, Any], kind: str = "auto") -> EnvironmentSpec:
    """Builds the environment once, reads its spaces and closes it.

    `kind` as for `make_vector`: a vectorised class may have other spaces than the single environment (Atari's
    has stacked frames of 84 x 84).
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
    """Of a vectorised class the limit is one of its arguments, of a single environment a field."""
    return None if spec is None else spec.kwargs.get("max_episode_steps", spec.max_episode_steps)


def _find(id: str) -> EnvSpec | Callable[..., Any]:
    """The registered spec, or the class or function that the id names."""
    import gymnasium

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
    by_lower = {candidate.lower(): candidate for candidate in sorted(names)}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if close:
        return f"did you mean `{prefix}{by_lower[close[0]]}`?"
    return 'a class of your own is "package.module:Class", an id that a package registers "package:Name-v0"'


def _import(id: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise _lacks(id, error) from error
    except (Exception, SystemExit) as error:
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
        commands = " and ".join(f"`{command}`" for command in re.findall(r"pip install [^`]+", str(error)))
        raise EnvironmentMissing(
            f"`{id}` cannot be built: {cause}", hint=f"it comes with: {commands}" if commands else ""
        ) from error
    except (Exception, SystemExit) as error:
        raise EnvironmentFailed(f"`{id}` cannot be built: its constructor raised {named(error)}") from error


def _lacks(id: str, error: ModuleNotFoundError) -> EnvironmentMissing:
    """The missing module is the one that the id names, one of PACKAGES, or something that these import."""
    missing = error.name or str(error)
    top = missing.partition(".")[0]
    if top == id.partition(":")[0].partition(".")[0]:
        return EnvironmentMissing(
            f"no environment `{id}`: there is no module `{missing}`",
            hint="start hive where it can be imported",
        )
    package = dict(PACKAGES.values()).get(top, top)
    return EnvironmentMissing(
        f"`{id}` needs the module `{missing}`, which is not installed",
        hint=f"it comes with: pip install {package}",
    )
