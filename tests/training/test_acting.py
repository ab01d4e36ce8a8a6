"""What acts: for all rows or for some, with what it remembers of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hive.envs import ObservationSpec
from hive.envs.agents.lone import LoneTable
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
