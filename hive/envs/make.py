"""Finds and builds environments; every possible failure has an error message of one sentence.

An id is one of
    CartPole-v1             registered with Gymnasium; for a namespace in PACKAGES its package is imported first
    package.module:Class    a callable that returns a gymnasium.Env; called with the config's options. What it returns
                            needs the interface alone, not the base class
    path/file.py:Class      the same in a file
    package:name_v3         a module of PettingZoo's form: its `parallel_env` if it has one, else its `env`
    package.module:Name-v0  a registered id after the colon; the module or file is imported first to register it
    envpool:Pong-v5         an environment of EnvPool (hive.envs.vectors.pool)
    ./library.so:Name       a constant of a shared library that was compiled with hive/env.h
    (hive.envs.vectors.compiled)

Gymnasium's own environment checker is disabled, because the vectors check every row themselves at a lower cost. Ids
must include a version, because the newest version would change the meaning of a config over time.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import functools
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hive.config import why_not_found
from hive.envs.context import PARAMETER, EnvContext
from hive.envs.first_observations import first_of, first_of_class, with_origins_seen
from hive.envs.loading import close, construct, import_module, top_level
from hive.envs.raw_returns import sum_raw_returns
from hive.envs.recipe import Recipe
from hive.envs.spaces.actions import action_spec
from hive.envs.spaces.declared import OLD_PACKAGE, is_old, spaces_of
from hive.envs.spaces.observation import observation_spec
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.vectors.seeding import globals_state, restore_globals
from hive.envs.wrappers import import_wrappers, skip_of, step_limit_of, wrapped
from hive.errors import ConfigError, EnvironmentFailed, EnvironmentMissing

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.vector import VectorEnv

    from hive._native import CompiledEnvironment
    from hive.envs.vectors.atari import AtariOptions, Games
    from hive.envs.vectors.compiled_vector import CompiledVector

PACKAGES = {
    "ALE": ("ale_py", ""),
    "MiniGrid": ("minigrid", ""),
    "BabyAI": ("minigrid", ""),
    "MinAtar": ("minatar.gym", "register_envs"),
}
"""First word of an id -> the module that registers its ids, and its function for this; "": its import does."""

POOLS = "envpool"  # the package whose environments hive.envs.vectors.pool makes
SUGGESTIONS = 3  # maximum ids that are suggested for a misspelled one
SIMILAR = 0.8  # least similarity (0 to 1) of the second and third; the first needs difflib's default of 0.6
REGISTER = "register_envs"  # a function of packages whose import registers no ids
LISTED = 5  # ids of a package that are listed where none is similar
WRITE = 'write a custom class as "package.module:Class", and an id that a package registers as "package:Name-v0"'
VERSION = re.compile(r"-v\d+$")
VERSION_OF_MODULE = re.compile(r"_v\d+$")  # PettingZoo has a module for each version of an environment
FORMS = ("parallel_env", "env")  # functions of such a module: all agents act at once, or in turn
LIBRARY = re.compile(r"\.(?:so|dylib)(?::\w+)?$")
ONE_A_PROCESS = (
    'if a process can have only one of them, set env.processes = "each", which gives each a process of its own'
)
LIMIT = 1000  # steps of an episode in advice: that of most of Gymnasium's tasks


def make_environment(recipe: Recipe, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Build one environment of one agent, as `make_any`, which documents the errors. Raises them for several agents."""
    from hive.envs.agents.interface import has_agents  # it imports gymnasium

    environment: gymnasium.Env[Any, Any] = make_any(recipe, render_mode)
    if has_agents(environment):
        close(environment)
        raise EnvironmentFailed(
            f"`{recipe.id}` is an environment of several agents, expected a gymnasium.Env", permanent=True
        )
    return environment


def make_any(recipe: Recipe, render_mode: str | None = None) -> Any:
    """Build one environment in its single form: a gymnasium.Env, or one of several agents (hive.envs.agents).

    A recipe without a context makes environment 0. render_mode: "rgb_array" or "human" for pictures, as in
    gymnasium.make; None: without pictures. Raises ConfigError for wrong options of a preset, EnvironmentMissing if the
    environment, a wrapper or a module that they need is not installed, and EnvironmentFailed if a constructor raises or
    returns something else.
    """
    context = recipe.context
    if context is None:
        context = EnvContext(0)
        recipe = recipe.at(context)
    with context.announced():
        return _made(recipe, context, render_mode)


