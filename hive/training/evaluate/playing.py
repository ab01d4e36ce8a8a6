"""Evaluates a trained policy by whole episodes, in a script.

    policy = hive.load("runs/cartpole-ppo-1")
    played = evaluate(policy, config, episodes=100)         # config: what the environment is, and its options
    print(played.mean_return, played.interval)

It uses the `Evaluator` of a run in this process. The initial states depend on `seed`, `episodes` and `envs` alone, so
policies evaluated with the same numbers start from the same states and can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from hive.config import Config
from hive.config.references import give_setup
from hive.envs import EnvironmentSpec, configured_spec, configured_vector, recipe_of, spaces_text, spec_difference
from hive.envs.agents.lone import LoneTable
from hive.envs.agents.playable import Table
from hive.envs.agents.table import make_table
from hive.envs.spaces.fitted import fitted_spec
from hive.envs.spaces.meaning import kept_meaning, kept_scale
from hive.errors import UsageError
from hive.experience import Purpose
from hive.policy.acting import Acting
from hive.policy.loaded import Policy
from hive.runtime.process.user_code.guest import Guest
from hive.training.collect.collector import seed_all_globals
from hive.training.evaluate.evaluator import Evaluator, Played, evaluation_contexts
from hive.training.evaluate.functions import Bystander, Function, acting_vector
from hive.training.evaluate.play import Play, Player
from hive.training.messages import Evaluation, EvaluationDue
from hive.training.policies import Policies

ENVS = 16  # default maximum of environments, equal to the default of collection.envs


def evaluate(policy: Policy, config: Config, **how: Any) -> Evaluation:
    """Return the evaluation of a policy alone; the arguments are those of `play`."""
    return play(policy, config, **how).evaluation


def evaluate_together(policies: Mapping[str, Policy], config: Config, **how: Any) -> dict[str, Evaluation]:
    """Return the evaluation of each policy alone; the arguments are those of `play_together`."""
    return {name: one.evaluation for name, one in play_together(policies, config, **how).items()}


def play(
    policy: Policy | Function,
    config: Config,
    *,
    episodes: int = 100,
    envs: int = ENVS,
    seed: int = 0,
    sample: bool = False,
    max_steps: int | None = None,
    progress: Callable[[int], object] = lambda done: None,
) -> Played:
    """Play `episodes` episodes of the environment of `config`, at most `envs` at a time.

    It is the environment of the config's evaluations: [env] with the keys of [evaluation.env].

    policy: also a function from the observation of one environment, as this returns it, to its action; it plays from
    the same initial states. sample: whether to sample actions, as in training, instead of taking the most likely ones.
    max_steps: an episode that does not end within so many steps is cut and counts up to there (`Evaluation.cut`); 0:
    none is; None: the config's `evaluation.max_steps`. progress: called after every step with the number of finished
    episodes. Raises UsageError if the policy's observations or actions are not those of the environment, and
    EnvironmentFailed.
    """
    how: dict[str, Any] = {"episodes": episodes, "envs": envs, "seed": seed, "sample": sample, "max_steps": max_steps}
    (played,) = _play({"": policy}, config, progress=progress, **how).values()
    return played


def _with_meaning(policy: Policy, found: EnvironmentSpec, config: Config) -> EnvironmentSpec:
    """Return the environment's spec with the meaning that a policy gives to it, where no key of [env] says another."""
    observation, action = found.observation, found.action

    def is_open(*keys: str) -> bool:
        return all(config.origin(f"env.{key}") == "default" and key not in config.evaluation.env for key in keys)

    if is_open("frame_stack"):
        observation = replace(observation, stack=policy.observation.stack)
    if is_open("images", "scale_observations"):
        observation = kept_meaning(observation, policy.observation)
    if is_open("scale_actions"):
        action = kept_scale(action, policy.action)
    return replace(found, observation=observation, action=action)


def play_together(
    policies: Mapping[str, Policy],
    config: Config,
    *,
    episodes: int = 100,
    envs: int = ENVS,
    seed: int = 0,
    sample: bool = False,
    max_steps: int | None = None,
    progress: Callable[[int], object] = lambda done: None,
) -> dict[str, Played]:
    """Play episodes of an environment of several agents with all policies of a run; return those of each.

    policies: by their names in [policies]. Arguments and errors are those of `play`.
    """
    how: dict[str, Any] = {"episodes": episodes, "envs": envs, "seed": seed, "sample": sample, "max_steps": max_steps}
    return _play(policies, config, progress=progress, **how)


def _play(
    policies: Mapping[str, Policy | Function],
    config: Config,
    *,
    episodes: int,
    envs: int,
    seed: int,
    sample: bool,
    max_steps: int | None,
    progress: Callable[[int], object],
) -> dict[str, Played]:
    give_setup(config.run.setup)
    with Guest():
        spec = configured_spec(config.evaluation_env)
        table, players = _table(policies, config, spec, min(envs, episodes), seed)
        try:
            limit = limit_of(config, max_steps)
            play = Play(table, players, seed=seed, episodes=episodes, sample=sample, max_steps=limit)
            evaluator = Evaluator(play)
            evaluator.begin(due_of(next(iter(policies.values()))))
            while evaluator.step() is None:
                progress(evaluator.done)
            return dict(zip(policies, evaluator.played, strict=True))
        finally:
            table.close()


