"""`hive.evaluate`: plays whole episodes with a policy from a script or notebook, as `hive eval` does.

mean, deviation = hive.evaluate("cartpole-ppo-1")
score = hive.evaluate(lambda observation: int(observation[2] > 0), "CartPole-v1", episodes=100)
"""

from __future__ import annotations

import operator
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hive.api.calls import by_name
from hive.api.result import Result
from hive.config import Config, load_config
from hive.config.answers import answered
from hive.config.references import beside
from hive.envs.agents.seats import RETURN_OF, TEAM
from hive.errors import HiveError, UsageError
from hive.launch.control import print_to_stderr
from hive.launch.sources import Source, cut_note, policies_and_config, sources
from hive.paths import SESSION_FILE
from hive.records import Checkpoint
from hive.records.return_text import return_text
from hive.session.given import GivenConfig

if TYPE_CHECKING:
    from hive.policy.loaded import Policy
    from hive.training.evaluate.evaluator import Played
    from hive.training.evaluate.functions import Function

EPISODES = 20
INLINE = "inline_"  # begins the names of modules that hold objects of the calling program
PREDICTS = "lambda observation: model.predict(observation, deterministic=True)[0]"


@dataclass(frozen=True, eq=False, repr=False)
class Score:
    """The returns of a policy in whole episodes. `mean, deviation = score`.

    mean_return, deviation, min, max: of the returns; the deviation is that of the population. mean_length: mean number
    of steps. returns: float64 [E], in the order in which the episodes ended; where a policy acts for several agents,
    those of each of them, [E x agents]. lengths: int64 [E]. info: means of the values of env.info. agents: mean return
    of each of several agents, by name. cut: how many episodes came to `max_steps`, and count up to there.

    With several policies it is the score of the first one, and `agents` has all agents.
    """

    mean_return: float
    deviation: float
    min: float
    max: float
    mean_length: float
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    info: Mapping[str, float]
    agents: Mapping[str, float]
    cut: int = 0

    def __iter__(self) -> Iterator[float]:
        return iter((self.mean_return, self.deviation))

    def __repr__(self) -> str:
        mean, deviation = return_text(self.mean_return), return_text(self.deviation)
        return f"<hive.Score {mean} (deviation {deviation}) of {len(self.lengths):,} episodes>"


@by_name(2, lambda given: f"hive.evaluate(policy, env, episodes={given[2]!r})")
@answered("evaluate")
def evaluate(
    policy: Any,
    env: Any = None,
    *,
    episodes: int = EPISODES,
    seed: int = 0,
    sample: bool = False,
    max_steps: int | None = None,
    envs: int | None = None,
) -> Score:
    """Play whole episodes, without exploration noise and from initial states that depend on the numbers alone.

    policy: a `hive.Policy`, a `hive.Result`, the name of a run, or a function from an observation to an action: a rule,
        or the policy of another trainer, which then plays from the same initial states. The policies of a run with
        several agents may be a mapping, by their names.
    env: as in `hive.train`: an id, a class, a function that makes the environment, or a table of keys; or an
        environment that exists, which is left open. None: that of the policy's run, with its wrappers.
    seed: of the episodes. sample: sample actions as in training instead of taking the most likely ones.
    max_steps: an episode that does not end within so many steps is cut, and counts up to there; 0: none is; None:
        `evaluation.max_steps` of the run, 100,000 by default.
    envs: number of environments that are stepped in turn, on which initial states depend; None: 16, or 1 for one that
        exists.

    Raises UsageError for an environment of other spaces than the policy's, for a function without `env`, and for an
    environment that exists with envs > 1; ConfigError for invalid keys; EnvironmentFailed; RecordError for a run whose
    policy cannot be read.
    """
    count, number = _whole("episodes", episodes, 1), _whole("seed", seed, 0)
    most = None if max_steps is None else _whole("max_steps", max_steps, 0)
    is_object = _is_environment(env.get("id") if isinstance(env, Mapping) else env)
    together = None if envs is None else _whole("envs", envs, 1)
    if is_object and (together or 1) > 1:
        raise UsageError(
            f"`env` is one environment, and envs is {together}", hint="give its class, or a function that makes it"
        )
    how: dict[str, Any] = {"episodes": count, "seed": number, "sample": bool(sample), "max_steps": most}
    if together is not None or is_object:
        how["envs"] = together or 1
    with ExitStack() as afterwards:
        player, config = _player_and_config(policy, env, afterwards)
        if env is not None and (names := _left_out(player, config)):
            listed = ", ".join(f"`{name}`" for name in names)
            print_to_stderr(
                f"warning: the policy was trained with the wrapper {listed}, which is not around this environment"
            )
        try:
            played = _played(player, config, how)
        except HiveError as error:
            error.args = (str(error).replace(_inline_part(config), ""),)
            raise
    if note := cut_note(played.evaluation, config, most):
        print_to_stderr(f"note: {note}; max_steps changes this limit")
    return _score(played)


def _inline_part(config: Config) -> str:
    """Return what a class of the calling program has before its name, `inline_3:`; "" for all other environments."""
    module, colon, _ = config.env.id.partition(":")
    return module + colon if module.startswith(INLINE) else ""


def _played(player: Any, config: Config, how: Mapping[str, Any]) -> Played:
    from hive.policy.loaded import Policy
    from hive.training.evaluate.playing import play, play_together

    if how["sample"] and not isinstance(player, Mapping | Policy):
        raise UsageError("a function has no distribution to sample actions from", hint="leave out sample=True")
    if isinstance(player, Mapping):
        return next(iter(play_together(player, config, **how).values()))
    return play(player, config, **how)