def make_each(recipe: Recipe, contexts: Sequence[EnvContext]) -> tuple[list[Recipe], list[Any], Callable[[int], Any]]:
    """Build an environment of each context; return the recipe of each, the environments, and what makes one again.

    Made again, its constructor draws the same from the global generators, which are left as they were: so does a
    resumed run. Raises the errors of `make_any`; then those that exist are closed.
    """
    recipes = [recipe.at(context) for context in contexts]
    environments: list[Any] = []
    drawn_from: list[tuple[Any, ...]] = []  # the states of the generators before each

    def again(number: int) -> Any:
        now = globals_state()
        restore_globals(drawn_from[number])
        try:
            return make_any(recipes[number])
        finally:
            restore_globals(now)

    try:
        for one in recipes:
            drawn_from.append(globals_state())
            environments.append(make_any(one))
            check_new(recipe.id, environments)
    except BaseException as error:
        for environment in environments:
            close(environment)
        if isinstance(error, EnvironmentFailed):
            raise _failed_construction(recipe, contexts, len(environments), error) from error
        raise
    return recipes, environments, again


def check_new(id: str, environments: Sequence[Any]) -> None:
    """Raise EnvironmentFailed if the last environment is one of the others, or around the same one as another."""
    *others, new = map(innermost, environments)
    for number, other in enumerate(others):
        if other is new:
            what = "the same object" if environments[number] is environments[-1] else "wrappers around the same object"
            raise EnvironmentFailed(
                f"`{id}` returned {what} for environments {number} and {len(others)}, which would step each other",
                hint="return a new environment from each call",
                permanent=True,
            )


def innermost(environment: Any) -> Any:
    """Return what is inside of all wrappers of an environment, also of hive's own around a class without a base."""
    from hive.envs.adopted import Adopted

    try:
        inner = environment.unwrapped
    except Exception:  # no such attribute, or a property of a user that raises
        inner = environment
    return inner.env if isinstance(inner, Adopted) else inner


def _failed_construction(
    recipe: Recipe, contexts: Sequence[EnvContext], made: int, error: EnvironmentFailed
) -> EnvironmentFailed:
    """Return the error of a construction in a process in which `made` environments of the recipe exist."""
    text, hint = str(error), error.hint
    if differs_by_environment(recipe):
        text += f" (environment {contexts[min(made, len(contexts) - 1)].index} of the run)"
    if made and not error.permanent:
        hint = "; ".join(filter(None, (hint, ONE_A_PROCESS)))
    return EnvironmentFailed(text, hint=hint, permanent=error.permanent)


def _made(recipe: Recipe, context: EnvContext, render_mode: str | None) -> Any:
    """Build the environment of a context, as `make_any`."""
    import gymnasium

    if recipe.is_program:
        from hive.envs.external.environment import program_environment

        return program_environment(recipe, context, render_mode)
    id, options, wrappers = recipe.id, recipe.options, recipe.wrappers
    target = _find(id)
    environment: Any
    if recipe.preset == "atari":
        from hive.envs.vectors.atari import AtariGame, AtariOptions

        return wrapped(id, AtariGame(id, target, AtariOptions.of(options), render_mode), wrappers)
    if render_mode is not None:
        options = {**options, "render_mode": render_mode}
    if takes_context(id, target):
        options = {PARAMETER: context, **options}
    if isinstance(target, gymnasium.envs.registration.EnvSpec):
        spec = copy.copy(target)
        # Without the wrapper that refuses a step before the first reset, a CartPole step is 3 % faster.
        spec.order_enforce = False
        environment = construct(
            "environment", id, f"`{id}`", lambda: gymnasium.make(spec, disable_env_checker=True, **options)
        )
    else:
        environment = construct("environment", id, f"`{id}`", lambda: target(**options))
    from hive.envs.agents.interface import has_agents, wrapped_agents
    from hive.envs.agents.lists import ListedAgents, lists_agents

    if has_agents(environment):
        return wrapped_agents(id, environment, wrappers)
    if not isinstance(environment, gymnasium.Env):
        from hive.envs.adopted import Adopted, has_interface

        if is_old(type(environment)) or not has_interface(environment):
            raise _no_environment(id, environment)
        environment = Adopted(environment)
    try:
        environment = wrapped(id, environment, wrappers)
    except EnvironmentFailed:
        spaces_of(id, environment)  # a space that is missing inside explains more
        raise
    return ListedAgents(environment) if lists_agents(environment) else environment


