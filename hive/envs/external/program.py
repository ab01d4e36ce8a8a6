"""Steps environments of a program behind a socket, as a stepper of a vector. `describe_program` reads its spaces.

The program never begins an episode by itself: hive orders it, within the step that ended the one before. So a row has
the form that `hive.envs.vectors.python_vector` writes.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs.context import EnvContext, filled
from hive.envs.external.client import ProgramClient
from hive.envs.external.frames import Misbehaved
from hive.envs.external.hello import Hello
from hive.envs.external.specs import check_specs, specs_of
from hive.envs.first_observations import with_origins_seen
from hive.envs.recipe import Recipe
from hive.envs.spaces.actions import ActionSpec, action_converter
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.spaces.origins import with_origins
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.vectors.checks import Checks, at
from hive.envs.vectors.episodes import Episodes
from hive.envs.vectors.infos import Infos
from hive.envs.vectors.rows import StepRow
from hive.errors import EnvironmentFailed

CLOSE_S = 5.0  # time for the exit of a program whose spaces were read
FIRST = EnvContext(0)


class Program(ProgramClient):
    """A `Stepper`, which documents the methods, of the environments of one program.

    row: the columns that it writes. actions: [count, ...], what it steps with. observation, action: the specs of the
    run, which the program must have. first: the number of its first environment in the collector, for messages. output:
    as for `ProgramClient`. took: where the nanoseconds of its last step are written, [1]. plays: as of `RowBlock`; a
    program with one environment follows it, others are stepped all at once.
    """

    takes_attributes = False

    def __init__(
        self,
        recipe: Recipe,
        row: StepRow,
        actions: NDArray[Any],
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        first: int = 0,
        output: Path | None = None,
        took: NDArray[np.int64] | None = None,
        plays: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(recipe, output=output)
        self._took = np.zeros(1, np.int64) if took is None else took
        self.count = len(row.rewards)
        self._row, self.actions = row, actions
        self._run_specs = observation, action
        self._first = first
        self._plays = plays if self.count == 1 else None
        self._reset_options: list[Mapping[str, Any]] = []

    def start(self, contexts: Sequence[EnvContext]) -> None:
        self._reset_options = [self._recipe.at(context).reset_options for context in contexts]
        super().start(contexts)

    def renew(self, contexts: Sequence[EnvContext]) -> None:
        """Keep the program: the reset that follows begins its episodes again, with the seeds of the barrier."""
        self._reset_options = [self._recipe.at(context).reset_options for context in contexts]

    def reset(self, seeds: Sequence[int]) -> None:
        """Order it to begin an episode in each environment; `row.observations` gets the first observations."""
        self.order("reset", lambda: self._reset(seeds))

    def step(self) -> None:
        """Order it to step each environment once with the stored actions; `row` gets the results."""
        self.order("step", self._step)

    def _opened(self, said: Hello) -> None:
        observation, action = specs_of(self._recipe, said)
        check_specs(observation, action, *self._run_specs)
        self._checks = Checks(self.id, with_origins(observation, self._run_specs[0]), self._first)
        self._infos = Infos(self._checks, self._recipe.info)
        self._episodes = Episodes(self._checks, self.count, limit=said.max_episode_steps or 0)
        self._convert = action_converter(action)
        self._played = 0  # so that the first step reads `plays`

    def _reset(self, seeds: Sequence[int]) -> Generator[int, None, None]:
        self._episodes.begin()
        observations = yield from self.talk().reset(range(self.count), seeds, self._reset_options)
        self._checks.batches(observations, self._row.observations)

    def _step(self) -> Generator[int, None, None]:
        row, talk, checks, begin = self._row, self.talk(), self._checks, time.monotonic_ns()
        checks.steps += 1
        row.finals.count = 0
        if self._rests():
            self._episodes.finish(np.zeros(1), np.zeros(1, bool), np.zeros(1, bool), row)
            return
        answer = yield from talk.step(self._convert(self.actions))
        ended, _ = self._episodes.finish(answer.rewards, answer.terminated, answer.truncated, row)
        if self._infos.names:
            self._infos.write({index: _values(answer.info, index) for index in ended}, row.infos)
        observations = answer.observations
        for index in ended:
            if row.truncated[index]:
                row.final_index[index] = checks.final(index, at(observations, index), row.finals)
        if self._episodes.resting:  # its row keeps what it saw before: its last observation may be anything
            return
        if ended:
            self._now_doing("reset", ended[0] if len(ended) == 1 else None)
            following = yield from talk.reset(ended, None, [self._reset_options[index] for index in ended])
            observations = _replaced(observations, ended, following)
        checks.batches(observations, row.observations)
        self._took[0] = time.monotonic_ns() - begin

    def _rests(self) -> bool:
        """Return whether its only environment has played all its episodes."""
        if self._plays is not None and self._plays[-1] != self._played:
            self._played = int(self._plays[-1])
            self._episodes.play(self._plays[self._first : self._first + 1])
        return bool(self._episodes.resting)


def describe_program(
    recipe: Recipe, limit_s: float, context: EnvContext = FIRST, *, plays: bool = False
) -> EnvironmentSpec:
    """Start the program as one environment, or connect to it, read its spaces and end it. Its exit is confirmed.

    limit_s: env.start_limit_s. plays: whether to order episodes for the origins of its observations. Raises
    EnvironmentFailed, and ConfigError for an address that is not of this machine.
    """
    program = ProgramClient(recipe)
    program.start([context])
    try:
        if not program.done(limit_s):
            raise EnvironmentFailed(
                f"`{recipe.id}` has not answered hello within {limit_s:g} s (env.start_limit_s)",
                hint=_late(recipe, context, program),
            )
        said = program.said
        assert said is not None, "it has answered"
        observation, action = specs_of(recipe, said)
        most = said.max_episode_steps
        if plays:
            observation = with_origins_seen(observation, lambda seed: _first_of(program, seed, limit_s))
        return EnvironmentSpec(recipe.id, observation, action, most, deterministic=said.deterministic)
    except Misbehaved as fault:
        raise EnvironmentFailed(f"`{recipe.id}` {fault}", permanent=True) from None
    except EnvironmentFailed as failure:
        if program.pids() and (tail := program.tail()):
            failure.hint = f"it printed: {tail}"
        raise
    finally:
        program.close()
        program.end(CLOSE_S)


def _first_of(program: ProgramClient, seed: int, limit_s: float) -> Iterator[Any]:
    """Yield the first observation of an episode of a program's only environment."""
    found: list[Any] = []

    def reset() -> Generator[int, None, None]:
        found.append((yield from program.talk().reset([0], [seed], [{}])))

    program.order("reset", reset)
    if not program.done(limit_s):
        raise EnvironmentFailed(f"`{program.id}` has not answered reset within {limit_s:g} s")
    yield at(found[0], 0)


def _late(recipe: Recipe, context: EnvContext, program: ProgramClient) -> str:
    """Return the hint for a program that has not answered hello."""
    if not program.pids():
        return f"a program must listen at {filled(recipe.connect, context)} (env.connect), and serve no other run"
    return f"it printed: {tail}" if (tail := program.tail()) else "it printed nothing"


def _replaced(observations: Any, ended: Sequence[int], following: Any) -> Any:
    """Return observations, arrays [B, ...], with those of the environments `ended` replaced by `following` [n, ...]."""
    if isinstance(observations, Mapping):
        return {name: _replaced(part, ended, following[name]) for name, part in observations.items()}
    changed = observations.copy()
    changed[ended] = following
    return changed


def _values(info: Mapping[str, NDArray[np.float32]], index: int) -> dict[str, float]:
    """Return the values of one environment; NaN says that it has none."""
    return {name: float(values[index]) for name, values in info.items() if not np.isnan(values[index])}
