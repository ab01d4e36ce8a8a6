"""Plays an environment with a policy, or with random actions, and keeps its transitions, for `hive record`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.config import Config
from hive.config.references import give_setup
from hive.envs import ActionSpec, EnvironmentSpec, configured_spec, configured_vector
from hive.envs.agents.lone import LoneTable
from hive.envs.random_actions import RandomActions
from hive.envs.spaces.observation import MaskPart
from hive.envs.spaces.origins import with_origins
from hive.errors import UsageError
from hive.experience import Purpose, stream_seed
from hive.policy.acting import Acting
from hive.policy.loaded import Policy
from hive.policy.transitions import StoredTransitions, successors
from hive.runtime.process.user_code.guest import Guest
from hive.training.collect.collector import seed_all_globals
from hive.training.evaluate.evaluator import evaluation_contexts
from hive.training.evaluate.functions import Bystander
from hive.training.evaluate.play import ENDLESS, Play
from hive.training.evaluate.playing import check_spaces


@dataclass(frozen=True)
class Played:
    """Transitions of an environment, with the returns of the episodes that ended in them. whole: none is missing."""

    transitions: StoredTransitions
    environment: EnvironmentSpec
    returns: tuple[float, ...]
    whole: bool


def play_transitions(
    config: Config,
    steps: int,
    policy: Policy | None = None,
    *,
    envs: int = 1,
    seed: int = 0,
    sample: bool = False,
    progress: Callable[[int], object] = lambda done: None,
) -> Played:
    """Play `steps` steps of `envs` environments of [env] of a config, and return their transitions.

    policy: None: uniform random actions. sample: whether to sample its actions, as in training, instead of taking the
    most likely ones. progress: called after every step with the number of transitions. An episode that has not ended
    at the last step is truncated there. A KeyboardInterrupt ends the play, and what there is is returned.

    Raises UsageError for an environment of several agents, and for a policy of other observations or actions, and
    EnvironmentFailed.
    """
    give_setup(config.run.setup)
    with Guest():
        spec = configured_spec(config.env, plays=policy is None)
        if spec.agents:
            raise UsageError(f"`{config.env.id}` has several agents; transitions are those of one")
        if policy is not None:
            check_spaces(policy, config.env.id, spec)
            spec = replace(spec, observation=with_origins(spec.observation, policy.observation))
        seed_all_globals(seed, Purpose.evaluation_building, 0, 0)
        env, contexts = replace(config.env, info=()), evaluation_contexts(seed, min(envs, steps))
        vector = configured_vector(env, len(contexts), contexts=contexts, spec=spec)  # a file has no values of info
        table = LoneTable(vector, spec.observation if policy is None else policy.observation)
        try:
            if table.vector is not vector:
                raise UsageError("the policy's observations have parts that those of the environment lack")
            draws = stream_seed(seed, Purpose.evaluation_action, 0, 0)
            player = RandomPlayer(spec.action, spec.observation.mask, draws) if policy is None else Acting.of(policy)
            play = Play(table, [player], seed=seed, episodes=ENDLESS, sample=sample)
            play.begin(0)
            kept = _Kept(spec, steps)
            try:
                while kept.done < steps:
                    kept.step(play)
                    progress(kept.done)
            except KeyboardInterrupt:
                if not kept.done:
                    raise
            return kept.played()
        finally:
            table.close()


class RandomPlayer(Bystander):
    """Plays uniform random actions; arguments: as of `RandomActions`."""

    def __init__(self, action: ActionSpec, mask: MaskPart | None, seed: int) -> None:
        super().__init__(action)
        self._draw = RandomActions(action, mask, seed)

    def actions(self, observations: NDArray[Any], rows: object, noise: object) -> NDArray[Any]:
        """Return an action for each of the stored observations [B, ...]."""
        return self._draw(observations)


class _Kept:
    """The arrays of the transitions, of which the first `done` are made."""

    def __init__(self, spec: EnvironmentSpec, steps: int) -> None:
        self.spec = spec
        observation, action = spec.observation, spec.action
        self.observations, self.following = (np.empty((steps, *observation.shape), observation.dtype) for _ in "12")
        self.actions = np.empty((steps, *action.shape), action.dtype)
        self.rewards = np.empty(steps, np.float32)
        self.terminated, self.truncated = np.empty(steps, np.uint8), np.empty(steps, np.uint8)
        self.environments = np.empty(steps, np.int64)
        self.returns: list[float] = []
        self.done = 0

    def step(self, play: Play) -> None:
        """Step every environment once, and keep the steps of those that made one, as far as there is room."""
        (row,) = play.rows
        before = row.observations.copy()
        play.step()
        after = row.observations.copy()
        after[row.truncated != 0] = row.finals.observations[row.final_index[row.truncated != 0]]
        after[row.terminated != 0] = before[row.terminated != 0]  # the last observation of an ended episode is not read
        made = np.flatnonzero(row.valid)[: len(self.rewards) - self.done]
        place = slice(self.done, self.done + len(made))
        self.observations[place], self.following[place] = before[made], after[made]
        self.actions[place], self.rewards[place] = play.actions[0][made], row.rewards[made]
        self.terminated[place], self.truncated[place] = row.terminated[made], row.truncated[made]
        self.environments[place] = made
        self.returns += row.episode_returns[made][row.episode_lengths[made] > 0].tolist()
        self.done = place.stop

    def played(self) -> Played:
        """Return the transitions so far."""
        kept = slice(self.done)
        newest = successors(self.environments[kept]) < 0
        self.truncated[kept] |= (newest & (self.terminated[kept] == 0)).astype(np.uint8)
        transitions = StoredTransitions(
            self.observations[kept],
            self.following[kept],
            self.actions[kept],
            self.rewards[kept],
            self.terminated[kept],
            self.truncated[kept],
            self.environments[kept],
        )
        return Played(transitions, self.spec, tuple(self.returns), self.done == len(self.rewards))