def takes_context(id: str, target: EnvSpec | Callable[..., Any]) -> bool:
    """Whether the class, the function or the entry point that an id refers to has a parameter `env_context`."""
    creator: Any = getattr(target, "entry_point", target)
    if isinstance(creator, str):
        if creator.startswith("gymnasium."):
            return False
        module, _, name = creator.partition(":")
        try:
            creator = getattr(import_module("environment", id, module), name, None)
        except (EnvironmentMissing, EnvironmentFailed):  # the constructor's error says more
            return False
    try:
        parameter = inspect.signature(creator).parameters.get(PARAMETER)
    except (TypeError, ValueError):  # nothing that can be called, or of C
        return False
    return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def differs_by_environment(recipe: Recipe) -> str:
    """Return why environments of a recipe may differ: a key, or the parameter of a constructor; "" if they do not."""
    if recipe.differs or recipe.preset != "none":
        return recipe.differs
    if recipe.is_program:
        return "the index in its hello"
    return f"the parameter `{PARAMETER}` of its constructor" * takes_context(recipe.id, _find(recipe.id))


def _no_environment(id: str, built: Any) -> EnvironmentFailed:
    """Return the error for an id whose constructor returned something else than an environment."""
    import gymnasium

    what, hint = f"an object of type {type(built).__name__}", ""
    if isinstance(built, type):
        what, hint = f"the class {built.__name__}", "a function must return an environment; a class is its own id"
    elif is_old(type(built)):
        what += f" of the old package `{OLD_PACKAGE}`"
        hint = "replace `import gym` by `import gymnasium as gym` in its code, or wrap it with the package shimmy"
    elif isinstance(built, gymnasium.vector.VectorEnv):
        hint = "hive makes vectors itself: return one environment, or register the class with `vector_entry_point`"
    elif callable(built) and not hasattr(built, "step"):
        hint = "a function must return an environment, not another function that makes it: env=make_env()"
    elif ":" in id:
        hint = ": ".join(filter(None, why_not_found(id)))
    return EnvironmentFailed(f"`{id}` built {what}, expected a gymnasium.Env", hint=hint, permanent=True)


def make_native(recipe: Recipe, count: int) -> VectorEnv[Any, Any, Any]:
    """Build the environment's own vectorized class with `count` copies.

    Raises ConfigError if the environment has none, otherwise as `make_environment`.
    """
    import gymnasium

    id, spec = recipe.id, _find(recipe.id)
    if not isinstance(spec, gymnasium.envs.registration.EnvSpec) or spec.vector_entry_point is None:
        raise ConfigError(f"`{id}` has no vectorized class", hint='set env.vector = "python"')
    vector: VectorEnv[Any, Any, Any] = construct(
        "environment",
        id,
        f"`{id}`",
        lambda: gymnasium.make_vec(spec, count, vectorization_mode="vector_entry_point", **recipe.options),
    )
    return vector


def make_compiled(recipe: Recipe, count: int) -> CompiledVector | None:
    """Build `count` environments in their compiled form; None if the kind of the recipe does not select one.

    "auto" selects the compiled form of Gymnasium's environments if it has their bits. Compiled environments have no
    `info`, so "auto" selects none of these if `info` names values, which would be NaN. Raises ConfigError for other
    compiled environments with `info`, and the errors of `hive.envs.vectors.compiled.load_library`.
    """
    from hive.envs.vectors.compiled_vector import CompiledVector

    form = _compiled_form(recipe)
    if form is None:
        return None
    spec = describe(replace(recipe, kind="python"))
    return CompiledVector(recipe.id, *form, count, spec.observation, spec.action.dtype)


def make_games(id: str, options: AtariOptions, count: int) -> Games:
    """Build `count` games of the preset "atari". Raises what `game_of` and `Games` raise."""
    from hive.envs.vectors.atari import Games, game_of

    return Games(game_of(id, _find(id)), count, options)


