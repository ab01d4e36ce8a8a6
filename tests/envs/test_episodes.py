"""The native pass writes the same values as NumPy's operations on whole rows, for every form of input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hive.envs.spaces.observation import ObservationSpec
from hive.envs.vectors.checks import Checks
from hive.envs.vectors.episodes import Episodes
from hive.envs.vectors.rows import StepRow
from hive.errors import EnvironmentFailed

SPEC = ObservationSpec((1,), "float32")
WRITTEN = ("rewards", "terminated", "truncated", "valid", "episode_returns", "episode_lengths", "final_index")
ENVS = 7


class Reference:
    """The same bookkeeping, an operation on whole rows at a time."""

    def __init__(self, count: int, *, resets_in_next_step: bool, limit: int) -> None:
        self.resets_in_next_step, self.limit = resets_in_next_step, limit
        self.resetting = np.zeros(count, np.bool_)
        self.returns = np.zeros(count, np.float64)
        self.lengths = np.zeros(count, np.int32)

    def finish(self, rewards: Any, terminated: Any, truncated: Any) -> tuple[dict[str, Any], list[int], list[int]]:
        valid = ~self.resetting
        kept = np.asarray(rewards, np.float32) * valid
        self.returns += kept
        self.lengths += valid
        limited = np.asarray(truncated, np.bool_) | ((self.lengths >= self.limit) & (self.limit > 0))
        dead = np.asarray(terminated, np.bool_) & valid
        cut = limited & valid & ~dead
        ended = dead | cut
        row = {
            "rewards": kept,
            "terminated": dead,
            "truncated": cut,
            "valid": valid,
            "episode_returns": np.where(ended, self.returns, 0.0).astype(np.float32),
            "episode_lengths": np.where(ended, self.lengths, 0),
            "final_index": np.full(len(valid), -1),
        }
        self.returns[ended] = 0.0
        self.lengths[ended] = 0
        if self.resets_in_next_step:
            self.resetting[:] = ended
        return row, np.flatnonzero(ended).tolist(), np.flatnonzero(cut).tolist()


def started(**options: Any) -> tuple[Episodes, StepRow]:
    """Episodes of ENVS environments, and a row full of what an earlier step left in it."""
    row = StepRow.allocate(SPEC, ENVS)
    for name in WRITTEN:
        getattr(row, name).fill(77)
    return Episodes(Checks("My-v0", SPEC), ENVS, **options), row


def strided(array: NDArray[Any]) -> NDArray[Any]:
    """An equal array with gaps in memory."""
    return np.repeat(array, 3)[::3]


def backwards(array: NDArray[Any]) -> NDArray[Any]:
    return array[::-1].copy()[::-1]


def scalars(array: NDArray[Any]) -> tuple[Any, ...]:
    """A tuple of NumPy's scalars."""
    return tuple(array)


def plain(array: NDArray[Any]) -> tuple[Any, ...]:
    """A tuple of Python's numbers."""
    return tuple(array.tolist())


Form = Callable[[NDArray[Any]], Any]
REWARDS: dict[str, Form] = {
    "float64": lambda rewards: rewards,
    "float32": lambda rewards: rewards.astype(np.float32),
    "float16": lambda rewards: rewards.astype(np.float16),
    "integers": lambda rewards: rewards.astype(np.int64),
    "flags": lambda rewards: rewards > 0,
    "strided": strided,
    "backwards": backwards,
    "big-endian": lambda rewards: rewards.astype(">f8"),
    "misaligned": lambda rewards: np.frombuffer(b"-" + rewards.tobytes(), np.float64, offset=1),
    "list": lambda rewards: rewards.tolist(),
    "numbers": plain,
    "scalars": scalars,
    "float32 scalars": lambda rewards: scalars(rewards.astype(np.float32)),
    "plain integers": lambda rewards: plain(rewards.astype(np.int64)),
    "plain flags": lambda rewards: plain(rewards > 0),
    "large integers": lambda rewards: tuple(2**60 + 2**36 + int(reward) for reward in rewards),
    "large and small": lambda rewards: (0.5, *(2**60 + 2**36 + int(reward) for reward in rewards[1:])),
    "0-d": lambda rewards: tuple(np.array(reward) for reward in rewards),
    "mixed": lambda rewards: (True, 2, -0.5, np.float32(3), np.float64(rewards[4]), np.int8(5), np.array(6)),
}
FLAGS: dict[str, Form] = {
    "bool": lambda flags: flags,
    "strided": strided,
    "backwards": backwards,
    "read-only": lambda flags: np.frombuffer(flags.tobytes(), np.bool_),
    "plain": plain,
    "scalars": scalars,
    "integers": lambda flags: plain(flags.astype(np.int64) * 3),
    "objects": lambda flags: tuple([1] if flag else None for flag in flags),
    "0-d": lambda flags: tuple(np.array(flag) for flag in flags),
}
CASES = [*((name, "bool") for name in REWARDS), *(("float64", name) for name in FLAGS), ("numbers", "plain")]


