"""State dictionaries converted to arrays and JSON and back: nothing changes, and garbage is an error."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hive.compat.autonomous.stored import MAX_DEPTH, from_record, to_record
from hive.errors import RecordError


def there_and_back(state: Any) -> Any:
    record, arrays = to_record(state)
    return from_record(json.loads(json.dumps(record)), arrays)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def test_an_optimizers_state_comes_back() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW([{"params": [model.weight], "lr": 0.1}, {"params": [model.bias]}], amsgrad=True)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    found = there_and_back(state)
    assert same(state, found)
    assert found["param_groups"][0]["betas"] == (0.9, 0.999)
    assert list(found["state"]) == [0, 1]


@pytest.mark.parametrize(
    "state",
    [
        None,
        {"a": 1, "1": 2.5, 1: True, "none": None, "text": "ä"},
        {"nested": {0: [1, (2, [3.0, ()])]}},
        [math.inf, -0.0],
        OrderedDict(b=1, a=2),
        Counter({3: 2}),
    ],
    ids=repr,
)
def test_plain_values_come_back(state: Any) -> None:
    found = there_and_back(state)
    assert found == state
    assert isinstance(found, Counter) == isinstance(state, Counter)


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "bool", "complex64"],
)
@pytest.mark.parametrize("shape", [(), (0,), (3, 2)])
def test_tensors_come_back_bit_for_bit(dtype: str, shape: tuple[int, ...]) -> None:
    tensor = (torch.rand(shape) * 4).to(getattr(torch, dtype))
    turned = tensor.permute(tuple(range(tensor.dim()))[::-1])
    for state in ({"t": tensor}, {"t": turned}):
        assert same(state, there_and_back(state))


def test_arrays_are_copies_with_readable_names() -> None:
    weight = nn.Parameter(torch.zeros(2))
    record, arrays = to_record({"model": {"0.weight": weight}, "model/0": {"weight": weight}})
    assert list(arrays) == ["model/0.weight", "model/0/weight"]
    with torch.no_grad():
        weight.fill_(1.0)
    assert not arrays["model/0.weight"].any()
    assert from_record(record, arrays)["model"]["0.weight"].tolist() == [0.0, 0.0]


def test_paths_that_read_alike_are_two_arrays() -> None:
    state = {"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}, 1: torch.ones(2), "1": torch.zeros(2)}
    assert same(state, there_and_back(state))


class Own:
    pass


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ({"a": {"f": len}}, "`a/f` is a builtin_function_or_method"),
        ({"a": [Own()]}, "`a/0` is a Own"),
        ({"a": {(1, 2): 3}}, "`a` has a key of type tuple"),
        ({"a": torch.eye(2).to_sparse()}, "`a` is torch.sparse_coo"),
    ],
)
def test_values_that_cannot_be_stored_are_named(state: Any, cause: str) -> None:
    with pytest.raises(RecordError, match=cause):
        to_record(state)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_depth_has_a_limit() -> None:
    assert there_and_back(nested(MAX_DEPTH - 1)) == nested(MAX_DEPTH - 1)
    with pytest.raises(RecordError, match="deeper than"):
        to_record(nested(MAX_DEPTH + 5))
    with pytest.raises(RecordError, match="deeper than"):
        from_record(nested(MAX_DEPTH + 5), {})


ARRAYS = {"a": np.zeros(4, np.uint8), "scalar": np.zeros(()), "floats": np.zeros(4)}


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"dict": 1},
        {"dict": [[1]]},
        {"dict": [[[], 1]]},
        {"set": []},
        {"dict": [], "tuple": []},
        {"tensor": "b"},
        {"tensor": ["a"]},
        {"tensor": "a", "dtype": "object", "shape": [4]},
        {"tensor": "a", "dtype": "bool", "shape": [5]},
        {"tensor": "a", "dtype": "bool", "shape": [-4]},
        {"tensor": "a", "dtype": "int32", "shape": ["1"]},
        {"tensor": "a", "dtype": "complex64", "shape": [1]},
        {"tensor": "a", "dtype": "bool", "shape": [2**62, 2**62]},
        {"tensor": "a", "dtype": "bool", "shape": [2**70]},
        {"tensor": "a", "dtype": []},
        {"tensor": "scalar", "dtype": "bool", "shape": []},
        {"tensor": "floats", "dtype": "bool", "shape": [4]},
    ],
    ids=repr,
)
def test_a_record_that_was_never_written_is_refused(record: Any) -> None:
    with pytest.raises(RecordError):
        from_record(record, ARRAYS)


leaves = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.sampled_from(["a", "int32", "dict"])
names = st.sampled_from(["dict", "tuple", "counter", "tensor", "dtype", "shape", "x"])
garbage = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))


@given(garbage)
def test_garbage_is_a_value_or_an_error_of_ours(record: Any) -> None:
    try:
        from_record(record, ARRAYS)
    except RecordError:
        pass
