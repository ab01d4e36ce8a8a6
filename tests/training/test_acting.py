"""What acts: for all rows or for some, with what it remembers of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hive.envs import ObservationSpec
from hive.envs.agents.lone import LoneSeat, LoneTable
from hive.envs.agents.seats import EndedEpisode
from hive.networks import Categorical
from hive.networks.act.exploration import EpsilonGreedy
from hive.policy.acting import Acting
from hive.training.evaluate.play import Play

SEEN = ObservationSpec((2,), "float32")


class Sums(torch.nn.Module):
    """Remembers the sum of what it has seen, which is its output. calls: the rows of each call."""

    state_width = 2

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def forward(self, inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.append(len(inputs["observation"]))
        after = inputs["recurrent_state"] + inputs["observation"]
        return after, after


def rows_of(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def test_rows_that_do_not_act_keep_what_they_remember() -> None:
    network = Sums()
    acting = Acting(network, SEEN, Categorical(2))
    acting.begin(3)
    ones = np.ones((3, 2), np.float32)
    with torch.inference_mode():
        acting.outputs(ones)
        some = acting.outputs(ones, rows_of(0, 2))
        acting.forget(rows_of(2))
        last = acting.outputs(ones)
    assert some.tolist() == [[2, 2], [2, 2]]
    assert last.tolist() == [[3, 3], [2, 2], [1, 1]]
    assert network.calls == [3, 2, 3]  # only rows whose turn it is are computed


def test_frames_before_an_episode_are_zeros_and_other_rows_keep_theirs() -> None:
    acting = Acting(torch.nn.Identity(), ObservationSpec((1,), "float32", stack=2), Categorical(2))
    acting.begin(2)
    acting.see(np.array([[1], [2]], np.float32))
    acting.forget(np.array([False, True]))
    acting.see(np.array([[3], [4]], np.float32), rows_of(1))
    assert acting.frames is not None
    assert acting.frames[..., 0].tolist() == [[0, 1], [0, 4]]


def test_what_it_remembers_can_be_recalled() -> None:
    first, second = (Acting(Sums(), ObservationSpec((2,), "float32", stack=3), Categorical(2)) for _ in "12")
    for acting in (first, second):
        acting.begin(1)
    first.see(np.ones((1, 2), np.float32))
    assert [one.shape for one in first.remembered] == [(1, 2, 2), (1, 2)]
    second.recall(first.remembered)
    assert all(np.array_equal(*pair) for pair in zip(first.remembered, second.remembered, strict=True))


def test_exploration_by_row_holds_for_the_rows_that_act() -> None:
    """Row 1 always takes the best action, row 0 a drawn one: also where row 1 acts alone."""
    distribution = EpsilonGreedy(2, 0.5, 0.5, powers=(0.0, 60.0))
    network = torch.nn.Module()
    network.forward = lambda inputs: (torch.tensor([[0.0, 1.0]]).expand(len(inputs), 2),)  # type: ignore[assignment]
    acting = Acting(network, SEEN, distribution)
    acting.begin(2)
    noise = np.random.default_rng(0)
    with torch.inference_mode():
        chosen = [int(acting.actions(np.zeros((2, 2), np.float32), rows_of(1), noise)[0]) for _ in range(20)]
    assert chosen == [1] * 20


def test_a_play_without_a_reset_is_refused() -> None:
    class Nothing:
        count = 1

    play = Play(LoneTable(Nothing(), SEEN), [Acting(Sums(), SEEN, Categorical(2))], seed=1, episodes=1)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="no play has begun"):
        play.step()


class InTurns:
    """A game of two seats in turn, of which each ends after its own turn. early: episodes that end at a reset."""

    count, runs_python = 1, False

    def __init__(self, early: int = 0) -> None:
        self.seats = (LoneSeat(1, SEEN, ()), LoneSeat(1, SEEN, ()))
        self.ended: list[EndedEpisode] = []
        self.early, self.turn, self.cuts = early, 0, 0
        self.steps = np.zeros(1, np.int64)

    def reset(self, seeds: Any, observations: Any) -> None:
        self.ended += [EndedEpisode(0, {"a": 1.0}, 1, False, {})] * self.early

    def turns(self, seat: int) -> Any:
        return rows_of(*([0] if seat == self.turn else []))

    def step(self, actions: Any, rows: Any) -> None:
        for row in rows:
            row.valid[:] = 1
        self.turn = 1 - self.turn
        self.steps += 1
        if not self.turn:
            self.ended.append(EndedEpisode(0, {"a": 0.0}, 2, False, {}))

    def seed_processes(self, seed: int) -> None: ...

    def play(self, episodes: Any) -> None: ...

    def cut(self, number: int) -> None:
        self.cuts += 1
        self.ended.append(EndedEpisode(0, {"a": 0.5}, 1, True, {}))


class Counting(Sums):
    """Refuses to compute no rows, as layers may."""

    def forward(self, inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        assert len(inputs["observation"])
        return super().forward(inputs)


def played(table: InTurns, episodes: int, **options: Any) -> list[EndedEpisode]:
    players = [Acting(Counting(), SEEN, Categorical(2)) for _ in "ab"]
    play = Play(table, players, seed=1, episodes=episodes, **options)  # type: ignore[arg-type]
    play.begin(0)
    found = []
    for _ in range(100):
        found += play.step()
        if play.over:
            return found
    raise AssertionError("the play does not end")


def test_a_policy_without_a_turn_is_not_asked() -> None:
    assert [one.returns["a"] for one in played(InTurns(), 2)] == [0.0, 0.0]


def test_episodes_that_end_before_anyone_acts_count_up_to_the_quota() -> None:
    assert [one.returns["a"] for one in played(InTurns(early=3), 2)] == [1.0, 1.0]


def test_an_environment_is_cut_once_and_then_waits() -> None:
    table = InTurns()
    assert [one.cut for one in played(table, 1, max_steps=1)] == [True]
    assert table.cuts == 1
