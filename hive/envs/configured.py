"""Describes and builds the environments of a config's [env] table."""

from __future__ import annotations

from hive.config import EnvConfig
from hive.envs.make import describe
from hive.envs.spec import EnvironmentSpec
from hive.envs.vector import VectorEnvironment, make_vector

__all__ = ["configured_spec", "configured_vector"]


def configured_spec(env: EnvConfig) -> EnvironmentSpec:
    """Build the environment once, read its spaces and close it. Raises the errors of `describe`."""
    return describe(env.id, env.options, env.vector, env.wrappers)


def configured_vector(env: EnvConfig, count: int) -> VectorEnvironment:
    """Build `count` environments. Raises the errors of `make_vector`."""
    return make_vector(env.id, env.options, count, env.vector, env.wrappers)
