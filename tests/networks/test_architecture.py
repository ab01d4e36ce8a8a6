"""The signatures of Architecture and of its implementation."""

from __future__ import annotations

import inspect

import pytest

from hive.networks import Architecture, NetworkParameters, Spaces, TorchArchitecture

# Coach's signatures; hive's methods accept every call that these accept.
SIGNATURES = {
    "accumulate_gradients": {
        "inputs": None,
        "targets": None,
        "additional_fetches": None,
        "importance_weights": None,
        "no_accumulation": False,
    },
    "apply_and_reset_gradients": {"gradients": None, "scaler": 1.0},
    "apply_gradients": {"gradients": None, "scaler": 1.0},
    "get_variable_value": {"variable": None},
    "get_weights": {},
    "parallel_predict": {"sess": None, "network_input_tuples": None},
    "predict": {"inputs": None, "outputs": None, "squeeze_output": True, "initial_feed_dict": None},
    "reset_accumulated_gradients": {},
    "set_is_training": {"state": None},
    "set_variable_value": {"assign_op": None, "value": None, "placeholder": None},
    "set_weights": {"weights": None, "rate": 1.0},
    "train_on_batch": {
        "inputs": None,
        "targets": None,
        "scaler": 1.0,
        "additional_fetches": None,
        "importance_weights": None,
    },
}


@pytest.mark.parametrize("owner", [Architecture, TorchArchitecture])
@pytest.mark.parametrize("method", SIGNATURES)
def test_signatures_are_coachs(owner: type, method: str) -> None:
    parameters = {k: p for k, p in inspect.signature(getattr(owner, method)).parameters.items() if k != "self"}
    assert list(parameters) == list(SIGNATURES[method])
    for name, default in SIGNATURES[method].items():
        assert parameters[name].default in (default, inspect.Parameter.empty), name


def test_the_constructor_is_coachs() -> None:
    parameters = inspect.signature(Architecture.__init__).parameters
    assert list(parameters) == ["self", "agent_parameters", "spaces", "name"]
    assert parameters["name"].default == ""


def test_the_base_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Architecture(NetworkParameters(), Spaces({}, object()))  # type: ignore[abstract,arg-type]
