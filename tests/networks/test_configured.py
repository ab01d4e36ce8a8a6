"""NetworkParameters from [network] of a config, and weights copied by name."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from hive.config import NetworkConfig
from hive.errors import NetworkError, RecordError
from hive.networks import copy_arrays, load_module, network_parameters


def test_network_parameters_are_those_of_coach() -> None:
    parameters = network_parameters(NetworkConfig(middleware=(4,), activation="relu"), 0.125)
    assert parameters.middleware_parameters is not None
    assert (parameters.middleware_parameters.widths, parameters.middleware_parameters.activation) == ([4], "relu")
    assert list(parameters.input_embedders_parameters) == ["observation"]
    assert (parameters.learning_rate, parameters.module) == (0.125, None)
    assert parameters.use_separate_networks_per_head is True


def test_layer_norm_is_that_of_all_dense_layers() -> None:
    for layer_norm in (False, True):
        parameters = network_parameters(NetworkConfig(layer_norm=layer_norm))
        parts = [parameters.middleware_parameters, *parameters.input_embedders_parameters.values()]
        assert [part.layer_norm for part in parts if part is not None] == [layer_norm, layer_norm]


def test_classes_are_loaded_by_name() -> None:
    assert load_module("collections:OrderedDict") is collections.OrderedDict
    parameters = network_parameters(NetworkConfig(value_head="collections:Counter"))
    heads = {head.name: head.cls for head in parameters.heads_parameters}
    assert heads == {"policy": None, "value": collections.Counter}


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("nowhere.at.all:X", r"\[network\] module `nowhere.at.all:X` cannot be loaded: No module named 'nowhere'"),
        ("collections:Missing", r"`collections:Missing` cannot be loaded: .*no attribute 'Missing'"),
        ("math:pi", r"\[network\] module `math:pi` is 3.14\d*, not a class"),
    ],
)
def test_references_that_cannot_be_loaded_are_refused(reference: str, text: str) -> None:
    with pytest.raises(NetworkError, match=text):
        network_parameters(NetworkConfig(module=reference))


def test_arrays_are_copied_by_name() -> None:
    own = {"a": np.zeros(2, np.float32), "b": np.zeros((), np.float32)}
    copy_arrays({"b": np.float32(3) + np.zeros((), np.float32), "a": np.ones(2, np.float32), "c": np.ones(9)}, own, "x")
    assert (own["a"].tolist(), float(own["b"])) == ([1.0, 1.0], 3.0)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, "is missing"),
        ({"a": np.ones(3, np.float32)}, r"is float32\[3\]"),
        ({"a": np.ones(2)}, r"is float64\[2\]"),
    ],
)
def test_arrays_that_do_not_fit(given: dict[str, np.ndarray], found: str) -> None:
    with pytest.raises(RecordError, match=rf"`a` of the-place {found}, this network has float32\[2\]"):
        copy_arrays(given, {"a": np.zeros(2, np.float32)}, "the-place")
