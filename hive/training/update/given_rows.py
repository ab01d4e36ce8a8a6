"""Gives the transitions of `algorithm.replay_from` to the replay memory of a new run, before its first round.

    read_given(config, environment)          those of a file, or of the memory in another run's newest checkpoint
    GivenRows(transitions, size)             which of them enter which ring
    .rollouts(discount)                      as rollouts of a collector, in pieces

A ring has columns, one for each row of a step of its collector. The newest transitions that fit are dealt in a fixed
order: sequence by sequence, those of an environment of the file after each other, in equal parts, column by column of
the first ring, then of the second. So a memory that is given to as many environments as made it keeps its columns. A
part may end within an episode. Its last step then counts as truncated, and bootstraps from its next observation, as it
does where an episode was interrupted. Columns that are one row shorter begin with a row that is not valid.

The order depends on the transitions and on the sizes of the memory alone, so all rows of a run are the same bytes
whenever it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.config import EnvConfig
from hive.envs import ActionSpec, EnvironmentSpec, ObservationSpec
from hive.envs.spaces.origins import has_origins_of
from hive.errors import HiveError, RecordError
from hive.experience import FINALS, LENGTH, SOURCE, Rollout
from hive.experience.rollouts import HEADER_WORDS
from hive.paths import user_path
from hive.policy.descriptions import described_spaces
from hive.policy.origin import config_of, run_of
from hive.policy.transitions import StoredTransitions, fields_of, stored_transitions
from hive.records import Checkpoint, checkpoint_at
from hive.records.atomic import DONE
from hive.records.checkpoints.folders import MOST_FINDS, warn
from hive.records.checkpoints.replay_chunks import read_whole_replay
from hive.records.directory import is_transitions_file
from hive.records.transition_axes import Axes
from hive.records.transitions import Fields, read_transitions, transitions_refused
from hive.training.update.replay_size import ReplaySize

PIECE_BYTES = 16 << 20  # of one piece of rollout: little beside any memory, and few pieces


@dataclass(frozen=True)
class Given:
    """The transitions of a file or a run in stored form, and where they are from.

    left_out: transitions of the file whose next observation is unknown. unread: names in the file that are not read.
    axes: what the two leading axes of its arrays were. env: the table [env] of the run that they are from, if known.
    """

    place: str
    transitions: StoredTransitions
    left_out: int = 0
    unread: tuple[str, ...] = ()
    axes: Axes = Axes.EXPECTED
    env: EnvConfig | None = None


def read_given(place: str, environment: EnvironmentSpec) -> Given:
    """Read a file of transitions, or the memory in the newest checkpoint of a run or in the checkpoint `place`.

    Raises RecordError, which names all faults, if they are not transitions of this environment, and UsageError if there
    is no such run.
    """
    observation, action = environment.observation, environment.action
    if is_transitions_file(place):
        file = read_transitions(user_path(place))
        return Given(place, *stored_transitions(file.fields, observation, action, place), tuple(file.unread), file.axes)
    transitions, its_observation, its_action = saved_transitions(place)
    same = (its_observation, its_action) == (observation, action) and has_origins_of(observation, its_observation)
    if not same:  # of another form or origin, which may hold the same values
        fields = _as_read(fields_of(transitions, its_observation, its_action))
        transitions, _ = stored_transitions(fields, observation, action, place)
    if not len(transitions):
        raise transitions_refused(place, ["there are none"])
    return Given(place, transitions, env=_env_of(place))


def _env_of(place: str) -> EnvConfig | None:
    """Return the table [env] of the run `place`, or of that of the checkpoint; None if it is not known."""
    try:
        checkpoint = checkpoint_at(place, warn=lambda text: None)
        return config_of(checkpoint, run_of(checkpoint)).env
    except HiveError:  # it is in the folder of no run, or of one of an earlier hive
        return None


def _as_read(fields: Fields) -> Fields:
    """Return fields with the dtypes that `read_transitions` returns."""
    flags = {name: fields[name].astype(np.uint8) for name in ("terminated", "truncated")}
    return {**fields, **flags}


def saved_transitions(
    place: str, warn: Callable[[str], object] = warn
) -> tuple[StoredTransitions, ObservationSpec, ActionSpec]:
    """Return the transitions in the memory of a checkpoint, or of a run's newest, in stored form, with their specs.

    warn: is called if a newer checkpoint is damaged. A live run may remove the checkpoint while it is read; then the
    next one is. Raises RecordError and UsageError.
    """
    for left in reversed(range(MOST_FINDS)):
        checkpoint = checkpoint_at(place, warn=warn)
        try:
            return _transitions_in(checkpoint)
        except RecordError:
            if left == 0 or (checkpoint.path / DONE).exists():
                raise  # damaged or without rows, not removed
    raise AssertionError("unreachable")


def _transitions_in(checkpoint: Checkpoint) -> tuple[StoredTransitions, ObservationSpec, ActionSpec]:
    if not checkpoint.has_replay:
        raise RecordError(
            f"the checkpoint {checkpoint.path} has no replay memory",
            hint="runs of dqn, c51, qr-dqn, sac, td3, ddpg and bc have one, unless checkpoint.replay = false",
        )
    if (specs := described_spaces(checkpoint)) is None:
        raise RecordError(f"state.json of {checkpoint.path} does not describe observations and actions")
    arrays, spans = read_whole_replay(checkpoint.path)
    observation, action = specs
    envs = arrays["rewards"].shape[2:]
    expected: dict[str, tuple[str, tuple[int, ...]]] = {
        **dict.fromkeys(("terminated", "truncated", "valid"), ("uint8", envs)),
        "rewards": ("float32", envs),
        "observations": (observation.dtype, (*envs, *observation.shape)),
        "actions": (action.dtype, (*envs, *action.shape)),
    }
    found = {name: (array.dtype.name, array.shape[2:]) for name, array in arrays.items()}
    if wrong := [name for name, kind in expected.items() if found.get(name) != kind]:
        raise RecordError(f"the rows of {checkpoint.path} have another `{wrong[0]}` than its state.json describes")
    return transitions_in_rings(arrays, spans), *specs


def transitions_in_rings(arrays: Mapping[str, NDArray[Any]], spans: Sequence[range]) -> StoredTransitions:
    """Return the steps in a memory, oldest first; those of the same age in order of rings and columns.

    arrays: [S, R, B, ...], as in hive.experience.replay. spans: the rows of each ring.

    A step before a seam, and the newest of a column, are truncated: their episodes have no further steps here. The next
    observation of a step that terminated is not in a memory, and is that of the step itself.
    """
    ring, envs = arrays["rewards"].shape[1:]
    rows = [np.arange(span.start, span.stop) for span in spans]
    source = np.concatenate([np.full(len(one), number) for number, one in enumerate(rows)])[:, None]
    place = np.concatenate([one % ring for one in rows])[:, None]
    age = np.concatenate([span.stop - one for span, one in zip(spans, rows, strict=True)])[:, None]
    env, after = np.arange(envs)[None], (place + 1) % ring
    terminated = arrays["terminated"][source, place, env]
    interrupted = (arrays["truncated"][source, place, env] != 0) & (terminated == 0)
    cut = (terminated == 0) & ((age == 1) | (arrays["valid"][source, after, env] == 0))
    followed = arrays["observations"][source, after, env]
    followed[interrupted] = arrays["finals"][source, place, env][interrupted]
    observations = arrays["observations"][source, place, env]
    followed[terminated != 0] = observations[terminated != 0]
    column = source * envs + env
    order = np.lexsort((column.ravel(), -np.broadcast_to(age, column.shape).ravel()))
    order = order[arrays["valid"][source, place, env].ravel()[order] != 0]

    def listed(array: NDArray[Any]) -> Any:
        return array.reshape(-1, *array.shape[2:])[order]

    return StoredTransitions(
        observations=listed(observations),
        next_observations=listed(followed),
        actions=listed(arrays["actions"][source, place, env]),
        rewards=listed(arrays["rewards"][source, place, env]),
        terminated=listed(terminated),
        truncated=listed((interrupted | cut).astype(np.uint8)),
        environments=listed(column.astype(np.int64)),
    )


class GivenRows:
    """The transitions that enter the rings of a memory of this size.

    count: how many do; the newest. `dealt`: int64 [S * B, T], the transition in each row of each column; -1: none.
    """

    def __init__(self, transitions: StoredTransitions, size: ReplaySize) -> None:
        self.transitions = transitions
        self.size = size
        columns = size.sources * size.envs
        self.count = min(len(transitions), size.kept * columns)
        oldest = len(transitions) - self.count
        order = np.argsort(transitions.environments[oldest:], kind="stable") + oldest
        each, more = divmod(self.count, columns)
        self.dealt = np.full((columns, each + (more > 0)), -1, np.int64)
        begin = 0
        for column, rows in enumerate(self.dealt):
            end = begin + each + (column < more)
            rows[len(rows) - (end - begin) :] = order[begin:end]
            begin = end

    def rollouts(self, discount: float) -> Iterator[Rollout]:
        """Yield the rows of each ring in order. discount: of the discounted sums of rewards in them."""
        size, given = self.size, self.transitions
        row_bytes = size.envs * (3 * given.observations[0].nbytes + given.actions[0].nbytes)
        length = self.dealt.shape[1]
        # `Replay.append` takes at most two rows less than a ring has.
        steps = max(1, min(PIECE_BYTES // max(row_bytes, 1), size.rows - 2, length))
        for source in range(size.sources):
            columns = self.dealt[source * size.envs : (source + 1) * size.envs].T  # [T, B]
            sums = np.zeros(size.envs)
            for first in range(0, length, steps):
                yield self._rollout(source, columns, first, min(first + steps, length), discount, sums)

    def _rollout(
        self, source: int, columns: NDArray[np.int64], first: int, end: int, discount: float, sums: NDArray[np.float64]
    ) -> Rollout:
        """Return rows `first` to `end` - 1 of the `columns` [T, B] of a ring; `sums` [B] are carried on."""
        given, taken, steps = self.transitions, columns[first:end], end - first
        valid, last = taken >= 0, end == len(columns)
        one_after = columns[end : end + 1]
        following = given.next_observations[taken[-1:]] if last else given.observations[one_after]
        observations = np.concatenate([given.observations[taken], following])
        observations[:-1][~valid] = 0
        if not last:
            observations[-1][one_after[0] < 0] = 0
        terminated = np.where(valid, given.terminated[taken], 0).astype(np.uint8)
        truncated = np.where(valid, given.truncated[taken], 0).astype(np.uint8)
        if last:
            truncated[-1] |= (valid[-1] & (terminated[-1] == 0)).astype(np.uint8)
        rewards = np.where(valid, given.rewards[taken], 0).astype(np.float32)
        final_index = np.full(taken.shape, -1, np.int32)
        final_index[truncated != 0] = np.arange(np.count_nonzero(truncated))
        discounted = np.empty(taken.shape)
        for t in range(steps):
            sums[:] = sums * discount + rewards[t]
            discounted[t] = sums
            sums[(terminated[t] | truncated[t]) != 0] = 0.0
        header = np.zeros(HEADER_WORDS, np.int64)
        header[[LENGTH, SOURCE, FINALS]] = steps, source, np.count_nonzero(truncated)
        nothing = np.zeros(taken.shape, np.float32)
        arrays = {
            "header": header,
            "observations": observations,
            "actions": given.actions[taken],
            "rewards": rewards,
            "discounted": discounted,
            "terminated": terminated,
            "truncated": truncated,
            "valid": valid.astype(np.uint8),
            "final_index": final_index,
            "final_observations": given.next_observations[taken[truncated != 0]],
            **dict.fromkeys(("log_probs", "episode_returns", "episode_lengths"), nothing),
        }
        return Rollout(arrays)
