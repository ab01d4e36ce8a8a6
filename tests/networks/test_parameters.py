"""NetworkParameters: Coach's fields and defaults, without its faults."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hive.compat.coach.architecture import network_parameters_of
from hive.errors import NetworkError
from hive.networks import (
    EmbeddingMergerType,
    HeadParameters,
    InputEmbedderParameters,
    MiddlewareParameters,
    NetworkParameters,
    OptimizerSettings,
)
from hive.networks.build.parameters import GradientClippingMethod


def test_enums_have_coachs_numbers() -> None:
    assert GradientClippingMethod.ClipByGlobalNorm.value == 0
    assert EmbeddingMergerType.Concat.value == 0


def test_defaults_are_not_shared() -> None:
    one, two = NetworkParameters(), NetworkParameters()
    one.input_embedders_parameters["observation"] = InputEmbedderParameters()
    one.heads_parameters.append(HeadParameters("value"))
    assert two.input_embedders_parameters == {}
    assert two.heads_parameters == []


@pytest.mark.parametrize(
    "parameters",
    [NetworkParameters(), InputEmbedderParameters(), MiddlewareParameters(), HeadParameters("value")],
    ids=lambda parameters: type(parameters).__name__,
)
def test_a_misspelt_attribute_raises(parameters: Any) -> None:
    with pytest.raises(AttributeError, match="lerning_rate"):
        parameters.lerning_rate = 1e-3


def test_copies_of_heads_are_written_out() -> None:
    assert [head.name for head in NetworkParameters().heads()] == ["policy", "value"]
    twins = NetworkParameters(
        heads_parameters=[HeadParameters("value", num_output_head_copies=2), HeadParameters("policy")]
    )
    assert [head.name for head in twins.heads()] == ["value", "value", "policy"]


def test_the_learning_rate_decays_in_stairs() -> None:
    assert NetworkParameters(learning_rate=0.5).learning_rate_at(10**6) == 0.5
    parameters = NetworkParameters(learning_rate=1.0, learning_rate_decay_rate=0.5, learning_rate_decay_steps=3)
    assert [parameters.learning_rate_at(update) for update in range(7)] == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]


def test_a_decay_without_steps_is_refused() -> None:
    with pytest.raises(NetworkError, match="needs learning_rate_decay_steps"):
        NetworkParameters(learning_rate_decay_rate=0.9).learning_rate_at(0)


def test_optimizer_settings_take_the_fields_over() -> None:
    parameters = NetworkParameters(optimizer_type="RMSProp", momentum=0.5, weight_decay=0.1)
    assert parameters.optimizer_settings() == OptimizerSettings("rmsprop", (0.9, 0.99), 1e-4, 0.9, 0.5, 0.1)
    with pytest.raises(NetworkError, match="optimizer_type = 'Adagrad' is not one of"):
        NetworkParameters(optimizer_type="Adagrad")


def test_parameters_are_found_in_agent_parameters() -> None:
    main, critic = NetworkParameters(), NetworkParameters(learning_rate=0.1)
    wrappers = {"main": main, "critic": critic}
    assert network_parameters_of(main, "anything") is main
    assert network_parameters_of(wrappers, "critic/target") is critic
    assert network_parameters_of(SimpleNamespace(network_wrappers=wrappers), "main") is main
    with pytest.raises(NetworkError, match="no parameters for network `actor`") as error:
        network_parameters_of(wrappers, "actor/online")
    assert error.value.hint == "there are: main, critic"
    with pytest.raises(NetworkError, match="int holds no network parameters"):
        network_parameters_of(3, "main")
