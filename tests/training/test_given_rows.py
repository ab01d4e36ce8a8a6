"""Rows that are given to a replay memory: which enter which ring, what is drawn of them, and how they are saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_trainer import allocate, config_of, same_bytes

from hive.envs import ObservationSpec
from hive.errors import RecordError, TopologyError
from hive.networks import aligned_block
from hive.policy.transitions import StoredTransitions, successors
from hive.schemes import build
from hive.training import Blueprint
from hive.training.run_start import write_first_ledger
from hive.training.update.given_rows import GivenRows, transitions_in_rings
from hive.training.update.learner import Count
from hive.training.update.replay_memory import ReplayMemory, ledger_layout, memory_layout
from hive.training.update.replay_size import ReplaySize

SHAPES = ((1, 1), (1, 3), (2, 1), (2, 3))  # rings and columns


def size_of(sources: int, envs: int, kept: int = 50, n_step: int = 1) -> ReplaySize:
    return ReplaySize(
        sources=sources,
        envs=envs,
        steps=4,
        kept=kept,
        rounds_ahead=2,
        stack=1,
        n_step=n_step,
        workers=1,
        batch=4,
    )


def drawn(count: int, environments: int, seed: int = 0) -> StoredTransitions:
    """Transitions of environments in a random order, whose observations are numbers that none has twice."""
    chance = np.random.default_rng(seed)
    environment = (
        np.sort(chance.integers(environments, size=count)) if seed % 2 else chance.integers(environments, size=count)
    )
    then = successors(environment)
    ends = chance.integers(8, size=count)
    terminated = (ends == 0).astype(np.uint8)
    truncated = (((ends == 1) | (then < 0)) & (terminated == 0)).astype(np.uint8)
    observations = np.arange(count, dtype=np.float32)[:, None]
    following = observations + 0.5
    following[(terminated | truncated) == 0] = observations[then[(terminated | truncated) == 0]]
    following[terminated != 0] = observations[terminated != 0]
    rewards = chance.normal(size=count).astype(np.float32)
    return StoredTransitions(observations, following, np.arange(count), rewards, terminated, truncated, environment)


class Memory:
    """A memory and its ledger, with the given transitions in it."""

    def __init__(
        self,
        size: ReplaySize,
        given: StoredTransitions,
        normalized: dict[str, int] | None = None,
        weight: float = 1.0,
    ) -> None:
        layout = memory_layout(size, ((1,), "float32"), ((), "int64"))
        block = aligned_block(layout.bytes)
        block[:] = 0
        self.size = size
        self.ledger = allocate(ledger_layout(size.sources, normalized=normalized))
        for array in self.ledger.values():
            array[:] = 0
        spec = ObservationSpec((1,), "float32")
        self.memory = ReplayMemory(size, layout, block, spec, seed=1, alpha=0.6, least_steps=0)
        self.rows = GivenRows(given, size)
        self.memory.give(self.rows.rollouts(0.9), self.ledger, weight)

    @property
    def drawable(self) -> Any:
        return np.flatnonzero(self.memory.arrays["leaves"].reshape(-1))

    def saved(self) -> StoredTransitions:
        written = self.ledger["written"].tolist()
        spans = [range(max(0, end - self.size.saved), end) for end in written]
        return transitions_in_rings(self.memory.arrays, spans)


def listed(found: StoredTransitions) -> list[tuple[Any, ...]]:
    """The transitions without their order and without where a sequence was cut."""
    ends = np.where(found.terminated != 0, 0.0, found.next_observations[:, 0])
    return sorted(
        zip(found.actions.tolist(), found.rewards.tolist(), ends.tolist(), found.terminated.tolist(), strict=True)
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_every_transition_is_in_the_memory_once(shape: tuple[int, int], seed: int) -> None:
    given = drawn(31, 1 + seed, seed)
    memory = Memory(size_of(*shape), given)
    assert memory.ledger["counters"][Count.given] == 31
    assert memory.ledger["counters"][Count.env_steps] == 0
    assert len(memory.drawable) == 31
    assert listed(memory.saved()) == listed(given)
    batch = memory.memory.rows.gather(memory.drawable, n_step=1, discount=0.9)
    assert sorted(batch.actions.tolist()) == list(range(31))
    np.testing.assert_array_equal(batch.returns, given.rewards[batch.actions])
    live = batch.discounts > 0
    np.testing.assert_array_equal(live, given.terminated[batch.actions] == 0)
    np.testing.assert_array_equal(batch.next_observations[live], given.next_observations[batch.actions[live]])


@pytest.mark.parametrize("shape", SHAPES)
def test_returns_of_several_steps_end_where_their_sequence_does(shape: tuple[int, int]) -> None:
    given = drawn(40, 3, 2)
    memory = Memory(size_of(*shape, n_step=3), given)
    dealt = {int(row): column.tolist() for column in memory.rows.dealt for row in column if row >= 0}
    batch = memory.memory.rows.gather(memory.drawable, n_step=3, discount=0.5)
    assert len(batch.actions)
    for n, first in enumerate(batch.actions.tolist()):
        rows = dealt[first][dealt[first].index(first) :][:3]
        expected, factor, row = 0.0, 1.0, first
        for row in rows:
            expected, factor = expected + factor * float(given.rewards[row]), factor * 0.5
            if given.terminated[row] or given.truncated[row]:
                break
        assert batch.returns[n] == pytest.approx(expected)
        assert batch.discounts[n] == pytest.approx(0.0 if given.terminated[row] else factor)
        if not given.terminated[row]:
            assert batch.next_observations[n, 0] == given.next_observations[row, 0]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_memory_that_is_saved_and_given_again_is_the_same_rows(shape: tuple[int, int]) -> None:
    memory = Memory(size_of(*shape), drawn(37, 4, 3))
    first = memory.saved()
    again = Memory(size_of(*shape), first)
    assert same_bytes(vars(first), vars(again.saved()))
    assert same_bytes(memory.memory.arrays, again.memory.arrays)


def test_the_newest_that_fit_are_kept() -> None:
    memory = Memory(size_of(2, 2, kept=5), drawn(50, 2))
    assert memory.rows.count == 20
    assert sorted(memory.saved().actions.tolist()) == list(range(30, 50))


def test_fewer_transitions_than_columns() -> None:
    memory = Memory(size_of(2, 3), drawn(4, 1))
    assert memory.ledger["written"].tolist() == [1, 1]
    assert sorted(memory.saved().actions.tolist()) == [0, 1, 2, 3]


def test_a_given_transition_may_be_drawn_less_often_than_a_step_of_the_run() -> None:
    memory = Memory(size_of(1, 2), drawn(20, 2), weight=0.25).memory
    assert memory.first_leaf == 4 * memory.arrays["leaves"].max()


def test_pieces_give_the_same_bytes_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Memory(size_of(2, 3, n_step=2), drawn(41, 2))
    monkeypatch.setattr("hive.training.update.given_rows.PIECE_BYTES", 1)
    assert same_bytes(whole.memory.arrays, Memory(size_of(2, 3, n_step=2), drawn(41, 2)).memory.arrays)


def test_statistics_of_a_network_that_normalizes_count_them() -> None:
    given = drawn(20, 1)
    memory = Memory(size_of(1, 2), given, {"observed": 3, "rewarded": 3})
    count, mean = memory.ledger["observed"][:2]
    assert (count, mean) == (20, pytest.approx(given.observations.mean()))
    assert memory.ledger["rewarded"][0] == 20


def test_the_first_ledger_has_the_rows_of_the_file_and_again_the_same_bytes(tmp_path: Any) -> None:
    numbers = np.arange(30)
    file = tmp_path / "t.npz"
    np.savez(
        file,
        observations=np.full((30, 4), 0.5),
        next_observations=np.full((30, 4), 0.5),
        actions=numbers % 2,
        rewards=numbers,
        terminated=numbers % 10 == 9,
    )
    given = {"algorithm__replay_from": f'"{file}"', "algorithm__replay_capacity": 100, "run__scheme": '"dqn"'}
    blueprint = Blueprint(config_of("CartPole-v1", algorithm__learning_starts=0, **given))
    state = aligned_block(blueprint.state.bytes)
    state[:] = 0
    found = []
    for _ in range(2):
        block = aligned_block(blueprint.memory_layout.bytes)
        block[:] = 0
        memory, ledger = blueprint.replay.memory(block), allocate(blueprint.ledger_layout)
        for _ in range(2):  # a successor of a learner that was killed before the first ledger
            assert write_first_ledger(blueprint, memory, ledger, state) == 0
        assert ledger["counters"][Count.given] == 30
        found.append((memory.arrays, ledger))
    assert same_bytes(found[0][0], found[1][0])
    assert same_bytes(found[0][1], found[1][1])


def test_errors_come_before_any_process(tmp_path: Any) -> None:
    file = tmp_path / "t.npz"
    np.savez(file, observations=np.zeros((3, 2)), actions=np.zeros(3), rewards=np.zeros(3))
    given = {"run__scheme": '"dqn"', "algorithm__replay_from": f'"{file}"'}
    with pytest.raises(RecordError, match="`terminated` is missing; `next_observations` is missing"):
        Blueprint(config_of("CartPole-v1", **given))
    with pytest.raises(TopologyError, match=r"bc learns from given transitions, and algorithm.replay_from is not set"):
        build(config_of("CartPole-v1", run__scheme='"bc"'), tmp_path)
