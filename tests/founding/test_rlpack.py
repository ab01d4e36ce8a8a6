"""RLPack's GradAccumulator as its page documents it: every name, signature and error.

SURFACE is the page, read by eye. That the faults of the code behind the page are absent is tested in
tests/compat/rlpack; `test_db_a<n>_...` are those that are tested nowhere else. What differs from the page on purpose:
`parameter_keys` may be None, methods have more parameters with defaults, `accumulate` takes mappings too, and indices
of a running accumulator are a TypeError.
"""

from __future__ import annotations

import gc
import inspect
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

from hive import _native
from hive.compat.rlpack import GradAccumulator, MapOfTensors

SURFACE = {
    "__delitem__": ["index"],
    "__getitem__": ["index"],
    "__init__": ["parameter_keys", "bootstrap_rounds"],
    "__len__": [],
    "__setitem__": ["index", "named_parameters"],
    "accumulate": ["named_parameters"],
    "clear": [],
    "mean_reduce": [],
    "sum_reduce": [],
}
"""Public methods and their parameters, in the page's order; none has a default."""

FIELDS = {"c_grad_accumulator": _native.GradAccumulator, "map_of_tensors": MapOfTensors}

KEYS = ["weight", "bias"]


def model(value: float = 1.0) -> nn.Linear:
    """A layer whose gradients are all `value`."""
    layer = nn.Linear(3, 2)
    for parameter in layer.parameters():
        parameter.grad = torch.full_like(parameter, value)
    return layer


def accumulator(*values: float, rounds: int = 4) -> GradAccumulator:
    made = GradAccumulator(KEYS, rounds)
    for value in values:
        made.accumulate(model(value).named_parameters())
    return made


def values(maps: Iterable[MapOfTensors]) -> list[float]:
    """The one value that all elements of each map have."""
    found = []
    for one in maps:
        flat = torch.cat([tensor.flatten() for tensor in one.values()])
        assert len(set(flat.tolist())) == 1
        found.append(flat[0].item())
    return found


# --- the page


def test_the_class_is_as_documented() -> None:
    for name, documented in SURFACE.items():
        parameters = list(inspect.signature(getattr(GradAccumulator, name)).parameters.values())[1:]
        assert [p.name for p in parameters[: len(documented)]] == documented, name
        assert all(p.default is p.empty for p in parameters[: len(documented)]), name
        assert all(p.default is not p.empty for p in parameters[len(documented) :]), name
    for name, kind in FIELDS.items():
        assert isinstance(getattr(GradAccumulator(KEYS, 2), name), kind)
        assert isinstance(getattr(accumulator(1.0), name), kind)


def test_everything_documented_in_one_go() -> None:
    made = GradAccumulator(parameter_keys=KEYS, bootstrap_rounds=3)
    assert len(made) == 0
    for value in (1.0, 2.0, 6.0):
        assert made.accumulate(named_parameters=model(value).named_parameters()) is None  # type: ignore[func-returns-value]
    assert len(made) == 3
    for reduced, value in ((made.mean_reduce(), 3.0), (made.sum_reduce(), 9.0), (made[1], 2.0)):
        assert isinstance(reduced, MapOfTensors)
        assert values([reduced]) == [value]
        assert list(reduced) == KEYS
    made[0] = model(4.0).named_parameters()
    del made[1]
    assert values(made) == [4.0, 6.0]
    made.clear()
    assert len(made) == 0


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        (lambda: accumulator(1.0, 2.0, rounds=1), OverflowError),
        (lambda: accumulator().mean_reduce(), ValueError),
        (lambda: accumulator().sum_reduce(), ValueError),
        (lambda: accumulator(1.0)[1], IndexError),
        (lambda: accumulator(1.0).__setitem__(1, model().named_parameters()), IndexError),
        (lambda: accumulator(1.0).__delitem__(1), IndexError),
        (lambda: accumulator(float("nan")), RuntimeError),
        (lambda: GradAccumulator(KEYS, -1), ValueError),
    ],
)
def test_errors_are_of_the_documented_types(attempt: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        attempt()


# --- its faults


def test_db_a1_names_that_are_missing_do_not_reuse_old_parameters_and_none_is_kept() -> None:
    made, layer = GradAccumulator(KEYS, 4), model(1.0)
    made.accumulate(layer.named_parameters())
    with pytest.raises(ValueError, match="lacks the parameter `bias`"):
        made.accumulate([("weight", layer.weight)])
    gone = weakref.ref(layer)
    del layer
    gc.collect()
    assert gone() is None


def test_db_a9_named_parameters_can_be_assigned_as_documented() -> None:
    made = accumulator(1.0, 2.0)
    frozen = model(5.0)
    frozen.bias.requires_grad_(False)
    made[0] = frozen.named_parameters()
    assert made[0]["weight"].unique().tolist() == [5.0]
    assert made[0]["bias"].unique().tolist() == [0.0]
    made[1] = made[0]
    assert made[1] == made[0]
