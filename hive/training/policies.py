"""Divides the agents of an environment among the policies of a run: who learns to act for whom.

Without [policies], agents with equal spaces share one policy. A policy learns with the run's config, its own tables of
[policies.NAME] in place of the run's, and a seed of its own; its agents and the team have their returns among the
values of `info`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hive.config import Config, load_reference
from hive.config.policies import PolicyConfig
from hive.envs import EnvironmentSpec, ObservationSpec, spec_difference
from hive.envs.agents.bots import Bot, bot_of
from hive.envs.agents.seats import RETURN_OF, Seat, with_returns
from hive.envs.spaces.kinds import kinds_of, spec_of_kind
from hive.envs.spaces.origins import with_origins
from hive.errors import ConfigError
from hive.experience import Purpose, stream_seed
from hive.records.directory import POLICIES
from hive.runtime.process.user_code.setup import set_up

if TYPE_CHECKING:
    from hive.policy.loaded import Policy


@dataclass(frozen=True)
class LearningPolicy:
    """A policy that a run trains. number: from 0, in the order of the config. config: what it learns with."""

    number: int
    name: str
    config: Config
    seat: Seat


@dataclass(frozen=True)
class Policies:
    """The policies of a run whose environment has several agents. bots: agent -> what makes the bot that acts for it.

    environment: the spec of all agents.
    """

    environment: EnvironmentSpec
    learning: tuple[LearningPolicy, ...]
    bots: Mapping[str, partial[Bot]]

    @classmethod
    def of(cls, config: Config, environment: EnvironmentSpec) -> Policies:
        """Divide the agents. Raises ConfigError for one without a policy or with two, and for spaces that differ."""
        groups = _by_patterns(config, environment) if config.policies else kinds_of(environment.agents)
        fixed = {name: row for name, row in config.policies.items() if not row.learns}
        learning = [
            _learning(number, name, config, environment, agents)
            for number, (name, agents) in enumerate(item for item in groups.items() if item[0] not in fixed)
        ]
        if not learning:
            raise ConfigError(
                "[policies]: every policy is scripted or has weights, so there is nothing to train",
                hint="`hive eval` plays policies that are trained already",
            )
        bots = {agent: partial(_bot, row) for name, row in fixed.items() for agent in groups[name]}
        return cls(environment, tuple(learning), bots)

    def with_origins(self, observations: Sequence[ObservationSpec]) -> Policies:
        """Return them with seats whose observations have the origins of these, those of each policy that learns."""
        learning = []
        for one, its in zip(self.learning, observations, strict=True):
            observation = with_origins(one.seat.spec.observation, its)
            learning.append(replace(one, seat=replace(one.seat, spec=replace(one.seat.spec, observation=observation))))
        return replace(self, learning=tuple(learning))

    @property
    def needs_table(self) -> bool:
        """Whether the agents need more than one policy's rows of agents that act at once."""
        return len(self.learning) > 1 or bool(self.bots) or self.environment.takes_turns

    def document(self) -> dict[str, Any]:
        """Return which policies learn, for policies.json of the run."""
        return {
            "policies": [
                {
                    "name": one.name,
                    "agents": list(one.seat.agents),
                    "algorithm": one.config.algorithm.name,
                    "folder": folder_of(one),
                }
                for one in self.learning
            ]
        }

    @property
    def seats(self) -> list[Seat]:
        """The seats of the policies that learn."""
        return [policy.seat for policy in self.learning]


def folder_of(policy: LearningPolicy) -> str:
    """Return the folder of a policy's files within that of the run, "" for the first, whose files are the run's."""
    return f"{POLICIES}/{policy.name}" if policy.number else ""


def _learning(
    number: int, name: str, config: Config, environment: EnvironmentSpec, agents: Sequence[str]
) -> LearningPolicy:
    own = tuple(agent for agent in environment.agents if agent.name in agents)
    for agent in own[1:]:
        for what, mine, its in (
            ("observations", own[0].observation, agent.observation),
            ("actions", own[0].action, agent.action),
        ):
            if differs := spec_difference(mine, its):
                raise ConfigError(
                    f"the {what} of the agents `{own[0].name}` and `{agent.name}`, which share the policy `{name}`, "
                    f"differ in {differs}",
                    hint="give each kind of agent a policy of its own in [policies], or make their spaces equal with "
                    "a wrapper (env.wrappers), such as those of supersuit",
                )
    spec = spec_of_kind(environment, agents)
    learner = config.learner(name) if name in config.policies else replace(config, policies={}, learners={})
    seed = config.run.seed if number == 0 else stream_seed(config.run.seed, Purpose.policy, number, 0)
    env = replace(config.env, info=with_returns(config.env.info, environment))
    run = replace(learner.run, seed=seed)
    if number:  # the goal of a mean return is that of the first policy
        run = replace(run, stop_at_return=None)
    learner = replace(learner, env=env, run=run)
    return LearningPolicy(number, name, learner, Seat(name, spec))