def _player_and_config(
    policy: Any, env: Any, afterwards: ExitStack
) -> tuple[Policy | Function | Mapping[str, Policy], Config]:
    """Return who plays, and a config with the environment. Raises the errors of `evaluate`."""
    from hive.policy.loaded import policy_of

    if isinstance(policy, Result):
        policy = policy.directory
    if not isinstance(policy, str | os.PathLike):
        _check_player(policy)
        return policy, _config_of_run(policy) if env is None else _config_of(env, afterwards)
    (source,) = sources(os.fspath(policy), "latest")
    if env is not None:
        return policy_of(source.checkpoint, own_code=True), _config_of(env, afterwards)
    found, config = policies_and_config(source, [])
    policies = {name: one for name, (one, _) in found.items()}
    return next(iter(policies.values())) if len(policies) == 1 else policies, config


def _check_player(policy: Any) -> None:
    """Raise UsageError for what is neither a policy nor a function."""
    if isinstance(policy, type):
        raise UsageError(f"`policy` is the class {policy.__name__}", hint="give an object of it, or a function")
    if not callable(policy) and not (isinstance(policy, Mapping) and policy):
        raise UsageError(
            f"`policy` is of type {type(policy).__name__}, expected a policy, a result, the name of a run, or a "
            "function from an observation to an action",
            hint=f"give a function: {PREDICTS}" if hasattr(policy, "predict") else "",
        )


def _config_of_run(policy: Any) -> Config:
    """Return the config of the run that a policy was loaded from. Raises UsageError for one of no run."""
    from hive.policy.loaded import Policy

    first = next(iter(policy.values())) if isinstance(policy, Mapping) else policy
    if not isinstance(first, Policy):
        raise UsageError("a function has no environment", hint='give one: hive.evaluate(function, "CartPole-v1")')
    source = None if first.checkpoint is None else Source.of(first.checkpoint)
    if source is None:
        raise UsageError(
            "the folder that the policy was loaded from is not in the folder of a run",
            hint='give the environment: hive.evaluate(policy, "CartPole-v1")',
        )
    return source.config([])


def _config_of(env: Any, afterwards: ExitStack) -> Config:
    """Return a config with this environment. Raises UsageError for objects that are none, and ConfigError.

    afterwards: removes what holds the environment here, and the file that processes of environments import.
    """
    env = {**env, "id": _reusable(env["id"])} if isinstance(env, Mapping) and "id" in env else _reusable(env)
    given = GivenConfig.of(None, {"env": env}, inline=True)
    text = given.text
    if given.source is not None:
        folder = Path(afterwards.enter_context(tempfile.TemporaryDirectory(prefix="hive-evaluate-")))
        (folder / SESSION_FILE).write_text(given.source)
        text = beside(text, folder)
    config = load_config("env", given.overrides, text=text)
    if part := _inline_part(config):
        afterwards.callback(sys.modules.pop, part.rstrip(":"), None)  # or the environment would be kept for ever
    return config


def _left_out(policy: Any, config: Config) -> list[str]:
    """Return the wrappers of a policy's run that the environment of a config does not have, although it may lack them.

    Spaces are often the same without a wrapper that scales observations or rewards.
    """
    from hive.envs import recipe_of
    from hive.envs.loading import close
    from hive.envs.make import make_any
    from hive.envs.wrappers import lacking

    checkpoint = getattr(policy, "checkpoint", None)
    source = Source.of(checkpoint) if isinstance(checkpoint, Checkpoint) else None
    if source is None or config.env.wrappers:
        return []
    try:
        wrappers = source.config([]).evaluation_env.wrappers
    except HiveError:  # its config cannot be read, and is not needed
        return []
    if not wrappers:
        return []
    environment = make_any(recipe_of(config.env))
    try:
        return lacking(environment, wrappers)
    finally:
        close(environment)


def _is_environment(env: Any) -> bool:
    """Whether `env` is an environment that exists, and not what makes one."""
    return not isinstance(env, type) and hasattr(env, "reset") and hasattr(env, "step")


def _reusable(env: Any) -> Any:
    """Return a function that returns an environment which exists, always the same; all else as it is."""
    if not _is_environment(env):
        return env
    if hasattr(env, "num_envs"):
        raise UsageError(
            f"`env` is a vector of {env.num_envs} environments", hint="give one of them, its class, or its name"
        )
    from hive.envs.acting import kept

    one = kept(env)

    def make() -> Any:
        return one

    make.__name__ = type(getattr(env, "unwrapped", env)).__name__  # which errors name
    return make


def _whole(name: str, value: Any, least: int) -> int:
    """Return a whole number. Raises UsageError."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise UsageError(f"`{name}` is {value!r}, expected a whole number >= {least}")
    return number


def _score(played: Played) -> Score:
    whole = played.evaluation
    agents = {name: mean for name, mean in whole.info.items() if name.startswith(RETURN_OF) and name != TEAM}
    return Score(
        whole.mean_return,
        whole.deviation,
        whole.min,
        whole.max,
        whole.mean_length,
        np.array(played.returns, np.float64),
        np.array(played.lengths, np.int64),
        whole.info,
        {name.removeprefix(RETURN_OF): mean for name, mean in agents.items()},
        whole.cut,
    )
