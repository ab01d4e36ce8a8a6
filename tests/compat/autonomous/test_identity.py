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


def test_a_loss_is_backpropagated_as_by_the_features_that_it_replaces() -> None:
    below = torch.ones(2, requires_grad=True)
    identity = Identity("cpu")
    loss = (3 * identity(below)).sum()
    assert identity.reinforce(loss) is identity
    assert below.grad is not None
    assert below.grad.tolist() == [3.0, 3.0]
    identity.accumulate((3 * identity(below)).sum(), weight=2.0)
    assert below.grad.tolist() == [9.0, 9.0]
    v = VNetwork(head := torch.nn.Linear(2, 1), torch.optim.SGD(head.parameters(), lr=0.5))
    before = head.weight.detach().clone()
    identity.reinforce(v(identity(torch.ones(1, 2))).sum())  # the loss of heads on shared features
    v.step()
    assert torch.equal(head.weight, before - 0.5)
    with pytest.raises(NetworkError, match="depends on no parameter"):
        identity.reinforce(torch.ones(()))


def test_it_needs_a_device() -> None:
    with pytest.raises(TypeError):
        Identity()  # type: ignore[call-arg]
    with pytest.raises(NetworkError, match="has no parameters"):
        Identity(None)  # type: ignore[arg-type]