def takes_native(recipe: Recipe) -> bool:
    """Whether the kind of the recipe selects the environment's own vectorized class.

    "auto" selects it only if the environment has no single form, because vectorized classes spend steps on resets and
    share one random generator; and for the preset "atari" without wrappers. "native" selects it if there is no compiled
    form for the options. Raises ConfigError for "native" with wrappers, which are put around single environments, and
    where environments differ, which only single ones can.
    """
    if recipe.is_program:
        return False
    native, presets = recipe.kind == "native", recipe.preset != "none"
    if differs := differs_by_environment(recipe) if native else recipe.differs:
        return _no_class(recipe, differs)
    if recipe.kind == "auto":
        native = not recipe.wrappers if presets else getattr(_find(recipe.id), "entry_point", recipe.id) is None
    if native and recipe.wrappers:
        raise ConfigError(
            f"`{recipe.id}` is built as a vectorized class; env.wrappers and env.action_mask need single environments",
            hint='leave them out, or set env.vector = "python"',
        )
    # A compiled form that has no `info` is an error where it is built, not here.
    return native and (presets or _compiled_form(replace(recipe, info=())) is None)


def _no_class(recipe: Recipe, differs: str) -> bool:
    """Return that there is no vectorized class where environments differ. Raises ConfigError if it is needed."""
    id, hint = recipe.id, f"leave {differs} out"
    if recipe.kind == "native":
        hint = (
            'set env.vector = "python"' if differs.endswith("constructor") else f'{hint}, or set env.vector = "python"'
        )
        raise ConfigError(
            f'{differs} needs single environments, and env.vector = "native" has none of `{id}`', hint=hint
        )
    if recipe.kind == "auto" and recipe.preset == "none" and getattr(_find(id), "entry_point", id) is None:
        raise ConfigError(f"{differs} needs single environments, and `{id}` is a vectorized class only", hint=hint)
    return False


def steps_one_by_one(recipe: Recipe) -> bool:
    """Whether `hive.envs.vectors.vector.make_vector` builds single environments. Raises ConfigError as that does."""
    if takes_native(recipe) or recipe.is_program:
        return False
    return bool(recipe.wrappers) or recipe.preset != "none" or _compiled_form(recipe) is None


def describe(recipe: Recipe, *, plays: bool = False) -> EnvironmentSpec:
    """Build the environment once, read its spaces and close it.

    Its kind matters, because a vectorized class may have other spaces than the single environment (Atari's has stacked
    frames of 84 x 84). plays: whether to play it for the origins of its observations, if they may have some. Raises the
    errors of `make_vector`, and EnvironmentFailed for spaces that hive does not support.
    """
    from hive.envs.agents.interface import has_agents  # these import gymnasium
    from hive.envs.agents.waiting import described_agents

    id = recipe.id
    if takes_native(recipe) and recipe.preset == "none":
        environment: Any = make_native(recipe, 1)
        prefix, limit, skip, raw = "single_", limit_of_class(environment.spec), 1, False
        first: Any = first_of_class
    else:
        if not recipe.wrappers and recipe.preset == "none":
            _compiled_form(recipe)  # compares bits now: processes that are forked inherit the result
        environment = make_any(recipe)
        if has_agents(environment):
            try:
                return described_agents(recipe, environment, plays=plays)
            finally:
                close(environment)
        prefix, limit, skip = "", step_limit_of(environment), skip_of(environment)
        raw, first = sum_raw_returns(environment), first_of
    try:
        observations, actions = spaces_of(id, environment, prefix)
        observation, action = observation_spec(id, observations), action_spec(id, actions)
        if plays:
            observation = with_origins_seen(observation, first(environment, recipe))
        return EnvironmentSpec(id, observation, action, limit, skip, raw_return=raw)
    finally:
        close(environment)


