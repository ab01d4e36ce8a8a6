"""MapOfTensors: a mapping in a fixed order, as a dict is; lazy views; equality; what torch takes it for."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from hive.compat.rlpack import GradAccumulator, MapOfTensors


def some() -> MapOfTensors:
    return MapOfTensors({"z": torch.arange(6.0).view(2, 3), "a": torch.ones(2, dtype=torch.float64)})


def test_it_is_a_mapping_in_the_order_given() -> None:
    map_ = some()
    assert isinstance(map_, Mapping)
    assert list(map_) == list(map_.keys()) == ["z", "a"]
    assert [tensor.dtype for tensor in map_.values()] == [torch.float32, torch.float64]
    assert [name for name, _ in map_.items()] == ["z", "a"]
    assert (len(map_), "z" in map_, "b" in map_) == (2, True, False)
    assert map_.get("b") is None
    with pytest.raises(KeyError):
        map_["b"]


def test_it_is_changed_as_a_dict_is() -> None:
    map_ = some()
    map_.update({"b": torch.zeros(1)})
    map_["z"] = torch.ones(1)
    del map_["a"]
    assert list(map_) == ["z", "b"]
    assert map_.pop("b").item() == 0.0
    assert map_ == {"z": torch.ones(1)}
    with pytest.raises(TypeError, match="a name and a tensor, got str and int"):
        map_["z"] = 1  # type: ignore[assignment]


def test_copy_is_shallow_and_clone_is_not() -> None:
    map_ = some()
    shallow, deep, other = map_.copy(), map_.clone(), copy.copy(map_)
    map_["z"][0, 0] = 9.0
    assert shallow["z"][0, 0] == other["z"][0, 0] == 9.0
    assert deep["z"][0, 0] == 0.0
    del shallow["z"]
    assert "z" in map_
    assert copy.deepcopy(map_) == map_


@pytest.mark.parametrize(
    "other",
    [
        {"z": torch.arange(6.0).view(2, 3)},
        {"z": torch.arange(6.0).view(3, 2), "a": torch.ones(2, dtype=torch.float64)},
        {"z": torch.arange(6.0).view(2, 3), "a": torch.ones(2)},
        {"z": torch.zeros(2, 3), "a": torch.ones(2, dtype=torch.float64)},
        {"z": 1, "a": 2},
        7,
    ],
)
def test_equality_compares_names_types_and_values(other: object) -> None:
    assert some() != other
    assert some() == dict(some())
    assert some() == MapOfTensors(reversed(list(some().items())))


def test_views_are_created_at_the_first_access() -> None:
    asked = 0

    def views() -> list[Tensor]:
        nonlocal asked
        asked += 1
        return [torch.zeros(1), torch.ones(1)]

    block = object()
    map_ = MapOfTensors.lazy(("a", "b"), views, block)
    assert (asked, map_.block) == (0, block)
    assert map_["b"].item() == 1.0
    assert (list(map_), asked) == (["a", "b"], 1)
    map_["a"] = torch.ones(1)
    assert map_.block is None


def test_a_module_loads_it() -> None:
    source, target = nn.Linear(3, 2), nn.Linear(3, 2)
    target.load_state_dict(MapOfTensors(source.state_dict()))
    assert MapOfTensors(target.state_dict()) == source.state_dict()


def test_reductions_are_views_of_one_block_in_the_order_of_the_parameters() -> None:
    model = nn.Linear(3, 2)
    model(torch.ones(1, 3)).sum().backward()
    accumulator = GradAccumulator(["weight", "bias"], 1)
    accumulator.accumulate(model.named_parameters())
    mean = accumulator.mean_reduce()
    assert list(mean) == ["weight", "bias"]
    assert mean["weight"].untyped_storage().data_ptr() == mean["bias"].untyped_storage().data_ptr()
    assert all(tensor.data_ptr() % 64 == 0 for tensor in mean.values())


def test_its_text_names_each_tensor_once() -> None:
    assert repr(some()) == "MapOfTensors({z: float32 [2, 3], a: float64 [2]})"
