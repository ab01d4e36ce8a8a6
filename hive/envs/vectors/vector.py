"""Vectors of B environments, which collectors step.

There are three kinds, which write the same rows (`hive.envs.vectors.rows`). `PythonVector` steps B single environments
in a loop, `CompiledVector` steps environments in C or C++ by one native call, and `NativeVector` calls an environment's
own vectorized class. Which of the first and the last is faster depends on the environment. Only `NativeVector` can have
steps that are not valid.

Environments of a vector do not run in parallel; collectors do, and their helpers (`hive.envs.processes.helped_vector`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hive.envs.context import EnvContext
from hive.envs.loading import close
from hive.envs.make import make_compiled, make_each, make_environment, make_games, make_native, takes_native
from hive.envs.random_play import OneVector
from hive.envs.recipe import Recipe
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.spaces.origins import with_origins
from hive.envs.vectors.native_vector import NativeVector
from hive.envs.vectors.python_vector import PythonVector
from hive.envs.vectors.rows import StepRow
from hive.envs.vectors.seeding import runs_python
from hive.envs.wrappers import WrapperConfig, with_names
from hive.errors import ConfigError, brief
from hive.runtime.process.user_code.torch_state import environment_torch, environments_differ


class VectorEnvironment(Protocol):
    """`count` environments that are stepped together; each is reset automatically when its episode ends.

    An environment that raises, violates its spaces or returns NaN causes EnvironmentFailed, with its number and the
    step. The error is permanent unless the environment raised it. The row is then partly written and must not be used.
    """

    count: int

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        """Start an episode in every environment and write the first observations [B, ...].

        Equal `seeds` [B] give equal trajectories for equal actions, if the environment uses only its own random
        generator. Open episodes are dropped and not counted.
        """

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Step every environment with `actions` [B, ...], in the form of the action spec, and write `row`."""

    def close(self) -> None:
        """Close the environments, which frees their resources."""


def let_play(vector: object, episodes: NDArray[np.int64]) -> None:
    """Let each environment of a vector play so many more episodes until the next `reset`, [B]; -1: without a limit.

    The running one is among them. One that has played them is left alone, neither stepped nor reset: its columns are
    not valid, and its observation stays. With 0 it is left alone at once. Vectors without a method `play`, of compiled
    environments and of vectorized classes, reset themselves and go on.
    """
    if (method := getattr(vector, "play", None)) is not None:
        method(episodes)


def refused(vector: object) -> str:
    """Return what an environment raised that refused a reset within an episode and was constructed again, or ""."""
    return str(getattr(vector, "refused", ""))


@brief
def make_vector(
    id: str,
    options: Mapping[str, Any],
    count: int,
    kind: str = "auto",
    wrappers: Sequence[WrapperConfig] = (),
    preset: str = "none",
    info: Sequence[str] = (),
    first: int = 0,
) -> VectorEnvironment:
    """Build `count` environments of one id, each with `options` and inside `wrappers`. They write the values `info`.

    `kind` is "python"; "native": compiled, or the environment's vectorized class; or "auto": compiled if no number
    depends on it, vectorized only if the environment exists in no other form, and for the preset "atari" without
    wrappers. Raises EnvironmentMissing, EnvironmentFailed, and ConfigError for "native" if there is neither form or if
    there are wrappers, and for wrong options of a preset.
    first: the number of the first one in its collector, for messages.
    """
    return vector_of(Recipe(id, options, kind, wrappers, preset, info), count, first)


