"""Environments in C and C++ behind the interface of hive/env.h: shared libraries of users, and classic control.

A shared library is found by the id of its environment:

    ./catch.so:Catch     the constant `Catch` in the library
    ./catch.so           its constant `environment`

Gymnasium's CartPole, Acrobot, MountainCar, MountainCarContinuous and Pendulum are compiled into hive. Equal seeds and
actions give the bits of Gymnasium's own classes, so runs do not change, only their speed. They repeat these classes'
formulas with the sines of the C library and the random numbers of NumPy. Other versions of either may differ in a last
bit. Therefore `bit_equal` compares both before "auto" chooses a compiled one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from hive import _native
from hive.envs.spaces.observation import observation_spec
from hive.envs.vectors.rows import StepRow
from hive.errors import EnvironmentFailed, EnvironmentMissing

DEFAULT_NAME = "environment"
LIMIT = "max_episode_steps"  # the one option of gymnasium.make that compiled environments have

CLASSIC = "gymnasium.envs.classic_control."
OPTIONS: dict[str, dict[str, tuple[type, ...]]] = {
    "CartPoleEnv": {"sutton_barto_reward": (bool,)},
    "AcrobotEnv": {},
    "MountainCarEnv": {"goal_velocity": (int, float)},
    "Continuous_MountainCarEnv": {"goal_velocity": (int, float)},
    "PendulumEnv": {"g": (int, float)},
}
"""Class of Gymnasium's classic control -> the arguments that its compiled form has, and their types."""

COMPARED_STEPS = 256
COMPARED_ANGLES = 4096
COMPARED: dict[str, bool] = {}
"""Environment -> what `bit_equal` returned for it in this process, or in the child that read its spaces."""

LARGEST_ANGLE = 100.0  # beyond Pendulum's after the 200 steps of an episode


def load_library(id: str) -> _native.CompiledEnvironment:
    """Return the environment that `id` names.

    Raises EnvironmentMissing if there is no such file or no such constant, and EnvironmentFailed for a library that
    cannot be loaded or was compiled for another version of hive/env.h.
    """
    path, _, name = id.partition(":")
    name = name or DEFAULT_NAME
    if not Path(path).is_file():
        raise EnvironmentMissing(
            f"no environment `{id}`: there is no file `{path}`",
            hint="compile it, and start hive in the folder in which its path begins",
        )
    try:
        return _native.CompiledEnvironment.load(str(Path(path).resolve()), name)
    except KeyError:
        raise EnvironmentMissing(
            f"no environment `{id}`: `{path}` exports no `{name}`",
            hint=f"define it with HIVE_ENVIRONMENT({name}), or write the name of another one: {path}:NAME",
        ) from None
    except ValueError as error:
        hint = "compile it with the hive/env.h of this hive" if "hive/env.h" in str(error) else ""
        raise EnvironmentFailed(f"`{id}` cannot be used: {error}", hint=hint, permanent=True) from None


def library_environment(id: str, **options: Any) -> gymnasium.Env[Any, Any]:
    """Build one environment of a library, inside its time limit. Raises the errors of `load_library`."""
    game = CompiledGame(id, load_library(id), options)
    assert game.spec is not None
    limit = game.spec.max_episode_steps
    return gymnasium.wrappers.TimeLimit(game, limit) if limit else game


