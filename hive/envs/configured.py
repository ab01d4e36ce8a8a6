"""Describes and builds the environments of a config's [env] table."""

from __future__ import annotations

from hive.config import EnvConfig
from hive.envs.make import describe
from hive.envs.spec import EnvironmentSpec
from hive.envs.vector import VectorEnvironment, make_vector
from hive.envs.wrappers import WrapperConfig

__all__ = ["configured_spec", "configured_vector", "wrappers_of"]


def configured_spec(env: EnvConfig) -> EnvironmentSpec:
    """Build the environment once, read its spaces and close it. Raises the errors of `describe`."""
    return describe(env.id, env.options, env.vector, wrappers_of(env), env.preset)


def configured_vector(env: EnvConfig, count: int) -> VectorEnvironment:
    """Build `count` environments. Raises the errors of `make_vector`."""
    return make_vector(env.id, env.options, count, env.vector, wrappers_of(env), env.preset, env.info)


def wrappers_of(env: EnvConfig) -> tuple[WrapperConfig, ...]:
    """Return all wrappers of an environment: those of env.wrappers and, around them, that of env.action_mask."""
    mask = {"name": "hive.envs.masks:Masked", "source": env.action_mask}
    return (*env.wrappers, mask) if env.action_mask else env.wrappers
