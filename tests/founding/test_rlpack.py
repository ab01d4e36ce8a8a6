"""RLPack's GradAccumulator as its page documents it: every name, signature and error; and its faults, shown absent.

SURFACE is the page, read by eye. `test_db_a<n>_...` is one fault each of the code behind the page, by its number in our
list of them. What differs from the page on purpose: `parameter_keys` may be None, methods have more parameters with
defaults, `accumulate` takes mappings too, and indices of a running accumulator are a TypeError.
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
from hive.gradients import GradAccumulator, MapOfTensors

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


@pytest.mark.parametrize("name", SURFACE)
def test_methods_have_the_documented_parameters(name: str) -> None:
    parameters = list(inspect.signature(getattr(GradAccumulator, name)).parameters.values())[1:]
    documented = SURFACE[name]
    assert [p.name for p in parameters[: len(documented)]] == documented
    assert all(p.default is p.empty for p in parameters[: len(documented)])
    assert all(p.default is not p.empty for p in parameters[len(documented) :])


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_there_from_the_start(name: str) -> None:
    empty = GradAccumulator(KEYS, 2)
    assert isinstance(getattr(empty, name), FIELDS[name])
    assert isinstance(getattr(accumulator(1.0), name), FIELDS[name])


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


def test_db_a2_one_bad_element_among_many_is_found() -> None:
    for bad in (float("nan"), float("inf")):
        layer = model(1.0)
        assert layer.weight.grad is not None
        layer.weight.grad[1, 2] = bad
        with pytest.raises(RuntimeError, match="`weight` is not finite"):
            GradAccumulator(KEYS, 4).accumulate(layer.named_parameters())


def test_db_a3_a_trainable_parameter_that_no_loss_reached_is_zeros() -> None:
    layer = model(1.0)
    layer.bias.grad = None
    made = GradAccumulator(KEYS, 4)
    made.accumulate(layer.named_parameters())
    assert not made.mean_reduce()["bias"].any()
    assert made.unused_counts == {"bias": 1}


def test_db_a4_a_running_sum_needs_no_copy_a_round() -> None:
    made = GradAccumulator(KEYS, 1000, store="running")
    for value in range(1000):
        made.accumulate(model(float(value)).named_parameters())
    assert made._held == made._free == []
    assert values([made.mean_reduce()]) == [499.5]


def test_db_a5_fewer_rounds_than_can_be_held_are_divided_by_their_number() -> None:
    made = accumulator(2.0, 4.0, rounds=7)
    assert values([made.mean_reduce(), made.sum_reduce()]) == [3.0, 6.0]


def test_db_a6_a_mean_is_divided_once() -> None:
    tiny = torch.tensor([6e-8], dtype=torch.float16)  # a half of it is zero
    made = GradAccumulator(None, 2)
    for _ in range(2):
        made.accumulate(MapOfTensors({"w": tiny}))
    assert torch.equal(made.mean_reduce()["w"], tiny)
    assert (tiny / 2 + tiny / 2)[0] != tiny[0]


def test_db_a7_a_sum_changes_no_round_and_no_earlier_result() -> None:
    made = accumulator(1.0, 2.0)
    first = made.sum_reduce()
    assert values([first, made.sum_reduce(), made.mean_reduce(), *made]) == [3.0, 3.0, 1.5, 1.0, 2.0]
    made.accumulate(model(4.0).named_parameters())
    made.sum_reduce()
    assert values([first]) == [3.0]
    single = accumulator(1.0)
    single.sum_reduce()["weight"].fill_(9.0)
    assert values(single) == [1.0]


def test_db_a8_indices_end_where_the_rounds_do() -> None:
    made = accumulator(1.0, 2.0)
    for index in (2, -3):
        with pytest.raises(IndexError):
            made[index]
    assert values([made[-1], *made[0:]]) == [2.0, 1.0, 2.0]
    assert values(iter(made)) == [1.0, 2.0]


def test_db_a9_named_parameters_can_be_assigned_as_documented() -> None:
    made = accumulator(1.0, 2.0)
    frozen = model(5.0)
    frozen.bias.requires_grad_(False)
    made[0] = frozen.named_parameters()
    assert made[0]["weight"].unique().tolist() == [5.0]
    assert made[0]["bias"].unique().tolist() == [0.0]
    made[1] = made[0]
    assert made[1] == made[0]


def test_db_a10_the_text_of_a_map_grows_with_its_names_only() -> None:
    lengths = [len(str(MapOfTensors({f"w{i:03}": torch.zeros(2) for i in range(n)}))) for n in (1, 100, 200)]
    assert lengths[2] - lengths[1] == 100 * (len("w000: float32 [2], "))
    assert isinstance({**accumulator(1.0)[0]}, dict)


def test_db_a11_the_nth_gradient_is_in_the_nth_step() -> None:
    made, means = GradAccumulator(KEYS, 2), []
    for value in (1.0, 3.0, 5.0, 9.0):
        made.accumulate(model(value).named_parameters())
        if made.step_due():
            means.append(made.mean_reduce())
            made.clear()
    assert values(means) == [2.0, 7.0]


def test_db_a12_the_mean_reaches_grad_undivided() -> None:
    layer, made = model(3.0), accumulator(1.0, 2.0)
    made.mean_reduce(into=layer)
    assert layer.weight.grad is not None
    assert layer.weight.grad.unique().tolist() == [1.5]
