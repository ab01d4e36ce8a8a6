"""Values of states and actions: shapes, masks, and errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.algorithms.losses.q_learning import QLoss
from hive.compat.autonomous import (
    FeatureNetwork,
    FixedTarget,
    PolyakTarget,
    QContinuous,
    QDist,
    QNetwork,
    VNetwork,
    reinforce_jointly,
)
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


class Fragile(nn.Module):
    """Not finite at 0, and of a gradient that is not finite there either."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))

    def forward(self, rows: Tensor) -> Tensor:
        return self.scale * (1 / rows.flatten(1).sum(1, keepdim=True)).log()


FAMILY = {
    "v": lambda: VNetwork(Fragile(1), None),
    "q": lambda: QNetwork(Fragile(3)),
    "q of actions": lambda: QNetwork(Fragile(3)),
    "continuous": lambda: QContinuous(Fragile(1), None),
    "dist": lambda: QDist(Fragile(3 * 5), None, 3, 5, -2.0, 2.0),
}
NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize("spoilt", [0.0, -1.0, NAN, INFINITY])
@pytest.mark.parametrize("name", FAMILY)
def test_a_terminal_state_has_its_value_and_a_gradient_whatever_the_model_makes_of_it(name: str, spoilt: float) -> None:
    approximation = FAMILY[name]()
    rows = torch.tensor([[spoilt, 0.0], [1.0, 2.0], [spoilt, spoilt], [0.5, 0.5]], requires_grad=True)
    actions = {
        "q of actions": [torch.tensor([0, 1, 2, 1])],
        "continuous": [torch.tensor([spoilt, 1.0, 0.0, 1.0], requires_grad=True)],
    }.get(name, [])
    mask = torch.tensor([0, 1, 0, 1])
    values = approximation({"observation": rows, "mask": mask}, *actions)
    live = approximation(rows[1::2].detach(), *[action[1::2].detach() for action in actions])
    torch.testing.assert_close(values[1::2], live)
    end = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0]) if name == "dist" else torch.zeros(())
    assert torch.equal(values[::2], end.expand_as(values[::2]))
    torch.autograd.backward(values.square().sum())
    gradients = [rows.grad, *[p.grad for p in approximation.model.parameters()]]
    gradients += [action.grad for action in actions if action.requires_grad]
    assert all(gradient is not None and bool(torch.isfinite(gradient).all()) for gradient in gradients)
    assert rows.grad is not None
    assert not rows.grad[::2].any()
    assert rows.grad[1::2].any()


def test_terminal_states_alone_have_their_value() -> None:
    for mask in (torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.bool)):
        values = VNetwork(nn.Linear(3, 1), None)({"observation": torch.full((2, 2, 3), NAN), "mask": mask})
        assert torch.equal(values, torch.zeros(2, 2))
        values.sum().backward()
    assert VNetwork(nn.Linear(3, 1), None)({"observation": torch.zeros(0, 3), "mask": torch.zeros(0)}).shape == (0,)


def test_a_terminal_observation_that_is_not_finite_spoils_no_features() -> None:
    for style in ("detached", "shared"):
        trunk, head = nn.Linear(2, 3), nn.Linear(3, 1)
        features = FeatureNetwork(trunk, torch.optim.SGD(trunk.parameters(), lr=0.1), style=style)  # type: ignore[arg-type]
        v = VNetwork(head, torch.optim.SGD(head.parameters(), lr=0.1))
        rows = torch.tensor([[1.0, 2.0], [NAN, INFINITY], [3.0, 4.0], [5.0, 6.0]])
        shared = features({"observation": rows, "mask": torch.tensor([1, 0, 0, 1])})
        assert torch.equal(shared["observation"][2:], trunk(rows[2:])), "terminal or not"
        reinforce_jointly([(v, v(shared).sum())], [features])
        assert features.updates == 1
        assert all(bool(torch.isfinite(parameter).all()) for parameter in trunk.parameters())


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
        (lambda: QNetwork(Sum(2))(STATES, [0, 1]), r"actions do not fit states \[3\]"),
        (lambda: QNetwork(Sum(2))(STATES, [0, 2, 1]), "actions range from 0 to 2, but there are only 2"),
        (
            lambda: QNetwork(Sum(2))(STATES, torch.tensor([0, -1, 1])),
            "actions range from -1 to 1, but there are only 2",
        ),
        (lambda: QDist(Sum(6), None, 2, 3, -1.0, 1.0)(STATES, [0, 2, 1]), "but there are only 2"),
        (lambda: QNetwork(Sum(2))(STATES, 1), "whole numbers, not 1"),
        (lambda: QNetwork(Sum(2))(STATES, "012"), "whole numbers, not '012'"),
        (lambda: QContinuous(Sum(), None)(STATES, [1.0, 2.0, 3.0]), "a tensor, not list"),
        (lambda: VNetwork(Sum(), None)({**STATES, "mask": "101"}), "the mask of these states is not a tensor"),
        (lambda: QContinuous(Sum(2), None)(STATES, torch.ones(3, 1)), r"values \[3, 2\]"),
        (lambda: QContinuous(Sum(), None)(STATES, torch.ones(2, 1)), r"actions \[2, 1\] do not fit states \[3\]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call: Any, cause: str) -> None:
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


@pytest.mark.parametrize("huber", [False, True])
@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 0.5, 0.0])])
def test_a_typed_loss_is_a_step_of_a_plain_script(huber: bool, weights: Tensor | None) -> None:
    torch.manual_seed(0)
    models = [nn.Linear(2, 3) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    q, by_hand = [QNetwork(model, torch.optim.SGD(model.parameters(), lr=0.5)) for model in models]
    states, actions, targets = torch.randn(3, 2), torch.tensor([2, 0, 1]), torch.tensor([0.0, 5.0, 1.0])
    values = q.no_grad(states)
    assert q.reinforce(QLoss(states, actions, targets, weights, huber=huber)) is q
    losses = (nn.functional.huber_loss if huber else nn.functional.mse_loss)(
        by_hand(states, actions), targets, reduction="none"
    )
    counts = torch.full((3,), 1 / 3) if weights is None else weights
    by_hand.reinforce((losses * counts).sum())
    torch.testing.assert_close(models[0].weight, models[1].weight)
    taken = values.gather(1, actions[:, None])[:, 0]
    terms = losses.detach(), taken, values.amax(1), (taken - targets).abs()
    assert q.statistics == pytest.approx([float((term * counts).sum()) for term in terms], rel=1e-5, abs=1e-6)


def test_a_typed_loss_can_be_accumulated() -> None:
    torch.manual_seed(0)
    models = [nn.Linear(2, 3) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    parts, whole = [QNetwork(model, torch.optim.SGD(model.parameters(), lr=0.5)) for model in models]
    states, actions, targets = torch.randn(5, 2), torch.tensor([2, 0, 1, 1, 0]), torch.linspace(-1, 1, 5)
    for rows in (slice(0, 2), slice(2, 5)):
        parts.accumulate(QLoss(states[rows], actions[rows], targets[rows]), weight=len(states[rows]))
    parts.step()
    whole.reinforce(QLoss(states, actions, targets))
    torch.testing.assert_close(models[0].weight, models[1].weight)


def test_a_loss_of_float64_is_one_too() -> None:
    model = nn.Linear(2, 3).double()
    q = QNetwork(model, torch.optim.SGD(model.parameters(), lr=0.5))
    q.reinforce(QLoss(torch.ones(1, 2).double(), torch.tensor([1]), torch.ones(1).double()))
    assert q.updates == 1