def declared_sizes(id: str, environment: _native.CompiledEnvironment, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the environment's `describe` says. Raises EnvironmentFailed if it refuses `options`."""
    for name, value in options.items():
        if not isinstance(value, bool | int | float | str):
            kind = type(value).__name__
            raise EnvironmentFailed(
                f"env.options.{name} is of type {kind}, and a compiled environment takes numbers and words",
                permanent=True,
            )
    try:
        return environment.describe(dict(options))
    except ValueError as error:
        raise EnvironmentFailed(f"`{id}` cannot be built: {error}", permanent=True) from None


def classic_control(found: object, options: Mapping[str, Any]) -> _native.CompiledEnvironment | None:
    """Return the compiled form of a registered environment with these options; None if it has none."""
    if not isinstance(found, EnvSpec) or not isinstance(found.entry_point, str) or found.additional_wrappers:
        return None
    module, _, name = found.entry_point.partition(":")
    if not module.startswith(CLASSIC) or name not in OPTIONS:
        return None
    known = OPTIONS[name] | {LIMIT: (int,)}
    for option, value in {**found.kwargs, **options}.items():
        if option not in known or type(value) not in known[option] or not math.isfinite(value):
            return None
    limit = options.get(LIMIT, found.max_episode_steps)
    if limit is not None and limit < 1:
        return None
    return _native.CompiledEnvironment.classic_control(name)


def with_limit(found: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the compiled form of a registered environment, which include its time limit."""
    assert isinstance(found, EnvSpec)
    return {**found.kwargs, LIMIT: found.max_episode_steps or 0, **options}


def bit_equal(found: object) -> bool:
    """Whether the compiled form of a registered environment has the bits of the installed Gymnasium and NumPy.

    It compares sines, cosines and squares, and a trajectory of some episodes, once per process and environment.
    """
    assert isinstance(found, EnvSpec)
    key = f"{found.id} {found.entry_point}"
    if key not in COMPARED:
        COMPARED[key] = _equal_functions() and _equal_trajectories(found.id)
    return COMPARED[key]


@functools.cache
def _equal_functions() -> bool:
    """Whether NumPy's and Python's functions of one number are those that compiled environments use."""
    near = np.linspace(-0.25, 0.25, COMPARED_ANGLES)
    angles = np.concatenate([near, np.linspace(-LARGEST_ANGLE, LARGEST_ANGLE, COMPARED_ANGLES)])
    sines, cosines = np.empty_like(angles), np.empty_like(angles)
    _native.sines_cosines(angles, sines, cosines)
    few = angles[:: len(angles) // 256].tolist()
    return (
        np.array_equal(np.sin(angles), sines)
        and np.array_equal(np.cos(angles), cosines)
        and [math.cos(angle) for angle in few] == np.cos(few).tolist()
    )


def _equal_trajectories(id: str) -> bool:
    """Whether some episodes of both forms have equal bits, with random actions and actions that do not change."""
    spec = gymnasium.registry[id]
    environment = gymnasium.make(spec, disable_env_checker=True, max_episode_steps=COMPARED_STEPS // 2)
    form = classic_control(spec, {})
    assert form is not None
    compiled = CompiledGame(id, form, spec.kwargs)
    rng = np.random.default_rng(0)
    try:
        for seed, constant in ((1, False), (2**40 + 3, True)):
            action = _action(environment.action_space, rng)
            mine, its = compiled.reset(seed=seed)[0], environment.reset(seed=seed)[0]
            for _ in range(COMPARED_STEPS):
                if not np.array_equal(mine, its):
                    return False
                if not constant:
                    action = _action(environment.action_space, rng)
                mine, *results = compiled.step(action)[:3]
                its, reward, terminated, truncated, _ = environment.step(action)
                if results != [np.float32(reward), terminated]:
                    return False
                if terminated or truncated:
                    if not np.array_equal(mine, its):
                        return False
                    mine, its = compiled.reset()[0], environment.reset()[0]
        return True
    finally:
        environment.close()


def _action(space: spaces.Space[Any], rng: np.random.Generator) -> Any:
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n)
    assert isinstance(space, spaces.Box)
    return rng.uniform(space.low, space.high).astype(np.float32)


class CompiledGame(gymnasium.Env[Any, Any]):
    """One compiled environment as a Gymnasium environment, for wrappers, `hive check` and scripts.

    Raises EnvironmentFailed if it cannot be created. Its time limit is not applied here.
    """

    def __init__(self, id: str, environment: _native.CompiledEnvironment, options: Mapping[str, Any]) -> None:
        sizes = declared_sizes(id, environment, options)
        self.observation_space = _observations_of(sizes)
        self.action_space = _actions_of(sizes)
        self.spec = EnvSpec(id.rpartition(":")[2].rpartition("/")[2], max_episode_steps=sizes[LIMIT] or None)
        self._continuous = bool(sizes["low"])
        self._seeded = False
        self._vector = create(id, environment, options, 1)
        self._row = StepRow.allocate(observation_spec(id, self.observation_space), 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; see gymnasium.Env."""
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**63))
        self._seeded = True
        if not self._vector.reset_one(0, seed, self._row.observations):
            raise self._failed()
        return self._row.observations[0].copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make one step; see gymnasium.Env."""
        row = self._row
        actions = np.asarray(action, np.float32 if self._continuous else np.int64)[None]
        if self._vector.step_all(actions, row.native) != 0:
            raise self._failed()
        return row.observations[0].copy(), float(row.rewards[0]), bool(row.terminated[0]), bool(row.truncated[0]), {}

    def _failed(self) -> EnvironmentFailed:
        kind, _, text = self._vector.fault
        return EnvironmentFailed(f"the action {text}" if kind == "action" else text)


def create(
    id: str, environment: _native.CompiledEnvironment, options: Mapping[str, Any], count: int
) -> _native.CompiledVector:
    """Create `count` environments. Raises EnvironmentFailed."""
    try:
        return _native.CompiledVector(environment, dict(options), count)
    except ValueError as error:
        raise EnvironmentFailed(f"`{id}` cannot be built: {error}") from None


def _observations_of(sizes: Mapping[str, Any]) -> spaces.Box:
    if sizes["dtype"] == "uint8":
        return spaces.Box(0, 255, sizes["shape"], np.uint8)
    return spaces.Box(-np.inf, np.inf, sizes["shape"], np.float32)


def _actions_of(sizes: Mapping[str, Any]) -> spaces.Space[Any]:
    if sizes["low"]:
        low: NDArray[np.float32] = np.array(sizes["low"], np.float32)
        return spaces.Box(low, np.array(sizes["high"], np.float32), dtype=np.float32)
    return spaces.MultiDiscrete(sizes["choices"]) if sizes["elements"] else spaces.Discrete(sizes["choices"][0])