def _by_patterns(config: Config, environment: EnvironmentSpec) -> dict[str, list[str]]:
    """Return the agents of each policy of [policies]. Raises ConfigError for an agent that has not exactly one."""
    names = [agent.name for agent in environment.agents]
    listed = ", ".join(f"`{name}`" for name in names)
    groups: dict[str, list[str]] = {name: [] for name in config.policies}
    for agent in names:
        fitting = [name for name, row in config.policies.items() if any(fnmatchcase(agent, one) for one in row.agents)]
        if len(fitting) != 1:
            both = " and ".join(f"`{name}`" for name in fitting)
            what = f"has the policies {both}" if fitting else "has no policy"
            raise ConfigError(
                f"[policies]: the agent `{agent}` of `{environment.id}` {what}",
                hint="let the patterns of one policy fit it" + ("" if fitting else f"; the agents are {listed}"),
            )
        groups[fitting[0]].append(agent)
    if empty := next((name for name, agents in groups.items() if not agents), None):
        patterns = ", ".join(f'"{one}"' for one in config.policies[empty].agents)
        raise ConfigError(
            f"[policies]: the policy `{empty}` has no agents: none of `{environment.id}` fits {patterns}",
            hint=f"the agents are {listed}",
        )
    return groups


def _bot(row: PolicyConfig) -> Bot:
    """Make the bot of a policy that does not learn."""
    if row.scripted is not None:
        set_up()
        return bot_of(row.name, load_reference(row.scripted))
    from hive.policy.loaded import load  # here: it imports the networks

    return bot_of(row.name, FrozenPolicy(load(str(row.weights), own_code=True)))


class FrozenPolicy:
    """A trained policy that acts as it did while it was trained, and does not change."""

    sees_view = True

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.begin(0)

    def begin(self, seed: int | None) -> None:
        """Begin an episode. seed: of its actions; None: go on with those before."""
        self._state = self._policy.initial_state()
        if seed is not None:
            self._noise = np.random.default_rng(seed)

    def __call__(self, observation: Any) -> Any:
        """Return an action for an observation of the environment."""
        found = self._policy(observation, self._state, noise=self._noise)
        if self._state is None:
            return found
        action, self._state = found
        return action


def port(name: str) -> str:
    """Return the name of a port, which is that of a Python attribute."""
    return name.replace("-", "_")


def of_policy(name: str, number: int) -> str:
    """Return the name of a channel, group or port of policy `number`: that of the first has no number."""
    return f"{name}-{number}" if number else name


OF_SEVERAL = {"env.agent_index": "its number", "env.state": "the state beside its observation"}
"""Keys that only environments of several agents have -> what each agent of them sees."""


def check_best_by(config: Config, environment: EnvironmentSpec) -> None:
    """Raise ConfigError if evaluation.best_by names the return of an agent where there is one agent only."""
    evaluation, name = config.evaluation, config.evaluation.best_by.removeprefix("info/")
    alone = not environment.agents and name not in config.evaluation_env.info
    if evaluation.every and name.startswith(RETURN_OF) and alone:
        raise ConfigError(
            f'evaluation.best_by = "{evaluation.best_by}": `{environment.id}` has one agent',
            hint='"mean_return" is its return',
        )


def check_has_agents(config: Config) -> None:
    """Raise ConfigError for a table, key or scheme that is for several agents: the environment has one."""
    for name, seen in OF_SEVERAL.items():
        if config.value(name):
            scheme = config.run.scheme
            by_scheme = config.origin(name) == f"scheme {scheme}"
            raise ConfigError(
                f"{f'the scheme `{scheme}`' if by_scheme else name} is for several agents, and `{config.env.id}` has "
                "one",
                hint=f'run.scheme = "{config.algorithm.name}" trains one agent'
                if by_scheme
                else f"leave it out: it lets each of several agents see {seen}",
            )
    if config.policies:
        raise ConfigError(
            f"[policies]: `{config.env.id}` has one agent, which needs no table of policies",
            hint="leave [policies] out; for several agents an environment lists them in `possible_agents`",
        )