def vector_of(
    recipe: Recipe,
    count: int,
    first: int = 0,
    contexts: Sequence[EnvContext] | None = None,
    origins: ObservationSpec | None = None,
) -> VectorEnvironment:
    """Build `count` environments. Raises the errors of `make_vector`, which documents `first`.

    contexts: who each is; None: number `first` and those that follow, outside of a run. origins: of a run or policy,
    whose origins are subtracted from observations (hive.envs.spaces.origins); None: as the spaces say.
    """
    from hive.envs.agents.interface import has_agents  # it imports gymnasium

    id, info = recipe.id, recipe.info
    native = takes_native(recipe)
    if recipe.preset == "atari":
        from hive.envs.vectors.atari import AtariOptions, AtariVector

        if native:
            settings = AtariOptions.of(recipe.options)
            games = make_games(id, settings, count)
            return AtariVector(NativeVector(id, games, info), games, [settings])
    elif native:
        return _with_environment_torch(NativeVector(id, make_native(recipe, count), info, origins))
    elif not recipe.wrappers and (compiled := make_compiled(recipe, count)):
        return compiled
    recipes, environments, again = make_each(recipe, contexts or [EnvContext(first + one) for one in range(count)])
    if has_agents(environments[0]):
        return _with_one_policy(recipes, environments, first, origins, again)
    options = [one.reset_options for one in recipes]
    vector = PythonVector(with_names(id, recipe.wrappers), environments, info, first, options, origins, again)
    if recipe.preset == "atari":
        return AtariVector(vector, environments, [AtariOptions.of(one.options) for one in recipes])
    return _with_environment_torch(vector)


def vector_of_one(recipe: Recipe) -> NativeVector | OneVector:
    """Build one environment, stepped as in a run, but with Python where a run takes its compiled form.

    A recipe without a context makes environment 0. Raises the errors of `make_vector`.
    """
    if recipe.preset == "none" and takes_native(recipe):
        return NativeVector(recipe.id, make_native(recipe, 1), recipe.info)
    recipe = recipe if recipe.context is not None else recipe.at(EnvContext(0))
    environment = make_environment(recipe)
    try:
        return OneVector(with_names(recipe.id, recipe.wrappers), environment, recipe.info, recipe.reset_options)
    except BaseException:
        close(environment)
        raise


def _with_one_policy(
    recipes: Sequence[Recipe],
    environments: Sequence[Any],
    first: int,
    origins: ObservationSpec | None,
    again: Callable[[int], Any],
) -> VectorEnvironment:
    """Return environments of several agents that all have the same policy, as a vector with a row of each agent.

    Raises ConfigError for agents that act in turn, which `hive.envs.agents.turns` plays.
    """
    from hive.envs.agents.alone import Alone
    from hive.envs.agents.interface import describe_agents
    from hive.envs.agents.parallel import ParallelVector
    from hive.envs.agents.table import seat_of_all, table_of

    recipe = recipes[0]
    spec = describe_agents(recipe.id, environments[0], recipe)
    spec = replace(
        spec,
        agents=tuple(replace(one, observation=with_origins(one.observation, origins)) for one in spec.agents),
    )
    table = table_of(recipes, environments, [seat_of_all("", spec)], first=first, construct=again)
    if not isinstance(table, ParallelVector):
        raise ConfigError(f"the agents of `{recipe.id}` act in turn", hint="`hive up` plays it turn by turn")
    return Alone(table)


def _with_environment_torch(vector: NativeVector | PythonVector) -> VectorEnvironment:
    """Return `vector` so that it runs with the settings of its environments: `vector` itself if they are hive's."""
    return _WithEnvironmentTorch(vector) if environments_differ() else vector


class _WithEnvironmentTorch:
    """A `VectorEnvironment`, which documents the methods, that runs with its environments' settings of torch."""

    def __init__(self, vector: NativeVector | PythonVector) -> None:
        self.count = vector.count
        self.runs_python = runs_python(vector)
        self.environments = vector.environments
        self.observation, self.action = vector.observation, vector.action
        self.set_attributes = vector.set_attributes
        self._vector = vector

    @property
    def refused(self) -> str:
        """As of `PythonVector`."""
        return refused(self._vector)

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        """Start an episode in every environment; write `observations` [B, ...]."""
        with environment_torch():
            self._vector.reset(seeds, observations)

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Step every environment once with stored `actions` [B, ...]; write `row`."""
        with environment_torch():
            self._vector.step(actions, row)

    def play(self, episodes: NDArray[np.int64]) -> None:
        """Let each environment play so many more episodes."""
        let_play(self._vector, episodes)

    def close(self) -> None:
        """Close every environment."""
        with environment_torch():
            self._vector.close()
