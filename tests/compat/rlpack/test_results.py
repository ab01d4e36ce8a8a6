"""The destinations of reductions: `into` is all or nothing, and takes a module, pairs or a mapping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.compat.rlpack import GradAccumulator, MapOfTensors


def layer(width: int = 2, dtype: torch.dtype = torch.float32, device: str = "cpu") -> nn.Linear:
    return nn.Linear(3, width, dtype=dtype, device=device)


def accumulated(rounds: int = 1) -> GradAccumulator:
    accumulator = GradAccumulator(None, rounds)
    for _ in range(rounds):
        accumulator.accumulate(MapOfTensors({"weight": torch.ones(2, 3), "bias": torch.ones(2)}))
    return accumulator


def with_wrong_bias(bias: Tensor) -> nn.Linear:
    network = layer()
    network.bias = nn.Parameter(bias)
    return network


@pytest.mark.parametrize(
    ("into", "message"),
    [
        (lambda: with_wrong_bias(torch.zeros(3)), r"`bias` of into is torch.float32 \[3\] on cpu, its gradient is"),
        (lambda: with_wrong_bias(torch.zeros(2).double()), r"`bias` of into is torch.float64 \[2\]"),
        (lambda: with_wrong_bias(torch.zeros(2, device="meta")), r"on meta, its gradient is .* on cpu"),
        (lambda: nn.Linear(3, 2, bias=False), "into has no parameter `bias`"),
        (lambda: nn.ModuleDict({"inner": layer()}), "into has no parameter `weight`"),
    ],
)
def test_a_network_that_does_not_fit_gets_no_gradient_at_all(into: Callable[[], nn.Module], message: str) -> None:
    network, accumulator = into(), accumulated()
    out = accumulator.zeros()
    with pytest.raises(ValueError, match=message):
        accumulator.mean_reduce(out=out, into=network)
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not out["weight"].any()
    assert accumulator.report is None


@pytest.mark.parametrize("into", [lambda n: n, lambda n: dict(n.named_parameters()), lambda n: n.named_parameters()])
def test_a_module_a_mapping_and_pairs_get_the_same(into: Callable[[nn.Linear], Any]) -> None:
    network = layer()
    mean = accumulated().mean_reduce(into=into(network))
    assert network.weight.grad is mean["weight"]
    assert network.bias.grad is mean["bias"]


@pytest.mark.parametrize(
    ("into", "message"),
    [
        ({"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}, "`weight` of into is not a parameter: pass a module"),
        ({"weight": layer().weight * 1, "bias": layer().bias * 1}, "`weight` of into is computed from other tensors"),
        ({"weight": 1, "bias": 2}, "`weight` of into must be a parameter, not int"),
    ],
)
def test_values_without_grad_are_refused(into: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        accumulated().mean_reduce(into=into)


def test_parameters_that_never_had_a_gradient_may_be_missing() -> None:
    """As of `(n, p) for n, p in model.named_parameters() if p.requires_grad`."""
    network = layer()
    network.bias.requires_grad_(False)
    network(torch.ones(1, 3)).sum().backward()
    accumulator = GradAccumulator(None, 1)
    accumulator.accumulate(network.named_parameters())
    network.weight.grad = None
    accumulator.mean_reduce(into=[("weight", network.weight)])
    assert network.weight.grad is not None


def test_zeros_are_a_result_to_write_to() -> None:
    accumulator = accumulated()
    out = accumulator.zeros()
    assert [tuple(tensor.shape) for tensor in out.values()] == [(2, 3), (2,)]
    assert accumulator.mean_reduce(out=out) is out
    assert out["bias"].tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"unknown before the first accumulate\(\)"):
        GradAccumulator(None, 1).zeros()


def test_a_plain_dict_is_a_result_to_write_to() -> None:
    out = {"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}
    assert accumulated().mean_reduce(out=out) is out
    assert out["bias"].tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="out has no tensor `bias`"):
        accumulated().mean_reduce(out={"weight": torch.zeros(2, 3)})