@pytest.mark.rotates
@pytest.mark.parametrize(("rewards", "flags"), CASES)
@pytest.mark.parametrize(("resets_in_next_step", "limit"), [(False, 0), (True, 0), (False, 5)])
def test_rows_are_those_of_numpy(rewards: str, flags: str, resets_in_next_step: bool, limit: int) -> None:
    options = {"resets_in_next_step": resets_in_next_step, "limit": limit}
    (episodes, row), reference = started(**options), Reference(ENVS, **options)
    rng = np.random.default_rng(CASES.index((rewards, flags)))
    seen: list[tuple[int, int]] = []
    for _ in range(80):
        given = REWARDS[rewards](rng.normal(size=ENVS) * 4)
        terminated, truncated = (FLAGS[flags](rng.random(ENVS) < 0.12) for _ in range(2))
        found = episodes.finish(given, terminated, truncated, row)
        as_arrays = (np.array([bool(flag) for flag in some]) for some in (terminated, truncated))
        expected, ended, cut = reference.finish(np.asarray(given), *as_arrays)
        assert found == (ended, cut)
        for name in WRITTEN:
            np.testing.assert_array_equal(getattr(row, name), expected[name], err_msg=name)
        seen.append((int(row.terminated.sum()), int(row.truncated.sum())))
    assert min(map(sum, zip(*seen, strict=True))) > 20


def test_begin_drops_open_episodes_and_pending_resets() -> None:
    episodes, row = started(resets_in_next_step=True, limit=4)
    no, yes = np.zeros(ENVS, np.bool_), np.ones(ENVS, np.bool_)
    episodes.finish(np.ones(ENVS), yes, no, row)
    episodes.begin()
    for _ in range(3):
        assert episodes.finish(np.ones(ENVS), no, no, row) == ([], [])
        assert row.valid.tolist() == [1] * ENVS
    episodes.begin()
    for _ in range(3):
        assert episodes.finish(np.ones(ENVS), no, no, row) == ([], [])
    everyone = list(range(ENVS))
    assert episodes.finish(np.ones(ENVS), no, no, row) == (everyone, everyone)
    assert row.episode_returns.tolist() == row.episode_lengths.tolist() == [4] * ENVS


def test_the_limit_and_an_end_in_the_same_step_is_terminated() -> None:
    episodes, row = started(limit=1)
    terminated = tuple(index % 2 == 0 for index in range(ENVS))
    assert episodes.finish((1.0,) * ENVS, terminated, (False,) * ENVS, row) == ([*range(ENVS)], [1, 3, 5])
    assert row.terminated.tolist() == [1, 0, 1, 0, 1, 0, 1]
    assert row.truncated.tolist() == [0, 1, 0, 1, 0, 1, 0]


NONE = np.zeros(ENVS, np.bool_)
GOOD = np.ones(ENVS)


def with_bad(bad: Any) -> tuple[Any, ...]:
    return (1.0, 1.0, bad, *[1.0] * (ENVS - 3))


@pytest.mark.parametrize(
    ("rewards", "terminated", "truncated", "text"),
    [
        (with_bad(np.nan), NONE, NONE, "the reward nan, expected a finite number (env 2, "),
        (np.array(with_bad(-np.inf)), NONE, NONE, "the reward np.float64(-inf), expected a finite number (env 2, "),
        (with_bad(None), NONE, NONE, "the reward None, expected a finite number (env 2, "),
        (with_bad("1"), NONE, NONE, "the reward '1', expected a finite number (env 2, "),
        (np.ones(ENVS + 1), NONE, NONE, f"{ENVS + 1} rewards, expected {ENVS} ("),
        (1.0, NONE, NONE, f"1 rewards, expected {ENVS} ("),
        (GOOD, NONE[1:], NONE, f"`terminated` of bool({ENVS - 1},), expected bool({ENVS},) ("),
        (GOOD, NONE, NONE.astype(np.uint8), f"`truncated` of uint8({ENVS},), expected bool({ENVS},) ("),
        (GOOD, NONE, np.array(False), f"`truncated` of bool(), expected bool({ENVS},) ("),
        (with_bad(np.nan), NONE[1:], NONE, f"`terminated` of bool({ENVS - 1},), expected bool({ENVS},) ("),
    ],
)
def test_what_is_refused_is_named_and_changes_nothing(rewards: Any, terminated: Any, truncated: Any, text: str) -> None:
    (episodes, row), (untouched, other) = started(), started()
    ends = np.arange(ENVS) % 2 == 0
    for each, into in ((episodes, row), (untouched, other)):
        each.finish(GOOD, NONE, NONE, into)
    with pytest.raises(EnvironmentFailed) as caught:
        episodes.finish(rewards, terminated, truncated, row)
    assert str(caught.value).startswith(f"My-v0 returned {text}")
    assert caught.value.permanent
    assert episodes.finish(GOOD, ends, NONE, row) == untouched.finish(GOOD, ends, NONE, other)
    for name in WRITTEN:
        assert getattr(row, name).tolist() == getattr(other, name).tolist(), name


def test_a_flag_without_a_truth_is_named() -> None:
    episodes, row = started()
    flags = (False, np.zeros(2), *[False] * (ENVS - 2))
    with pytest.raises(
        EnvironmentFailed, match=r"returned `terminated` array\(\[0., 0.\]\), expected True or False \(env 1"
    ):
        episodes.finish(with_bad(1.0), flags, (False,) * ENVS, row)


def test_a_row_of_other_environments_is_refused() -> None:
    with pytest.raises(ValueError, match=f"the row is of 2 environments, expected {ENVS}"):
        started()[0].finish(GOOD, NONE, NONE, StepRow.allocate(SPEC, 2))
