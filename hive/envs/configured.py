"""Describes and builds the environments of a config's [env] table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from hive.config import START_LIMIT_S, Config, EnvConfig
from hive.envs.external.program import describe_program
from hive.envs.make import describe, steps_one_by_one
from hive.envs.recipe import MASKED, Recipe
from hive.envs.spaces.actions import ActionSpec
from hive.envs.spaces.fitted import fitted_spec
from hive.envs.spaces.meaning import configured_meaning
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.spaces.reading_spaces import described_by_child
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.vectors.vector import VectorEnvironment, vector_of
from hive.errors import ConfigError, HiveError
from hive.runtime.process.user_code.throwaway import forks


def configured_spec(env: EnvConfig, limit_s: float = START_LIMIT_S) -> EnvironmentSpec:
    """Build the environment once, read its spaces and close it. Raises the errors of `describe`.

    A program (env.command, env.connect) is a process of its own. Everything else is built by a child in a process that
    forks others later; see `hive.envs.spaces.reading_spaces`. limit_s: of either, if env.start_limit_s is not set.
    """
    limit_s = limit_s if env.start_limit_s is None else env.start_limit_s
    recipe = recipe_of(env)
    if recipe.is_program:
        return configured_meaning(describe_program(recipe, limit_s), env)
    return configured_meaning(described_by_child(recipe, limit_s) if forks() else describe(recipe), env)


def configured_vector(env: EnvConfig, count: int, first: int = 0) -> VectorEnvironment:
    """Build `count` environments. Raises the errors of `make_vector`, which documents `first`."""
    return vector_of(recipe_of(env), count, first)


def changed_env(env: EnvConfig, options: Mapping[str, Any], *, single: bool = False) -> EnvConfig:
    """Return [env] with further options. single: as environments that are stepped in Python, where both exist."""
    if single and env.vector == "auto":
        env = replace(env, vector="python")
    return replace(env, options={**env.options, **options}) if options else env


def can_be_helped(env: EnvConfig) -> bool:
    """Whether several processes can share the environments of a collector: single ones, stepped in Python."""
    return steps_one_by_one(recipe_of(env))


def recipe_of(env: EnvConfig) -> Recipe:
    """Return how an environment of the config is made; around its env.wrappers is that of env.action_mask."""
    is_program = bool(env.command) or env.connect is not None
    mask = {"name": MASKED, "source": env.action_mask, "id": env.id}
    wrappers = (*env.wrappers, mask) if env.action_mask and not is_program else env.wrappers
    return Recipe(
        env.id,
        env.options,
        env.vector,
        wrappers,
        env.preset,
        env.info,
        env.rules,
        env.action_mask,
        env.agent_index,
        env.state,
        env.command,
        env.connect,
    )


def check_evaluation(config: Config, training: EnvironmentSpec) -> None:
    """Build the environment of evaluations once, if [evaluation.env] has keys.

    Raises ConfigError if its observations or actions are not those of `training`, and the errors of `describe`.
    """
    if not config.evaluation.env:
        return
    evaluation = configured_spec(config.evaluation_env, config.start_limit_s)
    seen = training.observation.without(config.network.critic_parts)
    observations = seen, fitted_spec(seen, evaluation.observation)
    for what, specs in (("observations", observations), ("actions", (training.action, evaluation.action))):
        if differs := spec_difference(*specs):
            raise ConfigError(
                f"the {what} of [env] and of [evaluation.env] differ in {differs}",
                hint="evaluations need the spaces of training: set the wrappers and options that form them in both",
            )


def check_curriculum(config: Config, training: EnvironmentSpec) -> None:
    """Build the environment of each stage of env.curriculum once.

    Raises ConfigError if it cannot be built, or if its observations or actions are not those of `training`.
    """
    options: dict[str, Any] = {}
    for number, stage in enumerate(config.env.curriculum, start=1):
        options |= stage["options"]
        try:
            spec = configured_spec(changed_env(config.env, options), config.start_limit_s)
        except HiveError as error:
            raise ConfigError(f"stage {number} of env.curriculum: {error}", hint=error.hint) from None
        pairs = (("observations", training.observation, spec.observation), ("actions", training.action, spec.action))
        for what, before, now in pairs:
            if differs := spec_difference(before, now):
                raise ConfigError(
                    f"the {what} of [env] and of stage {number} of env.curriculum differ in {differs}",
                    hint="stages need the spaces of the first one: declare the largest, and pad",
                )


def spec_difference(first: ObservationSpec | ActionSpec, second: ObservationSpec | ActionSpec) -> str:
    """Return the first difference of two specs, as "shape: (4,) and (8,)"; "" if they are equal."""
    if first == second:
        return ""
    if type(first) is not type(second):
        return f"kind: {type(first).__name__} and {type(second).__name__}"
    if isinstance(first, ObservationSpec) and isinstance(second, ObservationSpec) and (first.parts or second.parts):
        parts, other_parts = _parts(first), _parts(second)
        if parts != other_parts:
            return f"parts: {parts} and {other_parts}"
    values = ((field.name, getattr(first, field.name), getattr(second, field.name)) for field in fields(first))
    name, value, other = next(triple for triple in values if triple[1] != triple[2])
    return f"{name}: {value} and {other}"


def _parts(spec: ObservationSpec) -> str:
    """Return the parts of an observation, and whether it has an action mask."""
    named = [f"`{part.name}` {part.dtype} {part.shape}" for part in spec.parts] or [f"one array {spec.shape}"]
    return ", ".join([*named, *(["an action mask"] if spec.mask else [])])
