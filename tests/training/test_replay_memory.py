"""The replay memory against a list of all rows: which can be drawn, what a repeated step changes, and ring margins."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_trainer import allocate

from hive.envs import ObservationSpec
from hive.experience import (
    BEGINS,
    FINALS,
    LENGTH,
    SEQUENCE,
    SOURCE,
    PriorityTree,
    Replay,
    Rollout,
    importance_weights,
    priority_leaves,
    rollout_layout,
)
from hive.networks import aligned_block
from hive.runtime import Layout
from hive.training.replay_floor import clear_floor, read_floor, write_floor
from hive.training.update.learner import Count
from hive.training.update.replay_memory import (
    DrawnRows,
    ReplayMemory,
    ReplaySize,
    ledger_layout,
    memory_layout,
    plan_layout,
)

OBSERVATION, ACTION = ((1,), "float32"), ((), "int64")
SEEN = ObservationSpec(*OBSERVATION)
ENVS, STEPS = 2, 3
SIZE = ReplaySize(sources=2, envs=ENVS, steps=STEPS, kept=7, rounds_ahead=2, stack=1, n_step=2, workers=2, batch=4)


class Collectors:
    """Make rollouts of random lengths and ends. Each observation is a number of its own.

    valid: of each collector, whether each of its rows holds a step, bool [rows, B].
    """

    def __init__(self, size: ReplaySize, seed: int, ends: bool = True) -> None:
        self.size = size
        self.layout = rollout_layout(size.steps, size.envs, OBSERVATION, ACTION, size.steps * size.envs, errors=True)
        self.chance = np.random.default_rng(seed)
        self.ends = ends
        self.seen = 0.0
        self.sequence = 0
        self.last = np.zeros((size.sources, size.envs, 1), np.float32)
        self.valid: list[list[list[bool]]] = [[] for _ in range(size.sources)]

    def round(self, lengths: list[int], begins: list[bool]) -> list[Rollout]:
        made = [self._rollout(source, *each) for source, each in enumerate(zip(lengths, begins, strict=True))]
        self.sequence += 1
        return made

    def whole_round(self, begins: bool = False) -> list[Rollout]:
        return self.round([self.size.steps] * self.size.sources, [begins] * self.size.sources)

    def _rollout(self, source: int, length: int, begins: bool) -> Rollout:
        arrays, envs = allocate(self.layout), self.size.envs
        header, rows = arrays["header"], self.valid[source]
        header[:] = 0
        header[LENGTH], header[SOURCE], header[SEQUENCE], header[BEGINS] = length, source, self.sequence, begins
        if begins:
            self.last[source] = self._new()
            if rows:
                rows.append([False] * envs)
        arrays["observations"][0] = self.last[source]
        arrays["actions"][:] = self.sequence
        arrays["rewards"][:] = self.chance.normal(size=arrays["rewards"].shape)
        arrays["final_index"][:] = -1
        for name in ("terminated", "truncated", "episode_returns", "episode_lengths"):
            arrays[name][:] = 0
        for t in range(length):
            kinds = self.chance.integers(8 if self.ends else 1, size=envs)
            for name, number in (("terminated", 5), ("truncated", 6)):
                arrays[name][t] = kinds == number
            arrays["valid"][t] = kinds != 7
            arrays["episode_lengths"][t] = np.isin(kinds, (5, 6))
            for env in np.flatnonzero(kinds == 6):
                arrays["final_index"][t, env] = header[FINALS]
                arrays["final_observations"][header[FINALS]] = self._new()[0]
                header[FINALS] += 1
            arrays["observations"][t + 1] = self._new()
            rows.append((kinds != 7).tolist())
        self.last[source] = arrays["observations"][length]
        known = (arrays["valid"] > 0) & (self.chance.random(arrays["errors"].shape) < 0.5)
        arrays["errors"][:] = np.where(known, np.abs(self.chance.normal(size=known.shape)), np.nan)
        return Rollout(arrays)

    def _new(self) -> NDArray[np.float32]:
        self.seen += self.size.envs
        return np.arange(self.seen, self.seen + self.size.envs, dtype=np.float32)[:, None]


class Learner:
    """Does with a memory what the learner of a run does, and can be followed by a successor on the same bytes."""

    def __init__(self, size: ReplaySize, alpha: float = 0.6) -> None:
        self.size, self.alpha = size, alpha
        self.layout = memory_layout(size, OBSERVATION, ACTION)
        self.plans, ledgers = plan_layout(size), ledger_layout(size.sources)
        self.block = aligned_block(self.layout.bytes)
        self.block[:] = 0
        self.before, self.after = (ledgers.views(np.zeros(ledgers.bytes, np.uint8)) for _ in range(2))
        self.succeed()

    def succeed(self) -> ReplayMemory:
        self.memory = ReplayMemory(self.size, self.layout, self.block, SEEN, seed=3, alpha=self.alpha, least_steps=1)
        return self.memory

    def admit(self, rollouts: list[Rollout], largest: int) -> None:
        self.memory.admit(rollouts, self.before, self.after, largest)

    def commit(self) -> None:
        self.before, self.after = self.after, self.before

    def draw(self, number: int) -> dict[str, NDArray[Any]]:
        plan = allocate(self.plans)
        self.memory.draw(number, self.before, plan)
        return dict(plan)


class Killed(BaseException):
    """The learner was killed."""


def cut_short(memory: ReplayMemory, calls: int, step: Callable[[], object]) -> bool:
    """Do a step that is killed before change number `calls` of the memory. Return whether it was."""
    left = calls

    def killed(change: Callable[..., object]) -> Callable[..., object]:
        def changed(*args: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return change(*args)

        return changed

    for owner, name in ((memory.tree, "fill"), (memory.tree, "write"), (memory.rows, "_put")):
        setattr(owner, name, killed(getattr(owner, name)))
    try:
        step()
    except Killed:
        return True
    return False


def drawable(size: ReplaySize, collectors: Collectors, leaf_of: dict[tuple[int, int, int], int]) -> NDArray[np.uint32]:
    """Return the leaves that a memory must have, uint32 [S, R, B], from the list of all rows."""
    leaves = np.zeros((size.sources, size.rows, size.envs), np.uint32)
    for source, rows in enumerate(collectors.valid):
        complete = len(rows) - size.n_step + 1  # the rows whose n following rows are written
        for row in range(max(0, complete - size.kept), max(0, complete)):
            for env, valid in enumerate(rows[row]):
                if valid:
                    leaves[source, row % size.rows, env] = leaf_of[source, row, env]
    return leaves


ROUND = st.tuples(
    st.lists(st.integers(1, STEPS), min_size=2, max_size=2),
    st.lists(st.sampled_from([False, False, True]), min_size=2, max_size=2),
    st.integers(0, 12),  # changes until the learner is killed while it admits the round
    st.integers(0, 3),  # and while it learns
)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    kept=st.integers(1, 9),
    n_step=st.integers(1, 4),
    stack=st.integers(1, 3),
    alpha=st.sampled_from([0.0, 0.6]),
    lag=st.integers(0, 2),
    rounds=st.lists(ROUND, min_size=1, max_size=9),
)
def test_exactly_the_live_rows_can_be_drawn_also_after_kills(
    seed: int, kept: int, n_step: int, stack: int, alpha: float, lag: int, rounds: list[Any]
) -> None:
    size = dataclasses.replace(SIZE, kept=kept, n_step=n_step, stack=stack)
    collectors, killed, undisturbed = Collectors(size, seed), Learner(size, alpha), Learner(size, alpha)
    leaf_of: dict[tuple[int, int, int], int] = {}
    largest, admitted, plans = killed.memory.first_leaf, [0, 0], list[dict[str, NDArray[Any]]]()
    for number, (lengths, begins, in_admit, in_learn) in enumerate(rounds):
        rollouts = collectors.round(lengths, begins)
        cut_short(killed.memory, in_admit, lambda: killed.admit(rollouts, largest))  # noqa: B023
        killed.succeed()
        for learner in (killed, undisturbed):
            learner.admit(rollouts, largest)
            learner.commit()
        for source, rows in enumerate(collectors.valid):
            complete = max(0, len(rows) - n_step + 1)
            new = ((source, row, env) for row in range(admitted[source], complete) for env in range(ENVS))
            leaf_of.update(dict.fromkeys(new, largest))
            admitted[source] = complete
            if alpha:
                prioritize_slowly(leaf_of, rollouts[source], len(rows), complete)
        leaves = killed.memory.arrays["leaves"]
        assert np.array_equal(leaves, drawable(size, collectors, leaf_of))
        assert killed.before["written"].tolist() == [len(rows) for rows in collectors.valid]
        assert killed.before["rollouts"].tolist() == [number + 1] * 2
        steps = sum(sum(row) for rows in collectors.valid for row in rows)
        assert killed.before["counters"][[Count.rollouts, Count.env_steps]].tolist() == [2 * (number + 1), steps]

        plan = killed.draw(number)
        assert all(np.array_equal(plan[name], other) for name, other in undisturbed.draw(number).items())
        drawn, least = plan["header"].tolist()
        assert drawn == (size.batch if leaves.any() else 0)
        positions = plan["positions"][:, :drawn]
        assert (leaves.reshape(-1)[positions] == plan["leaves"][:, :drawn]).all()
        assert (plan["leaves"][:, :drawn] > 0).all()
        assert least == (plan["leaves"].min() if drawn else 0)

        plans.append(plan)
        if len(plans) > lag:
            plan = plans.pop(0)  # some of its rows may be evicted by now
            errors = np.abs(collectors.chance.normal(size=(size.workers, size.batch))).astype(np.float32)
            errors[0, 0] = np.nan
            each = list(errors)
            cut_short(killed.memory, in_learn, lambda: killed.memory.learn(plan, each))  # noqa: B023
            killed.succeed()
            found = [learner.memory.learn(plan, each) for learner in (killed, undisturbed)]
            assert found[0] == found[1]
            largest = max(largest, found[0][0])
            if alpha:
                learn_slowly(size, collectors, leaf_of, plan["positions"][:, : plan["header"][0]], errors)
        assert np.array_equal(leaves, drawable(size, collectors, leaf_of))
        assert killed.block.tobytes() == undisturbed.block.tobytes()
        grown = undisturbed.memory.tree
        assert grown.sums.tobytes() == PriorityTree(grown.leaves.copy()).sums.tobytes()


def test_several_rollouts_of_a_collector_may_be_admitted_at_once() -> None:
    learners, collectors = [Learner(SIZE), Learner(SIZE)], Collectors(SIZE, 4)
    for _ in range(6):
        rounds = [collectors.whole_round(), collectors.whole_round(begins=True)]
        for rollouts in rounds:
            learners[0].admit(rollouts, 7)
            learners[0].commit()
        learners[1].admit([*rounds[0], *rounds[1]], 7)
        learners[1].commit()
        for name, array in learners[0].before.items():
            assert np.array_equal(array, learners[1].before[name]), name
        assert learners[0].block.tobytes() == learners[1].block.tobytes()


@pytest.mark.parametrize("changes", range(0, 24, 3))  # the last ones before the ledger is published
def test_rollouts_that_a_killed_learner_had_half_admitted_are_not_drawn(changes: int) -> None:
    """With asynchronous collectors its successor may begin with another of them."""
    learner, collectors = Learner(SIZE), Collectors(SIZE, 6)
    for _ in range(5):
        learner.admit(collectors.whole_round(), 7)
        learner.commit()
    before, rollouts = learner.memory.arrays["leaves"].copy(), collectors.whole_round()
    cut_short(learner.memory, changes, lambda: learner.admit(rollouts, 7))
    learner.succeed().forget_unfinished(learner.before)
    leaves = learner.memory.arrays["leaves"]
    assert not leaves[before == 0].any()
    learner.memory.admit(rollouts[1:], learner.before, learner.after, 7)
    whole = Learner(SIZE)
    collectors = Collectors(SIZE, 6)
    for _ in range(5):
        whole.admit(collectors.whole_round(), 7)
        whole.commit()
    whole.admit(collectors.whole_round()[1:], 7)
    assert np.array_equal(leaves[1], whole.memory.arrays["leaves"][1])
    assert learner.memory.tree.sums.tobytes() == PriorityTree(leaves.reshape(-1).copy()).sums.tobytes()


def learn_slowly(
    size: ReplaySize,
    collectors: Collectors,
    leaf_of: dict[tuple[int, int, int], int],
    positions: NDArray[np.int64],
    errors: NDArray[np.float32],
) -> None:
    """Set the leaves of drawn rows in the order of workers, one by one."""
    for worker, own in enumerate(positions):
        for position, error in zip(own.tolist(), errors[worker], strict=False):
            source, rest = divmod(position, size.rows * size.envs)
            at, env = divmod(rest, size.envs)
            newest = len(collectors.valid[source]) - 1
            row = newest - (newest - at) % size.rows
            if np.isfinite(error):
                leaf_of[source, row, env] = leaf_by(error)


def prioritize_slowly(leaf_of: dict[tuple[int, int, int], int], rollout: Rollout, written: int, complete: int) -> None:
    """Set the leaves of the steps of a new rollout whose errors are known, if the rows after them are written."""
    errors = rollout.errors
    assert errors is not None
    for (t, env), error in np.ndenumerate(errors):
        row = written - rollout.length + t
        if row < complete and np.isfinite(error):
            leaf_of[rollout.source, row, env] = leaf_by(error)


def leaf_by(error: np.float32) -> int:
    return int(priority_leaves(np.array([error + np.float32(1e-6)], np.float32), 0.6)[0][0])


# --- how long the rows of a plan stay


class SmallerRing(ReplaySize):
    """A ring with room for one round less than may be appended, without the spare round."""

    @property
    def rows(self) -> int:
        return super().rows - (self.steps + 1) - 3


@pytest.mark.parametrize("kind", [ReplaySize, SmallerRing])
@pytest.mark.parametrize(("n_step", "stack"), [(1, 1), (3, 1), (1, 4), (3, 2)])
def test_the_rows_of_a_plan_are_not_overwritten_while_it_is_in_use(
    kind: type[ReplaySize], n_step: int, stack: int
) -> None:
    size = kind(**{**dataclasses.asdict(SIZE), "n_step": n_step, "stack": stack})
    collectors, learner, same = Collectors(size, 1, ends=False), Learner(size), []
    for _ in range(2 * size.rows // STEPS):
        learner.admit(collectors.whole_round(), 5)
        learner.commit()
        drawn = np.flatnonzero(learner.memory.tree.leaves)
        block, before = learner.block.copy(), {name: array.copy() for name, array in learner.before.items()}
        first = gathered(learner.memory.rows, drawn, n_step)
        ahead = Collectors(size, 2)
        for _ in range(size.rounds_ahead):  # each with a seam, the longest that a round can be
            learner.admit(ahead.whole_round(begins=True), 5)
            learner.commit()
        same.append(gathered(learner.memory.rows, drawn, n_step) == first)
        learner.block[:] = block
        for name, array in learner.before.items():
            array[:] = before[name]
        learner.succeed()
    assert all(same) is (kind is ReplaySize)


def gathered(rows: Replay, positions: NDArray[np.int64], n_step: int) -> list[bytes]:
    batch = vars(rows.gather(positions, n_step=n_step, discount=0.9))
    return [array.tobytes() for array in batch.values()]


# --- plans


def test_nothing_is_drawn_before_enough_steps_are_held() -> None:
    learner = Learner(dataclasses.replace(SIZE, n_step=1), alpha=0.0)
    learner.memory.least_steps = 2 * ENVS * STEPS + 1
    collectors = Collectors(SIZE, 1, ends=False)
    for number, drawn in enumerate([0, SIZE.batch]):
        learner.admit(collectors.whole_round(), 0)
        learner.commit()
        assert learner.draw(number)["header"][0] == drawn
    assert DrawnRows.of(learner.draw(2), 0, 0.4).importance.tolist() == [1.0] * SIZE.batch


def test_a_memory_that_cannot_hold_learning_starts_is_drawn_from_once_it_is_full() -> None:
    layout: Layout = memory_layout(SIZE, OBSERVATION, ACTION)
    memory = ReplayMemory(SIZE, layout, aligned_block(layout.bytes), SEEN, seed=1, alpha=0.0, least_steps=10_000)
    assert memory.least_steps == SIZE.sources * SIZE.kept * SIZE.envs


def test_the_importance_of_each_worker_is_relative_to_the_least_of_all() -> None:
    learner = Learner(SIZE)
    plan = allocate(plan_layout(SIZE))
    plan["header"][:] = 2, 100
    plan["leaves"][:, :2] = [[100, 400], [200, 800]]
    plan["positions"][:, :2] = [[1, 2], [3, 4]]
    for worker, leaves in enumerate(([100, 400], [200, 800])):
        drawn = DrawnRows.of(plan, worker, 0.5)
        assert drawn.positions.tolist() == [[1, 2], [3, 4]][worker]
        assert drawn.importance.tolist() == importance_weights(np.array(leaves, np.uint32), 0.5, 100).tolist()
    plan["header"][:] = 0
    assert len(DrawnRows.of(plan, 0, 0.5).positions) == 0
    assert learner.memory.learn(plan, [np.ones(4, np.float32)] * 2) == (0, 0)


def test_workers_draw_different_rows() -> None:
    learner = Learner(dataclasses.replace(SIZE, kept=50))
    collectors = Collectors(learner.size, 1)
    for _ in range(12):
        learner.admit(collectors.whole_round(), 0)
        learner.commit()
    one, other = learner.draw(0), learner.draw(1)
    assert one["positions"][0].tolist() != one["positions"][1].tolist()
    assert one["positions"].tolist() != other["positions"].tolist()
    assert one["positions"].tolist() == learner.draw(0)["positions"].tolist()


def test_held_leaves_stay_as_they_were() -> None:
    learner = Learner(SIZE)
    collectors = Collectors(SIZE, 1)
    learner.admit(collectors.whole_round(), 0)
    learner.memory.hold_leaves()
    held = learner.memory.arrays["leaves"].copy()
    learner.commit()
    learner.admit(collectors.whole_round(), 0)
    assert np.array_equal(learner.memory.arrays["held_leaves"], held)
    assert not np.array_equal(learner.memory.arrays["leaves"], held)


@pytest.mark.parametrize("infos", [0, 2])
def test_a_ledger_has_the_fields_of_the_module(infos: int) -> None:
    fields = ledger_layout(3, infos).fields
    assert {"counters", "written", "rollouts", "returns"} | ({"infos"} if infos else set()) == set(fields)
    assert fields["written"][1] == fields["rollouts"][1] == (3,)


def test_each_rollout_is_in_the_statistics_once_also_if_it_is_admitted_again() -> None:
    """A step whose observation is not finite would make them useless for ever: its rollout is left out."""
    learner, collectors = Learner(SIZE), Collectors(SIZE, 5)
    learner.before, learner.after = (allocate(ledger_layout(SIZE.sources, 0, {"observed": 3})) for _ in range(2))
    for array in learner.before.values():
        array[:] = 0
    rounds = [collectors.whole_round() for _ in range(3)]
    rounds[1][0].observations[1] = np.nan
    for rollouts in rounds:
        learner.admit(rollouts, 0)
        learner.succeed()
        learner.admit(rollouts, 0)
        learner.commit()
    counted = [one for rollouts in rounds for one in rollouts if np.isfinite(one.observations[:-1]).all()]
    seen = np.concatenate([one.observations[:-1][one.valid != 0] for one in counted]).astype(np.float64)
    assert len(counted) < 6
    assert learner.before["observed"] == pytest.approx([len(seen), seen.mean(), ((seen - seen.mean()) ** 2).sum()])


class Interrupted:
    """Words of which another process sees a few: it looks after each assignment to them, or writes before each look."""

    def __init__(self, words: np.ndarray[Any, Any], other: Callable[[], object]) -> None:
        self.words, self.other = words, other

    def __setitem__(self, key: Any, value: Any) -> None:
        self.words[key] = value
        self.other()

    def __getitem__(self, key: Any) -> Any:
        self.other()
        return self.words[key]


def test_the_floor_of_a_checkpoint_is_never_that_of_another_one() -> None:
    words, seen = np.zeros(3, np.int64), list[Any]()
    write_floor(words, 7, [500, 600])  # all of the checkpoint before was written
    write_floor(cast(Any, Interrupted(words, lambda: seen.append(read_floor(words, 8)))), 8, [100, 200])
    assert seen == [None, [100, 200]]
    steps = iter([lambda: None, lambda: write_floor(words, 9, [300, 400]), lambda: None])
    assert read_floor(cast(Any, Interrupted(words, lambda: next(steps)())), 8) is None
    clear_floor(words)
    assert read_floor(words, 9) is None, "the attempt failed, and the next one has the same ledger"