def _table(
    policies: Mapping[str, Policy | Function], config: Config, spec: EnvironmentSpec, count: int, seed: int
) -> tuple[Table, list[Player]]:
    """Make `count` environments of a config for evaluations, and what plays in each seat."""
    env, contexts = config.evaluation_env, evaluation_contexts(seed, count)
    if spec.agents:
        taking = {name: policy for name, policy in policies.items() if isinstance(policy, Policy)}
        if len(taking) < len(policies):
            raise UsageError("a function plays for one agent, and this environment has several")
        table = seated(taking, config, spec)
        seed_all_globals(seed, Purpose.evaluation_building, 0, 0)
        made = make_table(recipe_of(env), count, table.seats, table.bots, contexts=contexts)
        return made, [Acting.of(policy) for policy in taking.values()]
    (policy,) = policies.values()
    if isinstance(policy, Policy):
        check_spaces(policy, env.id, _with_meaning(policy, spec, config))
    seed_all_globals(seed, Purpose.evaluation_building, 0, 0)
    if isinstance(policy, Policy):
        vector = configured_vector(env, count, contexts=contexts, spec=spec, origins=policy.observation)
        return LoneTable(vector, policy.observation, env.info), [Acting.of(policy)]
    vector = acting_vector(env, policy, count, contexts)
    return LoneTable(vector, spec.observation, env.info), [Bystander(spec.action)]


def seated(policies: Mapping[str, Policy], config: Config, spec: EnvironmentSpec) -> Policies:
    """Return the policies of a config whose environment has several agents, for which trained ones play.

    Raises UsageError if these are fewer or more, or their observations or actions are not those of the environment.
    """
    table = Policies.of(config, spec)
    if len(policies) != len(table.learning):
        names = ", ".join(f"`{one.name}`" for one in table.learning)
        raise UsageError(
            f"`{spec.id}` is played by {len(table.learning)} policies of this config ({names}), and {len(policies)} "
            f"{'is' if len(policies) == 1 else 'are'} given",
            hint="give all of them: {name: policy, ...}",
        )
    for policy, one in zip(policies.values(), table.learning, strict=True):
        check_spaces(policy, spec.id, one.seat.spec)
        if policy.observation.shape != one.seat.spec.observation.shape:  # parts that a critic alone sees are left out
            raise UsageError(
                f"the policy `{one.name}` was trained with parts that `{spec.id}` does not show here",
                hint="keep env.state and the other keys of [env] as in the run",
            )
    return table.with_origins([policy.observation for policy in policies.values()])


def joined(played: Sequence[Evaluation]) -> Evaluation:
    """Return the evaluation over all episodes of several evaluations of one policy, such as those of several seeds."""
    first = played[0]
    if len(played) == 1:
        return first
    counts = [one.episodes for one in played]
    mean = _weighted([one.mean_return for one in played], counts)
    spread = _weighted([one.deviation**2 + (one.mean_return - mean) ** 2 for one in played], counts)
    names = dict.fromkeys(name for one in played for name in one.info)
    having = {name: [one for one in played if name in one.info] for name in names}
    values = {name: getattr(first, name) for name in ("turn", "updates", "env_steps", "seconds")} | {
        "episodes": sum(counts),
        "mean_return": mean,
        "deviation": math.sqrt(spread),
        "min": min(one.min for one in played),
        "max": max(one.max for one in played),
        "mean_length": _weighted([one.mean_length for one in played], counts),
        "wall_s": sum(one.wall_s for one in played),
        "cut": sum(one.cut for one in played),
        "balanced": all(one.balanced for one in played),
        "info": {
            name: _weighted([one.info[name] for one in ones], [one.counted[name] for one in ones])
            for name, ones in having.items()
        },
        "counted": {name: sum(one.counted[name] for one in ones) for name, ones in having.items()},
    }
    return Evaluation(**{field.name: values[field.name] for field in fields(Evaluation)})  # of each field, or KeyError


def _weighted(values: Sequence[float], counts: Sequence[int]) -> float:
    return sum(value * count for value, count in zip(values, counts, strict=True)) / sum(counts)


def limit_of(config: Config, max_steps: int | None) -> int:
    """Return the limit of steps of an episode: `max_steps`, or that of the config."""
    return config.evaluation.max_steps if max_steps is None else max_steps


def due_of(policy: Policy | Function) -> EvaluationDue:
    """Return the message that starts an evaluation of a loaded policy: turn 0, whichever its turn was."""
    return EvaluationDue(0, 0, getattr(policy, "updates", 0), getattr(policy, "env_steps", 0), 0.0)


def check_spaces(policy: Policy, id: str, found: EnvironmentSpec) -> None:
    """Raise UsageError if the policy's observations or actions differ from those of the environment `id`."""
    observation = fitted_spec(policy.observation, found.observation)
    pairs = (("observations", policy.observation, observation), ("actions", policy.action, found.action))
    for what, mine, its in pairs:
        if differs := spec_difference(mine, its):
            trained = replace(found, observation=policy.observation, action=policy.action)
            raise UsageError(
                f"the {what} of the policy and of `{id}` differ in {differs}",
                hint=f"the policy was trained with {spaces_text(trained)}, and this environment has "
                f"{spaces_text(found)}; env.options and env.wrappers form spaces, too",
            )
