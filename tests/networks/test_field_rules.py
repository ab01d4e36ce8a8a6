"""Fields of parameter classes: valid values in constructors, in assignments, and when a network is built."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from hive.compat.coach.torch_architecture import TorchArchitecture
from hive.envs.spaces.actions import Discrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError
from hive.networks import (
    CategoricalQHeadParameters,
    DuelingQHeadParameters,
    EmbeddingMergerType,
    GRUMiddlewareParameters,
    HeadParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    MiddlewareParameters,
    NetworkParameters,
    OptimizerSettings,
    PolicyHeadParameters,
    PPOHeadParameters,
    QuantileQHeadParameters,
    Spaces,
    build_network,
)
from hive.networks.build.field_rules import CheckedFields, FieldRule, FieldRules
from hive.networks.build.parameters import GradientClippingMethod

KINDS: dict[Any, Any] = {
    NetworkParameters: NetworkParameters,
    InputEmbedderParameters: InputEmbedderParameters,
    MiddlewareParameters: MiddlewareParameters,
    GRUMiddlewareParameters: GRUMiddlewareParameters,
    LSTMMiddlewareParameters: LSTMMiddlewareParameters,
    HeadParameters: lambda: HeadParameters("value"),
    DuelingQHeadParameters: DuelingQHeadParameters,
    CategoricalQHeadParameters: CategoricalQHeadParameters,
    QuantileQHeadParameters: QuantileQHeadParameters,
    PolicyHeadParameters: PolicyHeadParameters,
    PPOHeadParameters: PPOHeadParameters,
}
NAN, INFINITY = float("nan"), float("inf")
NUMBERS: list[Any] = [NAN, INFINITY, "0.5", True, (0.5,)]
FLAGS: list[Any] = [0, 1, "no", None]
WHOLE: list[Any] = [-1, 2.0, "2", True, None, NAN]
BETAS: list[Any] = [*NUMBERS, None, -0.1, 1.0]
WIDTHS: list[Any] = [(64, -1), (0,), (64.0,), 64, "64", b"@", [True]]
NAMES: list[Any] = ["encoder.*", [""], [3], None]
FUNCTIONS: list[Any] = ["package:Class", 3]

REFUSED: dict[Any, dict[str, list[Any]]] = {
    NetworkParameters: {
        "force_cpu": FLAGS,
        "async_training": FLAGS,
        "shared_optimizer": FLAGS,
        "scale_down_gradients_by_number_of_workers_for_sync_training": FLAGS,
        "clip_gradients": [*NUMBERS, -1.0],
        "gradients_clipping_method": ["ByValue", "clipbyvalue", 1, None, EmbeddingMergerType.Sum],
        "l2_regularization": [*NUMBERS, None, -1.0],
        "learning_rate": [*NUMBERS, None, -1.0],
        "learning_rate_decay_rate": [*NUMBERS, None, -1.0],
        "learning_rate_decay_steps": WHOLE,
        "input_embedders_parameters": [None, [], {"observation": {}}, {1: InputEmbedderParameters()}],
        "embedding_merger_type": ["Add", 1, None, GradientClippingMethod.ClipByNorm],
        "middleware_parameters": [(64, 64), InputEmbedderParameters()],
        "heads_parameters": [None, HeadParameters("value"), ["value"], {"value": HeadParameters("value")}],
        "use_separate_networks_per_head": FLAGS,
        "optimizer_type": ["Adagrad", None, 3],
        "optimizer_epsilon": [*NUMBERS, None, -1.0, 0.0],
        "adam_optimizer_beta1": BETAS,
        "adam_optimizer_beta2": BETAS,
        "rms_prop_optimizer_decay": BETAS,
        "batch_size": [*WHOLE, 0],
        "replace_mse_with_huber_loss": FLAGS,
        "create_target_network": FLAGS,
        "tensorflow_support": FLAGS,
        "weight_decay": [*NUMBERS, None, -1.0],
        "momentum": BETAS,
        "module": FUNCTIONS,
        "normalize_observations": ["yes", 1, None],
        "normalize_rewards": ["yes", 1, None],
        "novelty": ["yes", 1, None],
        "gradient_averaging": ["max", None, ["sum"]],
        "clip_stage": ["never", None],
        "initialization": ["normal", None, 1],
        "hidden_gain": [*NUMBERS, None, 0.0, -1.0],
        "noisy_deviation": [*NUMBERS, None, -1.0],
        "backend": ["cuda", None, 1],
        "precision": ["float16", None, 32],
        "critics": WHOLE,
        "critic_gain": [*NUMBERS, -1.0],
        "temperature": FLAGS,
        "value_middleware_parameters": [(64, 64), InputEmbedderParameters()],
        "extractor": FUNCTIONS,
        "frozen": NAMES,
        "critic_parts": NAMES,
    },
    InputEmbedderParameters: {"widths": WIDTHS, "activation": ["rleu", None, ["relu"]], "layer_norm": FLAGS},
    MiddlewareParameters: {"widths": [*WIDTHS, None], "activation": ["rleu", None], "layer_norm": FLAGS},
    LSTMMiddlewareParameters: {"widths": WIDTHS, "number_of_lstm_cells": [*WHOLE, 0], "dense_last": FLAGS},
    GRUMiddlewareParameters: {"widths": WIDTHS, "number_of_gru_cells": [*WHOLE, 0], "dense_last": FLAGS},
    HeadParameters: {
        "name": ["", None, 3],
        "loss_weight": [*NUMBERS, None],
        "rescale_gradient_from_head_by_factor": [*NUMBERS, None],
        "num_output_head_copies": [*WHOLE, 0],
        "cls": FUNCTIONS,
        "gain": [*NUMBERS, -1.0],
    },
    DuelingQHeadParameters: {"hidden": WHOLE, "num_output_head_copies": [0]},
    CategoricalQHeadParameters: {
        "atoms": [*WHOLE, 1],
        "v_min": [*NUMBERS, None],
        "v_max": [*NUMBERS, None],
        "dueling": WHOLE,
    },
    QuantileQHeadParameters: {"atoms": [*WHOLE, 0], "huber_loss_interval": [*NUMBERS, None, -1.0], "dueling": WHOLE},
    PolicyHeadParameters: {
        "beta_entropy": [*NUMBERS, None],
        "action_distribution": ["normal", None, 1],
        "features": WHOLE,
        "action_deviation": ["outputs", None, 1],
        "initial_deviation": [*NUMBERS, None, 0.0, -1.0],
    },
    PPOHeadParameters: {
        "clip_likelihood_ratio_using_epsilon": [*NUMBERS, 0.0, -0.2],
        "beta_entropy": [*NUMBERS, None],
        "initial_kl_coefficient": [*NUMBERS, None, -1.0],
    },
}
CASES = [(kind, name, value) for kind, names in REFUSED.items() for name, values in names.items() for value in values]


def test_every_field_has_a_rule_and_is_tested() -> None:
    for kind in KINDS:
        assert {field.name for field in fields(kind)} == kind.RULES.keys(), kind
    assert REFUSED[NetworkParameters].keys() == NetworkParameters.RULES.keys()
    assert REFUSED[HeadParameters].keys() == HeadParameters.RULES.keys()


@pytest.mark.parametrize(("kind", "name", "value"), CASES, ids=lambda value: getattr(value, "__name__", repr(value)))
def test_an_impossible_value_is_refused_by_name(kind: Any, name: str, value: Any) -> None:
    parameters = KINDS[kind]()
    before = getattr(parameters, name)
    with pytest.raises(NetworkError, match=f"^{name} = .* is not .+") as error:
        setattr(parameters, name, value)
    assert kind.__name__ in error.value.hint
    assert getattr(parameters, name) is before
    with pytest.raises(NetworkError, match=f"^{name} = "):
        kind(**{"name": "value", name: value} if kind is HeadParameters else {name: value})


def test_the_choices_are_in_the_error() -> None:
    for name, value, expected in (
        ("gradients_clipping_method", "ByValue", "one of ClipByGlobalNorm, ClipByNorm, ClipByValue"),
        ("optimizer_type", "Adagrad", "one of Adam, AdamW, RAdam, RMSProp, SGD, LBFGS"),
        ("clip_gradients", -1.0, "a finite number >= 0 or None"),
        ("momentum", 1.0, "a finite number >= 0 and < 1"),
        ("optimizer_epsilon", -1.0, "a finite number > 0"),
        ("batch_size", 0, "a whole number >= 1"),
    ):
        with pytest.raises(NetworkError) as error:
            NetworkParameters(**{name: value})  # type: ignore[arg-type]
        assert str(error.value) == f"{name} = {value!r} is not {expected}"


def test_names_of_members_become_members() -> None:
    parameters = NetworkParameters(gradients_clipping_method="ClipByValue", embedding_merger_type="Sum")  # type: ignore[arg-type]
    assert parameters.gradients_clipping_method is GradientClippingMethod.ClipByValue
    assert parameters.embedding_merger_type is EmbeddingMergerType.Sum


def test_numbers_of_numpy_are_numbers() -> None:
    parameters = NetworkParameters(
        learning_rate=np.float32(0.5), batch_size=np.int64(8), clip_gradients=2, force_cpu=np.bool_(True)
    )
    assert (parameters.learning_rate, parameters.batch_size, parameters.clip_gradients) == (0.5, 8, 2)
    assert HeadParameters("value", loss_weight=-1, num_output_head_copies=np.int32(2)).num_output_head_copies == 2
    assert NetworkParameters(optimizer_type="rmsprop").optimizer_settings().name == "rmsprop"


SPACES = Spaces({"observation": ObservationSpec((2,), "float32")}, Discrete(2))


def test_changes_inside_of_fields_are_checked_when_the_network_is_built() -> None:
    middleware, embedder = MiddlewareParameters([4]), InputEmbedderParameters([4])
    parameters = NetworkParameters(
        middleware_parameters=middleware, input_embedders_parameters={"observation": embedder}
    )
    TorchArchitecture(parameters, SPACES)
    for part in (middleware, embedder):
        part.widths.append(-1)  # type: ignore[union-attr]
        with pytest.raises(NetworkError, match=r"widths = \[4, -1\] is not a list"):
            TorchArchitecture(parameters, SPACES)
        part.widths.pop()  # type: ignore[union-attr]
    parameters.heads_parameters.append("value")  # type: ignore[arg-type]
    with pytest.raises(NetworkError, match="heads_parameters = "):
        build_network(parameters, SPACES, None)  # type: ignore[arg-type]


def test_assignments_to_the_parameters_of_a_built_network_are_checked() -> None:
    network = TorchArchitecture(NetworkParameters(clip_gradients=0.01), SPACES)
    inputs = {"observation": np.ones((3, 2), np.float32), "output_0_0": np.zeros(3, np.int64)}
    targets = [np.ones(3, np.float32)] * 2
    network.network_parameters.gradients_clipping_method = "ClipByValue"  # type: ignore[assignment]
    network.accumulate_gradients(inputs, targets)
    gradient = np.concatenate([part.ravel() for part in network.accumulated_gradients])
    assert np.abs(gradient).max() == np.float32(0.01)
    assert np.linalg.norm(gradient) > 0.02
    with pytest.raises(NetworkError, match="learning_rate = -1"):
        network.network_parameters.learning_rate = -1


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, replace, lambda p: pickle.loads(pickle.dumps(p))])
def test_parameters_can_be_copied(copied: Any) -> None:
    parameters = NetworkParameters(heads_parameters=[PPOHeadParameters()], middleware_parameters=MiddlewareParameters())
    assert copied(parameters) == parameters


def test_classes_of_users_can_have_rules() -> None:
    @dataclass
    class Own(CheckedFields):
        RULES: ClassVar[FieldRules] = {"speed": FieldRule.number(above=0)}

        speed: float = 1.0
        anything: Any = None

    own = Own(anything={})
    with pytest.raises(NetworkError, match="speed = 0 is not a finite number > 0"):
        own.speed = 0


@pytest.mark.parametrize(
    "settings",
    [
        {"betas": (0.9, 1.0)},
        {"betas": (NAN, 0.9)},
        {"epsilon": 0.0},
        {"decay": -1.0},
        {"momentum": 1.0},
        {"weight_decay": -0.1},
    ],
)
def test_settings_of_optimizers_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(NetworkError, match=f"{next(iter(settings))}.* is not a finite number"):
        OptimizerSettings(**settings)
