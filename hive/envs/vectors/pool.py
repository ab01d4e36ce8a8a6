"""Environments of EnvPool (Weng et al. 2022), whose threads step a whole batch in C++: `env.id = "envpool:Pong-v5"`.

EnvPool takes its seed when a pool is made and ignores that of `reset`. So a pool is made at every reset with a seed,
and equal seeds give equal trajectories. Its arguments are [env.options], such as `num_threads`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

from hive.errors import EnvironmentMissing

ONE_THREAD = 1  # collectors have a core each, so that by default a pool does not take those of others


def pool_spec(id: str, name: str, envpool: ModuleType) -> EnvSpec:
    """Return the spec of the environment `name` of EnvPool, which has only a vectorized form.

    Raises EnvironmentMissing if EnvPool has no such environment.
    """
    names = envpool.list_all_envs()
    if name not in names:
        raise EnvironmentMissing(
            f"no environment `{id}`: EnvPool has none of this name", hint="see envpool.list_all_envs()"
        )

    def make(num_envs: int = 1, **options: Any) -> Pool:
        return Pool(envpool, name, num_envs, options)

    with _quiet():
        limit = envpool.make_spec(name).config._asdict()["max_episode_steps"]
    return EnvSpec(id=name, vector_entry_point=make, max_episode_steps=limit)


class Pool(VectorEnv[Any, Any, Any]):
    """`num_envs` environments of one pool. options: arguments of `envpool.make_gymnasium`."""

    runs_python = False

    def __init__(self, envpool: ModuleType, name: str, num_envs: int, options: dict[str, Any]) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._envpool = envpool
        self._name = name
        self._options = {"num_threads": ONE_THREAD, **options}
        self.num_envs = num_envs
        self._pool = self._made(0)
        self.single_observation_space = self._pool.single_observation_space
        self.single_action_space = self._pool.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, of a new pool if there is a seed."""
        if seed is not None:
            self._pool.close()
            self._pool = self._made(seed)
        observations, info = self._pool.reset()
        return observations, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every environment. An environment whose episode has ended is reset instead, and its action ignored."""
        stepped: tuple[Any, Any, Any, Any, dict[str, Any]] = self._pool.step(actions)
        return stepped

    def close(self, **_: Any) -> None:
        """Stop the threads."""
        self._pool.close()

    def _made(self, seed: int) -> Any:
        with _quiet():
            return self._envpool.make_gymnasium(self._name, num_envs=self.num_envs, seed=seed, **self._options)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out Gymnasium's warnings about the precision of EnvPool's bounds, which no user can change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