def limit_advice(recipe: Recipe, *, apart: bool = False) -> str:
    """Return the setting that ends the episodes of this environment at a limit, which depends on how it is made.

    apart: the environment is that of other processes, so its module is not imported: its id decides.
    """
    id, wrappers = recipe.id, recipe.wrappers
    if recipe.is_program:
        return "the program must give max_episode_steps in its hello, or set truncated"
    if recipe.preset == "atari":
        return f"env.options = {{ max_num_frames_per_episode = {4 * LIMIT} }}"
    if apart and VERSION.search(id):
        return f"env.options = {{ max_episode_steps = {LIMIT} }}"
    found = None if apart else _find(id)
    if hasattr(found, "entry_point") and (id.startswith(f"{POOLS}:") or not takes_native(replace(recipe, options={}))):
        return f"env.options = {{ max_episode_steps = {LIMIT} }}"
    if hasattr(found, "entry_point"):
        return "its vectorized class must return truncated"
    entry = f'{{ name = "TimeLimit", max_episode_steps = {LIMIT} }}'
    return f"add {entry} to env.wrappers" if wrappers else f"env.wrappers = [{entry}]"


def import_modules(recipe: Recipe) -> None:
    """Import the modules of an environment and its wrappers, without calling a constructor.

    Raises EnvironmentMissing, and EnvironmentFailed if a module raises.
    """
    if recipe.is_program:
        return
    entry = getattr(_find(recipe.id), "entry_point", None)
    if isinstance(entry, str):
        with contextlib.suppress(EnvironmentMissing, EnvironmentFailed):  # the constructor's error says more
            import_module("environment", recipe.id, entry.partition(":")[0])
    import_wrappers(recipe.wrappers)


def preset_for(id: str) -> str:
    """Return the value of env.preset that suits an environment: "atari" for games of ale_py, otherwise "none"."""
    target = _find(id)
    from hive.envs.vectors.atari import ENTRY_POINT  # its import takes that of gymnasium

    return "atari" if getattr(target, "entry_point", None) == ENTRY_POINT else "none"


def _compiled_form(recipe: Recipe) -> tuple[CompiledEnvironment, Mapping[str, Any]] | None:
    """Return the compiled form that `recipe.kind` selects, and its options, or None. Raises as `make_compiled`."""
    from hive.envs.vectors.compiled import bit_equal, classic_control, load_library, with_limit

    id, options = recipe.id, recipe.options
    if recipe.kind == "python" or recipe.differs or recipe.is_program:
        return None
    if LIBRARY.search(id):
        form = load_library(id), options
    else:
        target = _find(id)
        classic = classic_control(target, options)
        if classic is None or (recipe.kind == "auto" and (recipe.info or not bit_equal(target))):
            return None
        form = classic, with_limit(target, options)
    if recipe.info:
        raise ConfigError(
            f"env.info names values of `info`, and the compiled environment `{id}` has none",
            hint="leave env.info out",
        )
    return form


def limit_of_class(spec: EnvSpec | None) -> int | None:
    """Return the time limit of a vectorized class, which is one of its arguments."""
    return None if spec is None else spec.kwargs.get("max_episode_steps", spec.max_episode_steps)


def _environment_of_module(id: str, package: ModuleType, name: str) -> Callable[..., Any] | None:
    """Return the function that makes the environment of a module of PettingZoo, as `mpe2:simple_spread_v3`; or None.

    It is the parallel one, if there is one: agents that act at once are collected faster than one by one. Raises
    EnvironmentMissing for a module that the package does not have, or that lacks another one.
    """
    modules = [one.name for one in pkgutil.iter_modules(getattr(package, "__path__", ()))]
    versions = [one for one in modules if VERSION_OF_MODULE.search(one)]
    if not VERSION_OF_MODULE.search(name) or not versions:
        return None
    if name not in versions:
        close = difflib.get_close_matches(name, versions, SUGGESTIONS, SIMILAR) or versions[:LISTED]
        raise EnvironmentMissing(
            f"no environment `{id}`: `{package.__name__}` has no module `{name}`",
            hint=f"it has {', '.join(f'`{one}`' for one in close)}",
        )
    module = import_module("environment", id, f"{package.__name__}.{name}")
    found = [getattr(module, form) for form in FORMS if callable(getattr(module, form, None))]
    return found[0] if found else None


