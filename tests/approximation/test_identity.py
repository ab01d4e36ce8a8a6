"""The identity: returns its input and learns nothing."""

from __future__ import annotations

import pytest
import torch

from hive.approximation import FixedTarget, Identity
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


def test_learning_does_nothing_with_a_loss_or_without() -> None:
    identity = Identity("cpu", "features")
    loss = torch.ones((), requires_grad=True)
    for call in (identity.reinforce, identity.step, identity.accumulate):
        assert call() is identity
        assert call(loss) is identity
    identity.count_backward(2.0)
    assert identity.zero_grad() is identity
    assert identity.finish_backward() is identity
    assert (identity.updates, identity.report, loss.grad) == (0, None, None)


def test_it_needs_a_device() -> None:
    with pytest.raises(TypeError):
        Identity()  # type: ignore[call-arg]
    with pytest.raises(NetworkError, match="has no parameters"):
        Identity(None)  # type: ignore[arg-type]
