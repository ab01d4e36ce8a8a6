"""Describes and builds the environments of a config's [env] table."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hive.config import START_LIMIT_S, Config, EnvConfig
from hive.config.each import indices_of, overridden
from hive.envs.context import EnvContext
from hive.envs.make import describe, steps_one_by_one
from hive.envs.processes.describing import described_apart, keep_origins, kept_origins, play_apart
from hive.envs.processes.making import Household, process_vector
from hive.envs.processes.process_vector import Watcher
from hive.envs.processes.supervised import Failure
from hive.envs.recipe import MASKED, Recipe
from hive.envs.spaces.differences import spec_difference
from hive.envs.spaces.fitted import fitted_spec
from hive.envs.spaces.meaning import configured_meaning
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.spaces.origins import may_need, with_origins, with_origins_of
from hive.envs.spaces.reading_spaces import described_by_child
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.vectors.vector import VectorEnvironment, vector_of
from hive.errors import ConfigError, EnvironmentFailed, HiveError
from hive.hash_seed import OTHER_SEED, SEED, VARIABLE
from hive.runtime.process.user_code.sent_errors import raise_sent
from hive.runtime.process.user_code.throwaway import forks

if TYPE_CHECKING:
    from hive.envs.examination import Examination


def configured_spec(
    env: EnvConfig,
    limit_s: float = START_LIMIT_S,
    context: EnvContext | None = None,
    *,
    plays: bool = False,
    environments: int = 0,
    beside: bool = False,
) -> EnvironmentSpec:
    """Build the environment once, read its spaces and close it. Raises the errors of `describe`.

    A program (env.command, env.connect) is a process of its own. In a process that forks others later a child builds
    everything else; see `hive.envs.spaces.reading_spaces`. limit_s: of both, if env.start_limit_s is not set. context:
    which environment; None: that with the index 0. plays: whether its observations have origins, which are those of an
    earlier start of the run (`keeping`), or are found by playing it (hive.envs.spaces.origins). environments, beside:
    as of `described_by_child`.
    """
    limit_s = limit_s if env.start_limit_s is None else env.start_limit_s
    kept = kept_origins() if plays else None
    plays = plays and kept is None
    recipe = recipe_of(env) if context is None or env.is_apart else recipe_of(env).at(context)
    if env.is_apart:
        found = described_apart(recipe, limit_s, context, plays=plays)
    else:
        looks: dict[str, Any] = {"environments": environments, "beside": beside}
        found = described_by_child(recipe, limit_s, plays=plays, **looks) if forks() else describe(recipe, plays=plays)
    if plays and any(map(may_need, (found.observation, *(agent.observation for agent in found.agents)))):
        keep_origins(found)
    return configured_meaning(found if kept is None else with_origins_of(found, kept), env)


def configured_vector(
    env: EnvConfig,
    count: int,
    first: int = 0,
    contexts: Sequence[EnvContext] | None = None,
    spec: EnvironmentSpec | None = None,
    household: Household | None = None,
    origins: ObservationSpec | None = None,
) -> VectorEnvironment:
    """Build `count` environments. Raises the errors of `vector_of`, which documents `first` and `contexts`.

    spec: what they have, and household: who looks after them, if they have processes of their own; None: it is read,
    and failures are logged. origins: what observations are stored for; None: `spec`.
    """
    if origins is None and spec is not None:
        origins = spec.observation
    if not env.is_apart:
        return vector_of(recipe_of(env), count, first, contexts, origins)
    spec = configured_spec(env) if spec is None else spec
    spec = replace(spec, observation=with_origins(spec.observation, origins))
    vector = process_vector(
        env, recipe_of(env), spec, count, household or Household(Watcher(log_failure), may_leave_out=False)
    )
    try:
        vector.make_environments(contexts or [EnvContext(first + number) for number in range(count)])
    except BaseException:
        vector.close()
        raise
    return vector


def examined(
    env: EnvConfig,
    steps: int,
    limit_s: float,
    *,
    several: bool = False,
    look_s: float = 0.0,
    environments: int = 1,
    beside: bool = False,
    limits: Mapping[str, float],
    begin: Callable[[str], object] = lambda call: None,
) -> Examination:
    """Play an environment with random actions, as `examine`, which documents the arguments and errors.

    With env.processes it is in a process of its own, as in a run, which ends at a call that takes longer than `limits`,
    seconds by what the call is. Otherwise it is in this process, where `begin` may watch calls.
    """
    from hive.envs.examination import Examination, examine
    from hive.envs.look import Look
    from hive.envs.statistics import RunningStatistics

    recipe = recipe_of(env)
    asked: dict[str, Any] = {"several": several, "look_s": look_s, "environments": environments, "beside": beside}
    if not env.is_apart or env.is_program:
        return examine(recipe, steps, limit_s, **asked, begin=begin)
    question = {"what": "examination", "steps": steps, "limit_s": limit_s, **asked}
    begun_s = time.perf_counter()
    found = play_apart(recipe, question, limits)
    calls_s = sum(found[name] for name in ("first_reset_s", "first_step_s", "reset_s", "step_s"))
    found["make_s"] = time.perf_counter() - begun_s - calls_s  # with the start of the process
    if (sent := found.pop("failure")) is not None:
        try:
            raise_sent(sent)
        except EnvironmentFailed as error:
            found["failure"] = error
    looked = None if found["looked"] is None else Look(**found["looked"])
    statistics = [RunningStatistics(*one) for one in found["statistics"]]
    return Examination(**found | {"statistics": statistics, "looked": looked})


def salted(env: EnvConfig, steps: int, limit_s: float, limits: Mapping[str, float]) -> str:
    """Return what an environment does otherwise where Python hashes texts otherwise: "first observation"; "": nothing.

    It is played in two processes, with two hash seeds. limits: as of `examined`.
    """
    from hive.envs.repeatability import difference

    if env.is_program:
        return ""
    question = {"what": "trace", "steps": steps, "limit_s": limit_s}
    first, again = (play_apart(recipe_of(env), question, limits, {VARIABLE: seed}) for seed in (SEED, OTHER_SEED))
    return difference(first, again)


def log_failure(failure: Failure) -> None:
    """Log that an environment has failed, where no run does."""
    logging.getLogger("hive").warning("%s", failure.text)


def changed_env(env: EnvConfig, options: Mapping[str, Any], *, single: bool = False) -> EnvConfig:
    """Return [env] with further options, which replace those of env.options and of env.each.

    single: as environments that are stepped in Python, where both exist.
    """
    if single and env.vector == "auto":
        env = replace(env, vector="python")
    if not options:
        return env
    return replace(env, options={**env.options, **options}, each=overridden(env.each, options))


def can_be_helped(env: EnvConfig) -> bool:
    """Whether several processes can share the environments of a collector: single ones, stepped in Python."""
    return steps_one_by_one(recipe_of(env))


def recipe_of(env: EnvConfig) -> Recipe:
    """Return how an environment of the config is made; around its env.wrappers is that of env.action_mask."""
    mask = {"name": MASKED, "source": env.action_mask, "id": env.id}
    wrappers = (*env.wrappers, mask) if env.action_mask and not env.is_program else env.wrappers
    return Recipe(
        env.id,
        env.options,
        env.vector,
        wrappers,
        env.preset,
        env.info,
        env.action_mask,
        env.agent_index,
        env.state,
        env.reset_options,
        env.each,
        command=env.command,
        connect=env.connect,
    )


def check_evaluation(config: Config, training: EnvironmentSpec) -> None:
    """Build the environment of evaluations once, if [evaluation.env] has keys.

    Raises ConfigError if its observations or actions are not those of `training`, and the errors of `describe`.
    """
    if not config.evaluation.env:
        return
    evaluation = configured_spec(config.evaluation_env, config.start_limit_s)
    hint = "evaluations need the spaces of training: set the wrappers and options that form them in both"
    _check_same("[evaluation.env]", evaluation, _without_critic(config, training), hint)


def check_curriculum(config: Config, training: EnvironmentSpec) -> None:
    """Build the environment of each stage of env.curriculum once.

    Raises ConfigError if it cannot be built, or if its observations or actions are not those of `training`.
    """
    options: dict[str, Any] = {}
    for number, stage in enumerate(config.env.curriculum, start=1):
        options |= stage["options"]
        env, what = changed_env(config.env, options), f"stage {number} of env.curriculum"
        hint = "stages need the spaces of the first one: declare the largest, and pad"
        _check_same(what, _built(config, env, EnvContext(0), what), training, hint)


def check_each(config: Config, training: EnvironmentSpec) -> None:
    """Build the environment of each index in env.each once, also of evaluators; errors as of `check_curriculum`."""
    tables = [(config.env, config.training_indices, training)]
    if config.evaluation.every:
        tables.append((config.evaluation_env, config.evaluator_indices, _without_critic(config, training)))
    for env, known, expected in tables:
        for index in sorted({index for entry in env.each for index in indices_of(entry) if index in known}):
            what = f"index {index} of env.each"
            hint = "all environments need the spaces of the one with index 0: declare the largest, and pad"
            _check_same(what, _built(config, env, EnvContext(index), what), expected, hint)


def _built(config: Config, env: EnvConfig, context: EnvContext, what: str) -> EnvironmentSpec:
    """Return the spec of an environment. Raises ConfigError if it cannot be built; `what` names it then."""
    try:
        return configured_spec(env, config.start_limit_s, context)
    except HiveError as error:
        raise ConfigError(f"{what}: {error}", hint=error.hint) from None


def _without_critic(config: Config, training: EnvironmentSpec) -> EnvironmentSpec:
    """Return the spec of training without the parts of observations that evaluations may lack."""
    return replace(training, observation=training.observation.without(config.network.critic_parts))


def _check_same(what: str, found: EnvironmentSpec, training: EnvironmentSpec, hint: str) -> None:
    """Raise ConfigError if the observations or actions of `found`, which `what` names, are not those of `training`."""
    observations = training.observation, fitted_spec(training.observation, found.observation)
    for kind, specs in (("observations", observations), ("actions", (training.action, found.action))):
        if differs := spec_difference(*specs):
            raise ConfigError(f"the {kind} of [env] and of {what} differ in {differs}", hint=hint)
