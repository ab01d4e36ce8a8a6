"""B single environments stepped one after the other, in this process.

An environment that ends is reset in the same step: the row gets the first observation of the next episode, a
truncated episode's last one goes to `finals`. So every step is valid.

`step` is the inner loop of collecting, so the loop over the environments only calls them and keeps what they
return; everything else is done on whole rows. Ends, which are rare, have a path of their own. Gymnasium's
TimeLimit, which `gymnasium.make` puts around most environments, is stepped past: counting to its limit comes
with counting the episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hive import _native
from hive.envs.checks import Checks
from hive.envs.episodes import Episodes
from hive.envs.rows import StepRow
from hive.envs.spec import action_converter, observation_spec

if TYPE_CHECKING:
    import gymnasium

__all__ = ["PythonVector"]


class PythonVector:
    """A `VectorEnvironment` (see there what `reset` and `step` promise) of single environments of one id."""

    def __init__(self, id: str, environments: Sequence[gymnasium.Env[Any, Any]]) -> None:
        self.count = len(environments)
        self._environments = environments
        limit = _time_limit(environments)
        stepped: Sequence[Any] = environments
        self._steps: list[Callable[[Any], Any]] = [(one.env if limit else one).step for one in stepped]
        self._checks = Checks(id, observation_spec(id, environments[0].observation_space))
        self._convert = action_converter(environments[0].action_space)
        self._episodes = Episodes(self._checks, self.count, limit=limit)

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        """Starts an episode in every environment, environment b with `seeds[b]`."""
        self._episodes.begin()
        first = [self._reset_one(index, int(seed)) for index, seed in enumerate(seeds)]
        self._checks.observations(first, observations)

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Steps every environment once; `actions` [B, ...] as stored."""
        self._checks.steps += 1
        observations, rewards, terminated, truncated = self._step_each(actions)
        ended, _ = self._episodes.finish(rewards, terminated, truncated, row)
        following = self._end(observations, ended, row) if ended else observations
        self._checks.observations(following, row.observations)

    def close(self) -> None:
        """Closes every environment."""
        for environment in self._environments:
            environment.close()

    def _step_each(self, actions: NDArray[Any]) -> tuple[tuple[Any, ...], ...]:
        """Calls every `step` and returns the columns: observations, rewards, terminated, truncated."""
        # Discrete actions arrive as NumPy's integers, as the space samples them: where an environment asks its space
        # whether it holds the action, a Python integer costs 1 us more (Gymnasium 1.4).
        converted = self._convert(actions)
        results: list[Any] = []
        keep = results.append
        try:
            for step, action in zip(self._steps, converted, strict=True):
                keep(step(action))
        except (Exception, SystemExit) as error:
            raise self._checks.raised(error, "step", len(results)) from error
        return _native.columns(results) or self._columns(results)

    def _columns(self, results: list[Any]) -> tuple[tuple[Any, ...], ...]:
        """`_native.columns` of results that are not all tuples of five: of other iterables, or the error."""
        try:
            observations, rewards, terminated, truncated, _ = zip(*results, strict=True)
        except (TypeError, ValueError):
            for index, result in enumerate(results):
                if not isinstance(result, tuple) or len(result) != 5:
                    raise self._checks.wrong_result(result, "step", index) from None
            raise
        return observations, rewards, terminated, truncated

    def _end(self, observations: Sequence[Any], ended: Sequence[int], row: StepRow) -> Sequence[Any]:
        """Keeps the last observations of those truncated, resets all that ended; what to act on next."""
        following = list(observations)
        for index in ended:
            if row.truncated[index]:
                row.final_index[index] = self._checks.final(index, observations[index], row.finals)
            following[index] = self._reset_one(index, None)
        return following

    def _reset_one(self, index: int, seed: int | None) -> Any:
        try:
            result = self._environments[index].reset(seed=seed)
        except (Exception, SystemExit) as error:
            raise self._checks.raised(error, "reset", index) from error
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._checks.wrong_result(result, "reset", index)
        return result[0]


def _time_limit(environments: Sequence[gymnasium.Env[Any, Any]]) -> int:
    """The steps after which Gymnasium's TimeLimit ends an episode, where it is the outermost wrapper of all; else 0."""
    from gymnasium.wrappers import TimeLimit

    if not all(type(environment) is TimeLimit for environment in environments):
        return 0
    limits = {environment.spec.max_episode_steps if environment.spec else None for environment in environments}
    return (limits.pop() or 0) if len(limits) == 1 else 0
