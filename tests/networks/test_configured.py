"""NetworkParameters from [network] of a config, and weights copied by name."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest

from hive.config import NetworkConfig
from hive.config.keys import keys_of
from hive.errors import NetworkError, RecordError
from hive.networks import PolicyHeadParameters
from hive.networks.build.configured import copy_arrays, load_module, network_parameters
from hive.networks.build.layers import ACTIVATIONS


def test_network_parameters_are_those_of_coach() -> None:
    parameters = network_parameters(NetworkConfig(middleware=(4,), activation="relu"), 0.125)
    assert parameters.middleware_parameters is not None
    assert (parameters.middleware_parameters.widths, parameters.middleware_parameters.activation) == ([4], "relu")
    assert list(parameters.input_embedders_parameters) == ["observation"]
    assert (parameters.learning_rate, parameters.module) == (0.125, None)
    assert parameters.use_separate_networks_per_head is True


def test_every_activation_of_the_config_is_a_layer() -> None:
    assert set(keys_of(NetworkConfig)["activation"].limits.choices) == ACTIVATIONS.keys()


INITIAL: dict[str, Any] = {
    "initialization": "uniform",
    "hidden_gain": 0.5,
    "policy_gain": 0.25,
    "value_gain": 2.0,
    "action_distribution": "squashed",
    "action_deviation": "output",
    "initial_deviation": 0.125,
}


def test_initial_weights_and_deviations_are_those_of_the_config() -> None:
    parameters = network_parameters(NetworkConfig(**INITIAL))
    assert (parameters.initialization, parameters.hidden_gain) == ("uniform", 0.5)
    policy, value = parameters.heads_parameters
    assert isinstance(policy, PolicyHeadParameters)
    assert (policy.gain, policy.action_deviation, policy.initial_deviation) == (0.25, "output", 0.125)
    assert policy.action_distribution == "squashed"
    assert value.gain == 2.0
    usual = {field.name: field.default for field in dataclasses.fields(NetworkConfig)}
    assert {key: usual[key] for key in INITIAL} == {
        "initialization": "orthogonal",
        "hidden_gain": 2**0.5,
        "policy_gain": 0.01,
        "value_gain": 1.0,
        "action_distribution": "gaussian",
        "action_deviation": "parameter",
        "initial_deviation": 1.0,
    }


@pytest.mark.parametrize(("name", "gain"), [("q", 2.0), ("dueling_q", 2.0), ("categorical_q", None)])
def test_action_values_have_the_gain_of_values(name: str, gain: float | None) -> None:
    (head,) = network_parameters(NetworkConfig(value_gain=gain or 1.0), heads=[name]).heads_parameters
    assert head.gain == gain


@pytest.mark.parametrize(
    ("key", "heads"),
    [
        ("policy_gain", ["q"]),
        ("action_distribution", ["q"]),
        ("action_deviation", ["q"]),
        ("initial_deviation", ["q"]),
        ("initial_deviation", ["squashed_policy", "value"]),
        ("value_gain", ["policy", "categorical_q"]),
    ],
)
def test_settings_of_heads_that_the_algorithm_lacks_are_refused(key: str, heads: list[str]) -> None:
    text = rf"\[network\] {key} `{INITIAL[key]}` is not used: this algorithm has the heads {', '.join(heads)}"
    with pytest.raises(NetworkError, match=text) as caught:
        network_parameters(NetworkConfig(**{key: INITIAL[key]}), heads=heads)
    assert caught.value.hint == f"leave {key} out"


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
