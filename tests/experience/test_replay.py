"""Batches of a replay memory against a list of the steps themselves, for any ends, seams, wraps and write cursors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hive.experience import BEGINS, FINALS, LENGTH, Replay, Rollout, replay_layout, rollout_layout
from hive.networks import aligned_block
from hive.networks.rows.normalization import LIMIT, Normalizer, Scales, clipped_rewards

ENVS, STEPS = 2, 3
OBSERVATION = ((2,), "float32")
NEVER = -1.0  # an observation that must never be seen


@dataclass
class Step:
    """One step of one environment, as it was made. `before`: its observation and those before it in the episode."""

    before: list[float]
    action: int
    reward: float
    terminated: bool
    truncated: bool
    after: float  # the observation that followed, the true one also where the episode ended


@dataclass
class History:
    """The test remembers the rows of each environment, with None for a row without a step."""

    rows: list[list[Step | None]] = field(default_factory=lambda: [[] for _ in range(ENVS)])
    written: int = 0


class Worlds:
    """Environments whose observations are all different numbers; `ends` decides how their steps end."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.count = 0.0
        self.episodes: list[list[float]] = [[] for _ in range(ENVS)]
        self.begins = True

    def new(self) -> float:
        self.count += 1.0
        return self.count

    def rollout(self, history: History, length: int) -> Rollout:
        """Make a rollout, and note its steps in the history."""
        layout = rollout_layout(STEPS, ENVS, OBSERVATION, ((), "int64"), STEPS * ENVS)
        arrays = layout.views(aligned_block(layout.bytes))
        for array in arrays.values():
            array[...] = NEVER if array.dtype.kind == "f" else 0
        arrays["final_index"][:] = -1
        arrays["header"][LENGTH], arrays["header"][BEGINS] = length, self.begins
        if self.begins:
            if history.written:
                for rows in history.rows:
                    rows.append(None)
                history.written += 1
            self.episodes = [[self.new()] for _ in range(ENVS)]
            self.begins = False
        for b, episode in enumerate(self.episodes):
            arrays["observations"][0, b] = episode[-1]
        for t in range(length):
            for b in range(ENVS):
                self._step(arrays, t, b, history)
        history.written += length
        return Rollout(arrays)

    def _step(self, arrays: Any, t: int, b: int, history: History) -> None:
        kind = self.generator.choice(["on", "on", "on", "terminated", "truncated", "invalid"])
        episode, action, reward = self.episodes[b], int(self.generator.integers(9)), float(self.generator.normal())
        if kind == "invalid":  # a step that only reset its environment
            self.episodes[b] = [self.new()]
            history.rows[b].append(None)
        else:
            after = self.new()
            reward = float(np.float32(reward))
            history.rows[b].append(
                Step(list(episode), action, reward, kind == "terminated", kind == "truncated", after)
            )
            arrays["actions"][t, b], arrays["rewards"][t, b], arrays["valid"][t, b] = action, reward, 1
            if kind == "on":
                episode.append(after)
            else:
                arrays[kind][t, b] = 1
                self.episodes[b] = [self.new()]
            if kind == "truncated":
                index = int(arrays["header"][FINALS])
                arrays["final_index"][t, b], arrays["final_observations"][index] = index, after
                arrays["header"][FINALS] += 1
        arrays["observations"][t + 1, b] = self.episodes[b][-1]


def expected(rows: list[Step | None], row: int, n_step: int, discount: float, stack: int) -> tuple[Any, ...]:
    """The transition that begins in a row, from the steps as they were made."""
    first = rows[row]
    assert first is not None
    total, factor = 0.0, 1.0
    for number in range(row, row + n_step):
        step = rows[number]
        assert step is not None
        total += factor * step.reward
        factor *= discount
        following = rows[number + 1] if number + 1 < len(rows) else None
        if step.terminated:
            return stacked(first.before, stack), first.action, total, 0.0, None
        if step.truncated or following is None:
            break
    return stacked(first.before, stack), first.action, total, factor, stacked([*step.before, step.after], stack)


def stacked(observations: list[float], stack: int) -> list[float]:
    return ([0.0] * stack + observations)[-stack:]


def memory(rows: int, stack: int = 1, sources: int = 1) -> Replay:
    layout = replay_layout(sources, rows, ENVS, OBSERVATION, ((), "int64"))
    return Replay(layout.views(aligned_block(layout.bytes)), stack=stack)


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(STEPS + 2, 24),
    n_step=st.integers(1, 4),
    stack=st.integers(1, 4),
    rollouts=st.lists(st.tuples(st.integers(1, STEPS), st.booleans()), min_size=1, max_size=14),
)
def test_every_row_gives_the_steps_that_were_made(
    seed: int, rows: int, n_step: int, stack: int, rollouts: list[tuple[int, bool]]
) -> None:
    worlds, history, replay, written = Worlds(seed), History(), memory(rows, stack), 0
    for length, restarts in rollouts:
        worlds.begins |= restarts
        written = replay.append(0, written, worlds.rollout(history, length))
    assert written == history.written
    assert not replay.arrays["valid"][0, written % rows].any()  # no step was made there yet
    oldest = max(0, written + 1 - rows) + stack - 1 if written + 1 > rows else 0
    for row in range(oldest, written - n_step + 1):
        positions = replay.positions_of(0, row, row + 1)
        steps = [history.rows[b][row] for b in range(ENVS)]
        valid = replay.arrays["valid"].ravel()[positions]
        assert valid.tolist() == [step is not None for step in steps]
        batch = replay.gather(positions[valid > 0], n_step=n_step, discount=0.9)
        known = [b for b in range(ENVS) if steps[b] is not None]
        for index, b in enumerate(known):
            observations, action, total, factor, following = expected(history.rows[b], row, n_step, 0.9, stack)
            shape = (stack, 2) if stack > 1 else (2,)
            assert batch.observations[index].shape == shape
            assert batch.observations[index].reshape(stack, 2)[:, 0].tolist() == observations
            assert int(batch.actions[index]) == action
            assert batch.returns[index] == pytest.approx(total, abs=1e-5)
            assert batch.discounts[index] == pytest.approx(factor, rel=1e-6)
            if following is not None:
                assert batch.next_observations[index].reshape(stack, 2)[:, 0].tolist() == following


