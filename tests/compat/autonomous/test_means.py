"""The mean of several backward passes, and `.grad` after it."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.compat.autonomous import Approximation
from hive.errors import NetworkError, NotFinite

RATE = 0.5


def approximation(model: nn.Module, **settings: Any) -> Approximation:
    return Approximation(model, torch.optim.SGD(model.parameters(), lr=RATE), **settings)


def vector() -> nn.Linear:
    model = nn.Linear(3, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def push(a: Approximation, *gradient: float) -> Tensor:
    """A loss whose gradient is `gradient`."""
    loss: Tensor = a(torch.tensor([gradient])).sum()
    return loss


def gradient(a: Approximation) -> list[float] | None:
    (parameter,) = a.model.parameters()
    return None if parameter.grad is None else parameter.grad[0].tolist()


def weight(a: Approximation) -> list[float]:
    (parameter,) = a.model.parameters()
    return parameter[0].tolist()  # type: ignore[no-any-return]


def test_the_mean_is_weighted_and_divided_once() -> None:
    """Weights that no other share of 10 has: a mix-up of weights, rounds or the divisor is another number."""
    a = approximation(vector())
    a.accumulate(push(a, 1.0, 0.0, 4.0), 1.0).accumulate(push(a, 0.0, 10.0, -8.0), 2.0)
    a.accumulate(push(a, 0.0, 0.0, 3.0), 7.0)
    a.step()
    assert weight(a) == pytest.approx([-RATE * 0.1, -RATE * 2.0, -RATE * 0.9])


def test_gradients_wait_in_the_accumulator() -> None:
    a = approximation(vector(), keep_gradients=True)
    a.accumulate(push(a, 1.0, 2.0, 3.0))
    assert gradient(a) is None
    a.accumulate(push(a, 3.0, 2.0, 1.0))
    a.step()
    assert gradient(a) == [2.0, 2.0, 2.0]
    assert a.report is not None
    assert "unscale" in a.report.stages
    assert a.report.norm == pytest.approx(math.sqrt(12))


def test_a_backward_pass_of_your_own_is_added_to_the_mean() -> None:
    a = approximation(vector())
    a.accumulate(push(a, 2.0, 0.0, 0.0), 4.0)
    push(a, 0.0, 1.0, 0.0).backward()
    a.step()
    assert weight(a) == [-RATE * 2.0, -RATE * 1.0, 0.0]


def test_own_backward_passes_are_counted_with_their_weight() -> None:
    a = approximation(vector())
    for value, samples in ((4.0, 1.0), (8.0, 3.0)):
        push(a, value, 0.0, 0.0).backward()
        a.count_backward(samples)
    a.step()
    assert weight(a) == [-RATE * 7.0, 0.0, 0.0]


def test_zero_grad_clears_accumulated_gradients() -> None:
    a = approximation(vector())
    a.accumulate(push(a, 100.0, 0.0, 0.0), 3.0)
    a.zero_grad()
    with pytest.raises(NetworkError, match="no gradient has reached"):
        a.step()
    a.accumulate(push(a, 1.0, 0.0, 0.0)).step()
    assert weight(a) == [-RATE, 0.0, 0.0]


@pytest.mark.parametrize("non_finite", ["raise", "skip"])
def test_a_bad_round_spoils_its_step_and_no_other(non_finite: Any) -> None:
    a = approximation(vector(), accumulate_steps=2, non_finite=non_finite, name="q")
    a.reinforce(push(a, math.nan, 0.0, 0.0))
    if non_finite == "raise":
        with pytest.raises(NotFinite, match="the gradient of `weight` in `q` is not finite"):
            a.reinforce(push(a, 1.0, 0.0, 0.0))
    else:
        a.reinforce(push(a, 1.0, 0.0, 0.0))
    assert (weight(a), a.updates) == ([0.0, 0.0, 0.0], 0)
    for _ in range(2):
        a.reinforce(push(a, 1.0, 0.0, 0.0))
    assert weight(a) == [-RATE, 0.0, 0.0]


def test_a_parameter_without_a_gradient_in_any_round_gets_none() -> None:
    """Adam would move one with a gradient of zeros by its momentum."""
    used, unused = vector(), vector()
    optimizer = torch.optim.SGD([*used.parameters(), *unused.parameters()], lr=RATE)
    a = Approximation(used, optimizer, keep_gradients=True)
    a.accumulate(push(a, 1.0, 0.0, 0.0), 2.0).step()
    assert unused.weight.grad is None
    frozen = approximation(nn.Sequential(vector().requires_grad_(False), nn.Linear(1, 1)))
    frozen.accumulate(frozen(torch.ones(1, 3)).sum()).step()
    assert frozen.updates == 1


def test_a_loss_that_reaches_no_parameter_of_the_optimizer_is_refused() -> None:
    a = Approximation(vector(), torch.optim.SGD(vector().parameters(), lr=RATE), name="q")
    with pytest.raises(NetworkError, match="no gradient has reached `q`"):
        a.accumulate(push(a, 1.0, 0.0, 0.0))


def test_a_model_of_another_dtype_gets_a_new_accumulator() -> None:
    a = approximation(vector())
    a.accumulate(push(a, 1.0, 0.0, 0.0)).step()
    a.model.double()
    loss = a(torch.ones(1, 3).double()).sum()
    a.accumulate(loss).step()
    assert weight(a) == [-2 * RATE, -RATE, -RATE]


def test_a_copy_continues_with_separate_sums() -> None:
    a = approximation(vector())
    a.accumulate(push(a, 1.0, 0.0, 0.0))
    b = copy.deepcopy(a)
    b.accumulate(push(b, 3.0, 0.0, 0.0)).step()
    a.step()
    assert (weight(a), weight(b)) == ([-RATE, 0.0, 0.0], [-2 * RATE, 0.0, 0.0])


def test_one_backward_pass_is_stepped_as_it_is() -> None:
    """Bit for bit as torch does it: nothing is copied to a sum and back."""
    a, plain = approximation(vector()), vector()
    a.reinforce(push(a, 0.1, 0.2, 0.3))
    (plain(torch.tensor([[0.1, 0.2, 0.3]])).sum()).backward()
    torch.optim.SGD(plain.parameters(), lr=RATE).step()
    assert torch.equal(next(a.model.parameters()), plain.weight)
    assert a.report is not None
    assert "unscale" not in a.report.stages