def _find(id: str) -> EnvSpec | Callable[..., Any]:
    """Return the registered spec, or the class or function that the id refers to."""
    import gymnasium

    if not id:  # a run with a custom topology may leave it out
        raise EnvironmentMissing("the config names no environment", hint="add --set env.id=CartPole-v1, for example")
    if LIBRARY.search(id):
        from hive.envs.vectors.compiled import library_environment

        return functools.partial(library_environment, id)
    module, _, name = id.rpartition(":")
    imported = import_module("environment", id, module) if module else _register(id)
    if module == POOLS and imported is not None:
        from hive.envs.vectors.pool import pool_spec

        return pool_spec(id, name, imported)
    if imported is not None and (of_module := _environment_of_module(id, imported, name)) is not None:
        return of_module
    target = getattr(imported, name, None)
    if callable(target):
        return target  # type: ignore[no-any-return]
    if target is not None:
        kind = type(target).__name__
        raise EnvironmentMissing(
            f"`{id}` is an object of type {kind}, which exists already; hive makes its own environments",
            hint=f"name the class, for example {module}:{kind}, or a function that returns an environment",
        )
    spec = gymnasium.registry.get(name)
    if spec is None and imported is not None and (register := _registering(imported)) is not None:
        construct("environment", id, f"`{id}`", register)
        spec = gymnasium.registry.get(name)
    if spec is None:
        clause, hint = why_not_found(id)
        if module and clause:
            raise EnvironmentMissing(f"no environment `{id}`: {clause}", hint=hint)
        raise EnvironmentMissing(f"no environment `{id}`", hint=_instead(id.removesuffix(name), name, imported))
    return spec


def _register(id: str) -> ModuleType | None:
    """Import the module that registers this id, if PACKAGES has one, and return it."""
    import gymnasium

    first = "ALE" if "NoFrameskip" in id else re.split("[/-]", id)[0]
    module, function = PACKAGES.get(first, ("", ""))
    if not module:
        return None
    imported = import_module("environment", id, module)
    if function and id not in gymnasium.registry:
        construct("environment", id, f"`{id}`", getattr(imported, function))
    return imported


def _registering(module: ModuleType) -> Callable[[], Any] | None:
    """Return the function by which a package registers its ids, of the module or of a package around it; or None."""
    names = module.__name__.split(".")
    for count in range(len(names), 0, -1):
        function = getattr(sys.modules.get(".".join(names[:count])), REGISTER, None)
        if inspect.isfunction(function) and top_level(function.__module__) != "gymnasium":
            return function
    return None


def _instead(prefix: str, name: str, module: ModuleType | None) -> str:
    """Return a hint for a name that does not exist: similar ones, else those that the package of `module` registers."""
    import gymnasium

    if module is None:
        return _nearest(prefix, name, [*gymnasium.registry]) or WRITE
    package = module.__name__.partition(".")[0]
    its = [id for id, spec in gymnasium.registry.items() if _package_of(spec) == package]
    if nearest := _nearest(prefix, name, [*(its or gymnasium.registry), *vars(module)]):
        return nearest
    listed = ", ".join(f"`{prefix}{id}`" for id in its[:LISTED])
    more = f" and {len(its) - LISTED:,} more" if len(its) > LISTED else ""
    if its:
        return f"`{package}` registers {listed}{more}"
    own = [key for key, value in vars(module).items() if _is_environment(value) and value.__module__ == module.__name__]
    return f"it has: {', '.join(f'`{prefix}{key}`' for key in own[:LISTED])}" if own else WRITE


def _is_environment(value: object) -> bool:
    return inspect.isclass(value) and hasattr(value, "reset") and hasattr(value, "step")


def _package_of(spec: EnvSpec) -> str:
    """Return the top-level package of a registered environment."""
    entry = spec.entry_point or spec.vector_entry_point or ""
    return top_level(entry if isinstance(entry, str) else entry.__module__)


def _nearest(prefix: str, name: str, names: list[str]) -> str:
    """Return a hint with the nearest ids, at most one version of each; "" if none is near."""
    by_lower = {candidate.lower(): candidate for candidate in sorted(names)}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    close += difflib.get_close_matches(name.lower(), by_lower, n=len(by_lower), cutoff=SIMILAR)
    nearest: dict[str, str] = {}
    for word in close:
        nearest.setdefault(VERSION.sub("", word), f"`{prefix}{by_lower[word]}`")
    if nearest:
        return f"did you mean {' or '.join([*nearest.values()][:SUGGESTIONS])}?"
    return ""