def filled(replay: Replay, source: int, seed: int, count: int) -> tuple[History, int]:
    worlds, history, written = Worlds(seed), History(), 0
    for _ in range(count):
        written = replay.append(source, written, worlds.rollout(history, STEPS))
    return history, written


def test_sources_do_not_mix() -> None:
    replay = memory(12, sources=2)
    histories = [filled(replay, source, source + 1, 3)[0] for source in range(2)]
    for source, history in enumerate(histories):
        for row in range(9):
            taken = replay.arrays["actions"][source, row]
            steps = [rows[row] for rows in history.rows]
            assert [a for a, step in zip(taken, steps, strict=True) if step] == [s.action for s in steps if s]


def test_dtypes_are_kept() -> None:
    layout = replay_layout(1, 8, 1, ((3, 2), "uint8"), ((2,), "float32"))
    replay = Replay(layout.views(aligned_block(layout.bytes)), stack=2)
    batch = replay.gather(np.array([0, 5]), n_step=1, discount=0.5)
    assert (batch.observations.shape, batch.observations.dtype) == ((2, 2, 3, 2), np.uint8)
    assert (batch.actions.shape, batch.actions.dtype) == ((2, 2), np.float32)
    empty = replay.gather(np.zeros(0, np.int64), n_step=1, discount=0.5)
    assert (len(empty.returns), empty.next_observations.shape) == (0, (0, 2, 3, 2))


def test_the_memory_of_finals_is_not_touched_without_truncations() -> None:
    replay = memory(8)
    replay.arrays["finals"][...] = 7.0
    worlds = Worlds(1)
    worlds.generator = _OnlyOn()
    replay.append(0, 0, worlds.rollout(History(), STEPS))
    assert (replay.arrays["finals"] == 7.0).all()


class _OnlyOn:
    """A generator with which no episode ends."""

    def choice(self, kinds: list[str]) -> str:
        return "on"

    def integers(self, most: int) -> int:
        return 0

    def normal(self) -> float:
        return 0.0


@pytest.mark.parametrize("position", [-1, 16])
def test_positions_outside_are_refused(position: int) -> None:
    with pytest.raises(IndexError, match=f"position {position} is outside of the 16 rows"):
        memory(8).gather(np.array([position]), n_step=1, discount=0.9)


def test_steps_must_be_positive() -> None:
    with pytest.raises(ValueError, match="n_step must be at least 1"):
        memory(8).gather(np.array([0]), n_step=0, discount=0.9)


@pytest.mark.parametrize(("envs", "rows"), [(3, 8), (ENVS, STEPS + 1)])
def test_rollouts_that_do_not_fit_are_refused(envs: int, rows: int) -> None:
    layout = rollout_layout(STEPS, envs, OBSERVATION, ((), "int64"), 2)
    arrays: dict[str, NDArray[Any]] = layout.views(aligned_block(layout.bytes))
    arrays["header"][LENGTH] = STEPS
    with pytest.raises(ValueError, match="does not fit"):
        memory(rows).append(0, 0, Rollout(arrays))


def test_a_batch_is_normalised_as_torch_does_it() -> None:
    """Bit-equal, also the zeros before an episode. A reward is clipped before it is added to those of other steps."""
    replay, normal = memory(24, stack=3), Normalizer([2])
    filled(replay, 0, 3, 4)
    normal.shift[:], normal.scale[:] = torch.tensor([3.0, -1.0]), torch.tensor([0.7, 4.0])
    scales = Scales(normal.shift.numpy(), normal.scale.numpy(), reward=9.0)
    positions = np.flatnonzero(replay.arrays["valid"][0, :9])
    raw = replay.gather(positions, n_step=3, discount=0.5)
    found = replay.gather(positions, n_step=3, discount=0.5, scales=scales)
    for name in ("observations", "next_observations"):
        assert getattr(found, name).tobytes() == normal(torch.from_numpy(getattr(raw, name))).numpy().tobytes()
    replay.arrays["rewards"][:] = clipped_rewards(replay.arrays["rewards"], np.float32(9.0))
    assert np.abs(replay.arrays["rewards"]).max() == LIMIT
    assert found.returns.tobytes() == replay.gather(positions, n_step=3, discount=0.5).returns.tobytes()
    assert (found.discounts == raw.discounts).all()
