"""Q and dueling Q: values of actions, and losses of the action that was taken."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from hive.compat.coach.losses import head_loss
from hive.envs.spaces.actions import Box, Discrete
from hive.errors import NetworkError
from hive.networks import DuelingQHeadParameters, HeadParameters, select_actions
from hive.networks.build.value_heads import DuelingQHead, QHead

ACTION = Discrete(3)
VALUES = torch.tensor([[1.0, 2.0, 5.0], [0.0, -1.0, 4.0]])
ACTIONS = torch.tensor([2, 1])
TARGETS = torch.tensor([2.0, -1.5])


def test_the_loss_is_that_of_the_action_taken() -> None:
    head = QHead(HeadParameters("q"), ACTION)
    assert head(VALUES) is VALUES
    assert head_loss(head).loss(VALUES, TARGETS, ACTIONS).tolist() == [9.0, 0.25]
    assert head_loss(head, huber=True).loss(VALUES, TARGETS, ACTIONS).tolist() == [2.5, 0.125]
    values = VALUES.clone().requires_grad_()
    head_loss(head).loss(values, TARGETS, ACTIONS).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[0, 0, 6.0], [0, 1.0, 0]]


def test_the_values_of_actions_may_have_more_axes() -> None:
    atoms = torch.arange(12.0).reshape(2, 3, 2)
    assert select_actions(atoms, ACTIONS).tolist() == [[4.0, 5.0], [8.0, 9.0]]


def test_dueling_values_are_the_state_and_the_advantage_over_the_mean() -> None:
    head = DuelingQHead(HeadParameters("dueling_q"), ACTION)
    assert head.width == 4
    columns = torch.tensor([[10.0, 1.0, 2.0, 6.0]])
    assert head(columns).tolist() == [[8.0, 9.0, 13.0]]
    assert float(head(columns).mean()) == 10.0


def test_each_stream_may_have_a_hidden_layer() -> None:
    head = DuelingQHead(DuelingQHeadParameters(hidden=8), ACTION)
    columns = torch.randn(5, head.width)
    assert head.width == 16
    assert head.value is not None
    assert head.advantage is not None
    value = head.value(columns[:, :8].relu())
    advantage = head.advantage(columns[:, 8:].relu())
    torch.testing.assert_close(head(columns), value + advantage - advantage.mean(1, keepdim=True))
    assert [name for name, _ in head.named_parameters()] == [
        *("value.weight", "value.bias", "advantage.weight", "advantage.bias")
    ]


def test_its_loss_is_that_of_q() -> None:
    head = DuelingQHead(HeadParameters("dueling_q"), ACTION)
    expected = functional.huber_loss(torch.tensor([5.0, -1.0]), TARGETS, reduction="none")
    assert torch.equal(head_loss(head, huber=True).loss(VALUES, TARGETS, ACTIONS), expected)


def test_other_actions_are_refused() -> None:
    for head in (QHead, DuelingQHead):
        with pytest.raises(NetworkError, match="a `q` head needs a discrete action") as error:
            head(HeadParameters("q"), Box((1,), (0.0,), (1.0,)))
        assert "`value` head" in error.value.hint
    with pytest.raises(NetworkError, match=r"actions range from 1 to 3, but there are only 3"):
        head_loss(QHead(HeadParameters("q"), ACTION)).loss(VALUES, TARGETS, torch.tensor([1, 3]))
