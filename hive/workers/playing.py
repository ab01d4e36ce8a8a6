"""Playing: how good a trained policy is, measured by whole episodes, with nothing that trains.

    policy = hive.load("runs/cartpole-1")
    played = evaluate(policy, config, episodes=100)         # config: what the environment is, and its options
    print(played.mean_return, played.interval)

The same `Evaluator` as in a run, in this process. The episodes follow from `seed` alone: two policies that are
evaluated with the same seed and number of episodes begin in the same states, so that no difference is luck of the draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from hive.algorithms import Policy
from hive.config import Config
from hive.envs import ActionSpec, ObservationSpec, describe, make_vector
from hive.errors import UsageError
from hive.workers.evaluator import Evaluator
from hive.workers.messages import Evaluation, EvaluationDue

__all__ = ["evaluate"]

ENVS = 16  # at a time by default: as many as a collector has


def evaluate(
    policy: Policy,
    config: Config,
    *,
    episodes: int = 100,
    envs: int = ENVS,
    seed: int = 0,
    sample: bool = False,
    progress: Callable[[int], object] = lambda done: None,
) -> Evaluation:
    """Plays `episodes` episodes of the environment of `config`, at most `envs` at a time.

    sample: actions are drawn as in training, instead of the most likely ones. progress: told after every step how many
    episodes are done. Raises UsageError where the environment is not one for this policy, EnvironmentFailed.
    """
    env = config.env
    found = describe(env.id, env.options, env.vector)
    _check(env.id, "observations", policy.observation, found.observation)
    _check(env.id, "actions", policy.action, found.action)
    vector = make_vector(env.id, env.options, min(envs, episodes), env.vector)
    try:
        evaluator = Evaluator(
            vector,
            policy.observation,
            policy.network,
            policy.distribution,
            seed=seed,
            episodes=episodes,
            sample=sample,
        )
        evaluator.begin(EvaluationDue(0, policy.updates, policy.env_steps, 0.0))
        while (evaluation := evaluator.step()) is None:
            progress(evaluator.done)
        return evaluation
    finally:
        vector.close()


def _check(id: str, what: str, mine: ObservationSpec | ActionSpec, its: ObservationSpec | ActionSpec) -> None:
    """Raises UsageError where the policy has not the observations or actions of the environment."""
    if mine == its:
        return
    if type(mine) is not type(its):
        name, own, other = "kind", type(mine).__name__, type(its).__name__
    else:
        pairs = ((field.name, getattr(mine, field.name), getattr(its, field.name)) for field in fields(mine))
        name, own, other = next(pair for pair in pairs if pair[1] != pair[2])
    raise UsageError(
        f"the policy has other {what} than `{id}`: {name} {own}, not {other}",
        hint="env.id and env.options are to be those that it was trained with",
    )
