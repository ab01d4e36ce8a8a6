"""Steps B single environments one after another, in this process.

An environment whose episode ends is reset in the same step. The row gets the first observation of the next episode, and
a truncated episode's last observation goes to `finals`. So every step is valid.

`step` is the inner loop of collecting. Its loop over the environments only calls them and stores their results;
everything else works on whole rows. Ends of episodes are rare and have a separate path. Gymnasium's TimeLimit, which
`gymnasium.make` puts around most environments, is bypassed: `Episodes` counts steps anyway and applies the limit.

Observations are read after all environments were stepped, so those in memory that several of them share are copied
(`hive.envs.vectors.shared_buffers`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.envs.loading import close
from hive.envs.spaces.actions import action_converter, action_spec, choices_of, each_action
from hive.envs.spaces.declared import spaces_of
from hive.envs.spaces.differences import check_alike
from hive.envs.spaces.observation import MASK_KEY, ObservationSpec, observation_spec
from hive.envs.spaces.origins import with_origins
from hive.envs.vectors.attributes import Pending
from hive.envs.vectors.checks import Checks
from hive.envs.vectors.episodes import Episodes
from hive.envs.vectors.infos import Infos
from hive.envs.vectors.resetting import Resets
from hive.envs.vectors.rows import StepRow
from hive.envs.vectors.shared_buffers import SharedBuffers, copied
from hive.errors import EnvironmentFailed

if TYPE_CHECKING:
    import gymnasium

LIMIT = "_max_episode_steps"  # the attribute of Gymnasium's TimeLimit


class PythonVector:
    """A `VectorEnvironment`, which documents `reset` and `step`, made of single environments of one id.

    info: the keys of `info` whose values at the ends of episodes are written to `StepRow.infos`. first: as for
    `Checks`. reset_options: of each environment, for all its resets; (): none. origins: as for
    `hive.envs.vectors.vector.vector_of`. construct: as for `Resets`. mask_in_info: whether the info of resets has a
    mask of the actions. Raises EnvironmentFailed if their spaces are stored in different forms.
    """

    environments: Sequence[gymnasium.Env[Any, Any]]
    mask_in_info = False

    def __init__(
        self,
        id: str,
        environments: Sequence[gymnasium.Env[Any, Any]],
        info: Sequence[str] = (),
        first: int = 0,
        reset_options: Sequence[Mapping[str, Any]] = (),
        origins: ObservationSpec | None = None,
        construct: Callable[[int], Any] | None = None,
    ) -> None:
        self.count = len(environments)
        self.environments = environments
        self._limit = limit = _time_limit(environments)  # of steps, where it is bypassed; 0: it is not
        self._sets_limit = False
        self._last: Sequence[Any] = ()  # [B]: what each has returned for its next action
        self._first: Sequence[Any] = ()  # [B]: what each has returned for the first one
        self._steps = [self._step_of(index) for index in range(self.count)]
        observations, actions = spaces_of(id, environments[0])
        self.observation, self.action = observation_spec(id, observations), action_spec(id, actions)
        self.observation = with_origins(self.observation, origins)
        for number, other in enumerate(environments[1:], start=1):
            observations, actions = spaces_of(id, other)
            its = observation_spec(id, observations), action_spec(id, actions)
            check_alike(f"env {first + number} of `{id}`", its, (self.observation, self.action), f"env {first}")
        self._resets = Resets(environments, reset_options, construct)
        self._checks = Checks(id, self.observation, first)
        self._infos = Infos(self._checks, info)
        self._convert = action_converter(self.action)
        self._episodes = Episodes(self._checks, self.count, limit=limit)
        self._pending: Pending | None = None
        self._buffers = SharedBuffers(self.count)

    def set_attributes(self, values: Mapping[str, Any]) -> None:
        """Give every environment these values before its next reset. Raises EnvironmentFailed for a longer limit."""
        if self._limit and LIMIT in values:
            self._sets_limit = True
            if not 0 < values[LIMIT] <= self._limit:
                raise EnvironmentFailed(
                    f"env.set({LIMIT!r}, {values[LIMIT]!r}): episodes of this run have at most {self._limit:,} steps",
                    hint="env.options(max_episode_steps=...) makes environments with a longer limit",
                    permanent=True,
                )
        self._pending = self._pending or Pending()
        self._pending.set(values)

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        """Start an episode in every environment, environment b with `seeds[b]`; write `observations` [B, ...]."""
        self._episodes.begin()
        self._buffers.begin()
        self._last = [self._reset_one(index, int(seed)) for index, seed in enumerate(seeds)]
        self._first = [copied(observation) for observation in self._last]
        self._checks.observations(self._last, observations)

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Step every environment once with stored `actions` [B, ...]; write `row`."""
        self._checks.steps += 1
        results = self._step_each(actions)
        observations, rewards, terminated, truncated = _native.columns(results) or self._columns(results)
        ended, _ = self._episodes.finish(rewards, terminated, truncated, row)
        if self._infos.names:
            self._infos.write({index: results[index][4] for index in ended}, row.infos)
        self._last = self._end(observations, ended, row) if ended else observations
        self._checks.observations(self._last, row.observations)
        self._buffers.stepped()
        if ended:
            self._let_rest()

    def play(self, episodes: NDArray[np.int64]) -> None:
        """Let each environment play so many more episodes until the next reset, [B]; -1: without a limit."""
        self._episodes.play(episodes)
        self._let_rest()

    def close(self) -> None:
        """Close every environment."""
        for environment in self.environments:
            close(environment)

    def _step_each(self, actions: NDArray[Any]) -> list[Any]:
        """Call every `step` and return what they returned."""
        # Discrete actions stay NumPy integers, as the space samples them: environments that check `action in space`
        # take 1 us longer for a Python integer (Gymnasium 1.4).
        converted = each_action(self._convert(actions))
        results: list[Any] = []
        keep = self._buffers.keeper(results) if self._buffers.copies else results.append
        try:
            for step, action in zip(self._steps, converted, strict=True):
                keep(step(action))
        except BaseException as error:
            raise self._checks.raised(error, "step", len(results)) from error
        return results

    def _columns(self, results: list[Any]) -> tuple[tuple[Any, ...], ...]:
        """Return the columns of results that `_native.columns` refuses: other iterables of five. Raises for others."""
        try:
            observations, rewards, terminated, truncated, _ = zip(*results, strict=True)
        except (TypeError, ValueError):
            for index, result in enumerate(results):
                if not isinstance(result, tuple) or len(result) != 5:
                    raise self._checks.wrong_result(result, "step", index) from None
            raise
        return observations, rewards, terminated, truncated

    def _end(self, observations: Sequence[Any], ended: Sequence[int], row: StepRow) -> Sequence[Any]:
        """Store the last observations of truncated episodes and reset ended ones; return the next observations."""
        following, resting = list(observations), self._episodes.resting
        for index in ended:
            if row.truncated[index]:
                row.final_index[index] = self._checks.final(index, observations[index], row.finals)
            if index in resting:
                following[index] = self._checks.resting(observations[index], self._first[index])
            else:
                following[index] = self._reset_one(index, None)
        return following

    def _prepare(self, index: int) -> None:
        """Give an environment that is about to be reset its new attributes, and step it again."""
        if self._pending is not None:
            self._pending.apply(index, self.environments[index])
        self._steps[index] = self._step_of(index)

    @property
    def refused(self) -> str:
        """What an environment raised that refused a reset within an episode and was constructed again; "": none."""
        return self._resets.refused

    def _let_rest(self) -> None:
        """Let `step` return the same again for environments that have played all their episodes."""
        for index in self._episodes.resting:
            self._steps[index] = _Resting((self._last[index], 0.0, False, False, {}))

    def _step_of(self, index: int) -> Callable[[Any], Any]:
        """Return what steps one environment, without the wrapper of its limit where this is bypassed."""
        one: Any = self.environments[index]
        step: Callable[[Any], Any] = (one.env if self._limit and not self._sets_limit else one).step
        return step

    def _reset_one(self, index: int, seed: int | None) -> Any:
        try:
            result = self._resets.begin(index, seed, self._prepare)
        except BaseException as error:
            raise self._checks.raised(error, "reset", index) from error
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._checks.wrong_result(result, "reset", index)
        if not self.mask_in_info and isinstance(result[1], Mapping) and MASK_KEY in result[1]:
            self.mask_in_info = np.size(result[1][MASK_KEY]) == sum(choices_of(self.action) or ())
        return self._buffers.own(index, result[0])


@dataclass(frozen=True, slots=True)
class _Resting:
    """The step of an environment that is left alone, which is not called: it returns the same again."""

    result: tuple[Any, ...]

    def __call__(self, action: Any) -> tuple[Any, ...]:
        """Return the last observation."""
        return self.result


def _time_limit(environments: Sequence[gymnasium.Env[Any, Any]]) -> int:
    """Return the limit of Gymnasium's TimeLimit if it is the outermost wrapper of all environments, otherwise 0."""
    from gymnasium.wrappers import TimeLimit

    if not all(type(environment) is TimeLimit for environment in environments):
        return 0
    limits = {getattr(environment, LIMIT) for environment in environments}  # its spec is older, and may be another
    limit = limits.pop()
    return limit if not limits and isinstance(limit, int) else 0
