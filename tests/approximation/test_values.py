"""Values of states and actions: shapes, masks, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.approximation import FeatureNetwork, FixedTarget, PolyakTarget, QContinuous, QNetwork, VNetwork
from hive.errors import NetworkError

MASK = torch.tensor([1.0, 0.0, 1.0])
STATES = {"observation": torch.arange(6.0).reshape(3, 2) + 1, "mask": MASK}


class Sum(nn.Module):
    """The sum of a row, as [N] or, with `columns`, as that many columns, each greater by 1."""

    def __init__(self, columns: int = 0) -> None:
        super().__init__()
        self.columns = columns
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, rows: Tensor) -> Tensor:
        sums = self.scale * rows.flatten(1).sum(1)
        return sums.unsqueeze(1) + torch.arange(self.columns) if self.columns else sums


@pytest.mark.parametrize("columns", [0, 1])
def test_v_is_one_number_for_each_state_and_0_at_the_end(columns: int) -> None:
    v = VNetwork(Sum(columns), None)
    assert v(STATES).tolist() == [3.0, 0.0, 11.0]
    assert v(STATES["observation"]).tolist() == [3.0, 7.0, 11.0]
    assert v.eval(STATES).tolist() == v.target(STATES).tolist() == [3.0, 0.0, 11.0]


def test_q_gives_all_values_or_those_of_actions() -> None:
    q = QNetwork(Sum(4))
    assert q(STATES).tolist() == [[3, 4, 5, 6], [0, 0, 0, 0], [11, 12, 13, 14]]
    for actions in (torch.tensor([1, 2, 3]), [1, 2, 3], [torch.tensor(1), torch.tensor(2), torch.tensor(3)]):
        assert q(STATES, actions).tolist() == [4.0, 0.0, 14.0]
    assert q.target(STATES, [1, 2, 3]).tolist() == [4.0, 0.0, 14.0]


@pytest.mark.parametrize("leading", [(), (5,), (2, 3)])
def test_results_have_the_axes_of_the_states(leading: tuple[int, ...]) -> None:
    states = {"observation": torch.rand(*leading, 2), "mask": torch.ones(leading)}
    discrete = torch.zeros(leading, dtype=torch.int64)
    assert VNetwork(Sum(), None)(states).shape == leading
    assert QNetwork(Sum(4))(states).shape == (*leading, 4)
    assert QNetwork(Sum(4))(states, discrete).shape == leading
    assert QContinuous(Sum(), None)(states, torch.rand(*leading, 3)).shape == leading


def test_a_continuous_value_sees_observation_and_action_side_by_side() -> None:
    q = QContinuous(Sum(1), None)
    actions = torch.tensor([[10.0], [20.0], [30.0]])
    assert q(STATES, actions).tolist() == [13.0, 0.0, 41.0]
    assert q(STATES["observation"], actions).tolist() == [13.0, 27.0, 41.0]
    assert q(STATES["observation"].to(torch.uint8), actions).tolist() == [13.0, 27.0, 41.0]


def test_a_gradient_reaches_actions_and_no_terminal_state() -> None:
    q = QContinuous(Sum(), None)
    actions = torch.zeros(3, 1, requires_grad=True)
    q(STATES, actions).sum().backward()
    assert actions.grad is not None
    assert actions.grad.flatten().tolist() == MASK.tolist()


def test_the_names_and_targets_are_the_pages() -> None:
    made = (VNetwork(Sum(), None), QNetwork(Sum(2)), QContinuous(Sum(), None), QNetwork(Sum(2), name="mine"))
    assert [a.name for a in made] == ["v", "q", "q", "mine"]
    target = FixedTarget(3)
    assert VNetwork(Sum(), None, target=target).target_network is target


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        (lambda: VNetwork(Sum(2), None)(STATES), r"values \[3, 2\] for states \[3\]"),
        (lambda: QNetwork(Sum())(STATES), r"values \[3\] for states \[3\]"),
        (lambda: QNetwork(Sum(2))(STATES, [0, 1]), r"other states than the \[3\]"),
        (lambda: QContinuous(Sum(2), None)(STATES, torch.ones(3, 1)), r"values \[3, 2\]"),
        (lambda: QContinuous(Sum(), None)(STATES, torch.ones(2, 1)), r"actions \[2, 1\] do not fit states \[3\]"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, cause: str) -> None:
    with pytest.raises(NetworkError, match=cause):
        call()


def test_a_plain_script_learns_action_values() -> None:
    """Q-learning on a corridor of five cells with a reward at its right end, by the page's classes alone."""
    torch.manual_seed(0)
    cells, gamma = 5, 0.9
    trunk, head = nn.Sequential(nn.Linear(cells, 16), nn.Tanh()), nn.Linear(16, 2)
    features = FeatureNetwork(trunk, torch.optim.Adam(trunk.parameters(), lr=0.02), target=PolyakTarget(0.2))
    q = QNetwork(head, torch.optim.Adam(head.parameters(), lr=0.02), target=PolyakTarget(0.2))
    here = torch.arange(cells).repeat_interleave(2)
    actions = torch.tensor([0, 1] * cells)
    there = (here + 2 * actions - 1).clamp(0, cells - 1)
    ends = (here == cells - 1) & (actions == 1)
    seen = torch.eye(cells)
    after = {"observation": seen[there], "mask": (~ends).float()}
    for _ in range(250):
        values = q(features(seen[here]), actions)
        targets = ends.float() + gamma * q.target(features.target(after)).max(-1).values
        q.reinforce((values - targets).square().mean())
        features.reinforce()
    found = q.eval(features.eval(seen)).max(-1)
    assert found.indices.tolist() == [1] * cells
    assert found.values.tolist() == pytest.approx([gamma ** (cells - 1 - cell) for cell in range(cells)], abs=0.05)
