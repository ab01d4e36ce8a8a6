"""Describes an environment as plain data; `observation` has the form of its observations, `actions` that of actions.

An `EnvironmentSpec` is read once from the Gymnasium spaces. Networks, storage and algorithms use it and never see a
Gymnasium space.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hive.envs.spaces.actions import ActionSpec
from hive.envs.spaces.observation import ObservationSpec


@dataclass(frozen=True)
class AgentSpec:
    """One of the agents of an environment."""

    name: str
    observation: ObservationSpec
    action: ActionSpec


@dataclass(frozen=True)
class EnvironmentSpec:
    """The description of an environment for the rest of hive. `max_episode_steps` is None if not declared.

    frame_skip: frames of the game per step, for environments that declare it; 1 for all others.
    agents: those of an environment of several agents, of which `observation` and `action` are the first one's; () for
    all other environments. takes_turns: whether they act one after the other instead of all at once.
    raw_return: whether wrappers may change rewards, and `info` has the return without them (hive.envs.raw_returns).
    deterministic: False for a program that does not say that equal seeds give equal bytes (hive.envs.external).
    seen: what a look at two of it has found (hive.envs.look.look_of_run), which tells nothing of its form; None: there
    was no look.
    """

    id: str
    observation: ObservationSpec
    action: ActionSpec
    max_episode_steps: int | None = None
    frame_skip: int = 1
    agents: tuple[AgentSpec, ...] = ()
    takes_turns: bool = False
    raw_return: bool = False
    deterministic: bool = True
    seen: tuple[tuple[str, str, str], ...] | None = field(default=None, compare=False)

    @property
    def rows(self) -> int:
        """Rows of one environment in a rollout: one for each agent."""
        return len(self.agents) or 1
