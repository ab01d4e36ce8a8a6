"""Rollouts: where everything lies, what a reader sees of a partial one, and how many finals are expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hive.experience import (
    FINALS,
    LENGTH,
    SEQUENCE,
    SOURCE,
    VERSION,
    Rollout,
    check_finals,
    expected_finals,
    rollout_layout,
    samples_in,
)
from hive.experience.rollouts import HEADER
from hive.runtime import Layout

STEPS, ENVS, ROOM = 5, 3, 4


def layout(observation: tuple[tuple[int, ...], str] = ((2,), "float32"), steps: int = STEPS) -> Layout:
    return rollout_layout(steps, ENVS, observation, ((), "int64"), ROOM)


def filled(length: int = STEPS, finals: int = 0, version: int = 0) -> dict[str, NDArray[Any]]:
    """A slot full of what an earlier rollout has left, of which `length` steps are new."""
    made = layout()
    arrays: dict[str, NDArray[Any]] = made.views(np.full(made.bytes, 0x11, np.uint8))
    arrays["header"][[VERSION, LENGTH, FINALS]] = version, length, finals
    for name in ("valid", "episode_lengths", "episode_returns"):
        arrays[name][:length] = 0
    return arrays


def test_a_layout_has_the_fields_that_the_module_draws() -> None:
    made = rollout_layout(5, 3, ((4, 2), "uint8"), ((6,), "float32"), 7)
    assert {name: (dtype.name, shape) for name, (dtype, shape) in made.fields.items()} == {
        "header": ("int64", (8,)),
        "observations": ("uint8", (6, 3, 4, 2)),
        "actions": ("float32", (5, 3, 6)),
        "log_probs": ("float32", (5, 3)),
        "rewards": ("float32", (5, 3)),
        "terminated": ("uint8", (5, 3)),
        "truncated": ("uint8", (5, 3)),
        "valid": ("uint8", (5, 3)),
        "final_index": ("int32", (5, 3)),
        "episode_returns": ("float32", (5, 3)),
        "episode_lengths": ("int32", (5, 3)),
        "final_observations": ("uint8", (5 * 3, 4, 2)),
    }
    assert made.sparse_bytes == (5 * 3 - 7) * 4 * 2


@given(st.booleans(), st.booleans(), st.integers(0, 3), st.integers(0, 3), st.integers(1, 4))
def test_final_observations_lie_last(discounted: bool, errors: bool, infos: int, state: int, stack: int) -> None:
    """Whatever else a rollout has: pages of finals that no rollout needed are never touched."""
    options: dict[str, Any] = {"discounted": discounted, "errors": errors, "infos": infos, "state": state}
    made = rollout_layout(4, 2, ((3,), "float32"), ((), "int64"), stack=stack, **options)
    assert [*made.fields][-1] == "final_observations"
    assert made.dense_bytes == made.offsets["final_observations"]


@given(st.integers(0, STEPS), st.data())
def test_only_as_many_final_observations_as_the_indices_name_are_accepted(length: int, data: st.DataObject) -> None:
    arrays = filled(length)
    ended = data.draw(st.lists(st.booleans(), min_size=length * ENVS, max_size=length * ENVS))
    index = np.where(ended, np.cumsum(ended) - 1, -1)
    arrays["final_index"][:length] = index.reshape(length, ENVS)
    finals = sum(ended)

    def accepted(header: int = finals, rows: int = finals) -> bool:
        arrays["header"][FINALS] = header
        return check_finals({**arrays, "final_observations": arrays["final_observations"][:rows]})

    assert accepted()
    assert not accepted(header=finals + 1)
    assert not accepted(rows=finals + 1)
    if finals:
        assert not accepted(header=finals - 1, rows=finals - 1)
        arrays["final_index"][:length][arrays["final_index"][:length] == 0] = finals
        assert not accepted()
    arrays["header"][LENGTH] = STEPS + 1
    assert not accepted()


@given(
    st.integers(1, 40),
    st.integers(1, 9),
    st.tuples(st.lists(st.integers(1, 5), max_size=3).map(tuple), st.sampled_from(["float32", "uint8"])),
    st.sampled_from([((), "int64"), ((3,), "float32")]),
)
def test_fields_are_aligned_and_apart(
    steps: int, envs: int, observation: tuple[tuple[int, ...], str], action: tuple[tuple[int, ...], str]
) -> None:
    made = rollout_layout(steps, envs, observation, action)
    assert all(offset % 64 == 0 for offset in made.offsets.values())
    views = made.views(np.zeros(made.bytes, np.uint8))
    for number, array in enumerate(views.values(), start=1):
        array.reshape(-1).view(np.uint8)[:] = number
    assert all((array.view(np.uint8) == n).all() for n, array in enumerate(views.values(), start=1))


def test_header_positions() -> None:
    """They lie in shared memory: append only."""
    assert HEADER == ("version", "length", "finals", "source", "sequence", "begins", "env_steps")
    assert (VERSION, LENGTH, FINALS, SOURCE, SEQUENCE) == (0, 1, 2, 3, 4)


def test_a_reader_sees_what_the_header_says() -> None:
    rollout = Rollout(filled(length=3, finals=2, version=41))
    assert rollout.version == 41
    assert rollout.length == 3
    assert rollout.observations.shape == (4, ENVS, 2)
    assert rollout.final_observations.shape == (2, 2)
    per_step = (
        rollout.actions,
        rollout.log_probs,
        rollout.rewards,
        rollout.terminated,
        rollout.truncated,
        rollout.valid,
        rollout.final_index,
        rollout.episode_returns,
        rollout.episode_lengths,
    )
    assert all(array.shape == (3, ENVS) for array in per_step)


def test_a_reader_copies_nothing() -> None:
    arrays = filled(length=3, finals=2)
    rollout = Rollout(arrays)
    names = [name for name in arrays if name != "header"]
    assert all(np.shares_memory(getattr(rollout, name), arrays[name]) for name in names)


@pytest.mark.parametrize(
    ("sequence", "options", "progress"),
    [
        (0, {}, 0.0),  # a run without an end
        (10**9, {}, 0.0),
        (0, {"rounds": 4.0}, 0.25),
        (2, {"rounds": 4.0}, 0.75),
        (3, {"rounds": 4.0}, 1.0),
        (4, {"rounds": 4.0}, 1.0),
        (10**9, {"rounds": 4.0}, 1.0),
        (2, {"rounds": 4.5}, 3 / 4.5),  # the last rollout of a run may exceed its steps
        (4, {"rounds": 4.5}, 1.0),
        (0, {"rounds": 0.5}, 1.0),
        (7, {"rounds": 4.0, "start": 6.0}, 0.5),
        (7, {"rounds": 40.0, "start": -12.0}, 0.5),
        (7, {"rounds": 2.0, "start": 7.5}, 0.25),
        (99, {"rounds": 2.0, "start": 7.5}, 1.0),
    ],
)
def test_progress_is_counted_in_rollouts(sequence: int, options: dict[str, float], progress: float) -> None:
    arrays = filled()
    arrays["header"][SEQUENCE] = sequence
    assert Rollout(arrays, **options).progress == progress


@pytest.mark.parametrize("length", [0, 2, STEPS])
def test_samples_are_the_valid_steps_within_the_length(length: int) -> None:
    """What an earlier rollout left beyond it (0x11: valid) does not count."""
    arrays = filled(length)
    arrays["valid"][:length] = 1
    assert Rollout(arrays).samples == samples_in(arrays) == length * ENVS
    arrays["valid"][: min(length, 1), 1] = 0
    assert Rollout(arrays).samples == samples_in(arrays) == length * ENVS - min(length, 1)


def test_episodes_come_in_order_of_step_then_environment() -> None:
    arrays = filled(length=4)
    for step, env, value, steps in ((3, 0, 4.0, 9), (1, 2, 3.0, 7), (0, 1, 1.0, 1), (1, 0, -2.5, 2)):
        arrays["episode_returns"][step, env] = value
        arrays["episode_lengths"][step, env] = steps
    returns, lengths = Rollout(arrays).episodes()
    assert returns.tolist() == [1.0, -2.5, 3.0, 4.0]
    assert lengths.tolist() == [1, 2, 7, 9]


def test_an_episode_that_returned_nothing_counts_and_none_is_none() -> None:
    arrays = filled()
    assert [len(part) for part in Rollout(arrays).episodes()] == [0, 0]
    arrays["episode_lengths"][2, 1] = 5
    returns, lengths = Rollout(arrays).episodes()
    assert (returns.tolist(), lengths.tolist()) == ([0.0], [5])


def most_ends(steps: int, limit: int) -> int:
    """How many episodes of exactly `limit` steps can end within `steps`, whenever the first began."""
    return max(sum((start + step) % limit == 0 for step in range(1, steps + 1)) for start in range(limit))


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 70))
def test_no_more_finals_are_expected_than_a_declared_limit_can_cause(steps: int, envs: int, limit: int) -> None:
    assert expected_finals(steps, envs, limit) == envs * most_ends(steps, limit)


@pytest.mark.parametrize(("limit", "count"), [(None, 4), (500, 4), (32, 4), (16, 8), (10, 16), (1, 128)])
def test_expected_finals(limit: int | None, count: int) -> None:
    assert expected_finals(32, 4, limit) == count
