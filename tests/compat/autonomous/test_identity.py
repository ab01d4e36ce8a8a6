"""The identity: returns its input and learns nothing."""

from __future__ import annotations

import pytest
import torch

from hive.compat.autonomous import FixedTarget, Identity, VNetwork
from hive.errors import NetworkError


def test_every_forward_pass_returns_its_input() -> None:
    identity = Identity("cpu", target=FixedTarget(1))
    states = {"observation": torch.ones(2, 3)}
    for answer in (identity, identity.no_grad, identity.eval, identity.target):
        assert answer(states) is states
    assert identity.name == "identity"
    assert identity.device == torch.device("cpu")


def test_a_gradient_goes_through_it() -> None:
    x = torch.ones(2, requires_grad=True)
    assert Identity("cpu")(x) is x


def test_without_a_loss_learning_does_nothing() -> None:
    identity = Identity("cpu", "features")
    loss = torch.ones((), requires_grad=True)
    for call in (identity.reinforce, identity.step, identity.accumulate, identity.zero_grad, identity.finish_backward):
        assert call() is identity
    identity.count_backward(2.0)
    assert identity.step(loss) is identity
    assert identity.reinforce(loss, samples=0) is identity
    assert (identity.updates, identity.report, loss.grad) == (0, None, None)


def test_its_reinforce_does_nothing_as_on_the_page() -> None:
    below = torch.ones(2, requires_grad=True)
    identity = Identity("cpu")
    loss = (3 * identity(below)).sum()
    assert identity.reinforce(loss) is identity.accumulate(loss, weight=2.0) is identity
    assert below.grad is None, "a second backward pass would fail, or count twice"
    v = VNetwork(head := torch.nn.Linear(2, 1), torch.optim.SGD(head.parameters(), lr=0.5))
    before = head.weight.detach().clone()
    v.reinforce(v(identity(below[None])).sum())
    assert not torch.equal(head.weight, before)
    assert below.grad is not None, "heads backpropagate through it"


def test_it_needs_a_device() -> None:
    with pytest.raises(TypeError):
        Identity()  # type: ignore[call-arg]
    with pytest.raises(NetworkError, match="has no parameters"):
        Identity(None)  # type: ignore[arg-type]
