"""Coach's architectures document: every name, parameter and default of it.

The tables below are the document, written out. `test_db_d..` are faults of Coach's own code in these classes, each
shown to be absent. What differs from the document on purpose is in DIFFERENCES, with the reason. What the fields and
methods do is tested in tests/networks.
"""

from __future__ import annotations

import inspect
import tracemalloc
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from worker_threads import PATIENCE_S, in_threads

from hive.compat.coach import (
    Architecture,
    EmbeddingMergerType,
    GradientClippingMethod,
    HeadParameters,
    LSTMMiddlewareParameters,
    MiddlewareParameters,
    NetworkParameters,
    NetworkWrapper,
    PPOHeadParameters,
    Spaces,
    TorchArchitecture,
    WorkerGroup,
)
from hive.envs.spaces.actions import Discrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError

torch.set_num_threads(1)

# NetworkParameters: parameter -> default, in the document's order.
PARAMETERS: dict[str, Any] = {
    "force_cpu": False,
    "async_training": False,
    "shared_optimizer": True,
    "scale_down_gradients_by_number_of_workers_for_sync_training": True,
    "clip_gradients": None,
    "gradients_clipping_method": GradientClippingMethod.ClipByGlobalNorm,
    "l2_regularization": 0,
    "learning_rate": 0.00025,
    "learning_rate_decay_rate": 0,
    "learning_rate_decay_steps": 0,
    "input_embedders_parameters": {},
    "embedding_merger_type": EmbeddingMergerType.Concat,
    "middleware_parameters": None,
    "heads_parameters": [],
    "use_separate_networks_per_head": False,
    "optimizer_type": "Adam",
    "optimizer_epsilon": 0.0001,
    "adam_optimizer_beta1": 0.9,
    "adam_optimizer_beta2": 0.99,
    "rms_prop_optimizer_decay": 0.9,
    "batch_size": 32,
    "replace_mse_with_huber_loss": False,
    "create_target_network": False,
    "tensorflow_support": True,
}

# hive's, after Coach's
OWN_PARAMETERS = [
    "weight_decay",
    "momentum",
    "module",
    "normalize_observations",
    "normalize_rewards",
    "novelty",
    "gradient_averaging",
    "clip_stage",
    "initialization",
    "hidden_gain",
    "noisy_deviation",
    "backend",
    "precision",
    "critics",
    "critic_gain",
    "temperature",
    "value_middleware_parameters",
    "extractor",
    "frozen",
    "critic_parts",
]

REQUIRED = inspect.Parameter.empty

# Architecture: method -> parameter -> default.
ARCHITECTURE: dict[str, dict[str, Any]] = {
    "__init__": {"agent_parameters": REQUIRED, "spaces": REQUIRED, "name": ""},
    "accumulate_gradients": {
        "inputs": REQUIRED,
        "targets": REQUIRED,
        "additional_fetches": None,
        "importance_weights": None,
        "no_accumulation": False,
    },
    "apply_and_reset_gradients": {"gradients": REQUIRED, "scaler": 1.0},
    "apply_gradients": {"gradients": REQUIRED, "scaler": 1.0},
    "get_variable_value": {"variable": REQUIRED},
    "get_weights": {},
    "parallel_predict": {"sess": REQUIRED, "network_input_tuples": REQUIRED},
    "predict": {"inputs": REQUIRED, "outputs": None, "squeeze_output": True, "initial_feed_dict": None},
    "reset_accumulated_gradients": {},
    "set_is_training": {"state": REQUIRED},
    "set_variable_value": {"assign_op": REQUIRED, "value": REQUIRED, "placeholder": REQUIRED},
    "set_weights": {"weights": REQUIRED, "rate": 1.0},
    "train_on_batch": {
        "inputs": REQUIRED,
        "targets": REQUIRED,
        "scaler": 1.0,
        "additional_fetches": None,
        "importance_weights": None,
    },
}

WRAPPER: dict[str, dict[str, Any]] = {
    "__init__": {
        "agent_parameters": REQUIRED,
        "has_target": REQUIRED,
        "has_global": REQUIRED,
        "name": REQUIRED,
        "spaces": REQUIRED,
        "replicated_device": None,
        "worker_device": None,
    },
    "apply_gradients_and_sync_networks": {"reset_gradients": True},
    "apply_gradients_to_global_network": {"gradients": None},
    "apply_gradients_to_online_network": {"gradients": None},
    "get_global_variables": {},
    "get_local_variables": {},
    "parallel_prediction": {"network_input_tuples": REQUIRED},
    "set_is_training": {"state": REQUIRED},
    "sync": {},
    "train_and_sync_networks": {
        "inputs": REQUIRED,
        "targets": REQUIRED,
        "additional_fetches": [],
        "importance_weights": None,
    },
    "update_online_network": {"rate": 1.0},
    "update_target_network": {"rate": 1.0},
}

# (class, method, parameter): the default here, and why it is not the document's.
DIFFERENCES: dict[tuple[str, str, str], tuple[Any, str]] = {
    ("TorchArchitecture", "set_variable_value", "placeholder"): (None, "only Coach's TensorFlow needs one"),
    ("Architecture", "set_variable_value", "placeholder"): (None, "only Coach's TensorFlow needs one"),
    ("NetworkWrapper", "train_and_sync_networks", "additional_fetches"): (None, "a list as a default is shared"),
}

# hive's own parameters, keyword-only, so that what Coach takes by position means the same here.
ADDED = {
    ("TorchArchitecture", "__init__"): ["generator"],
    ("NetworkWrapper", "__init__"): ["generator", "group", "worker"],
}

SPACES = Spaces({"observation": ObservationSpec((3,), "float32")}, Discrete(2))
RNG = np.random.default_rng(0)
N = 6
OBSERVATIONS = RNG.standard_normal((N, 3), dtype=np.float32)
STATES = {"observation": OBSERVATIONS}
INPUTS = {"observation": OBSERVATIONS, "output_0_0": RNG.integers(0, 2, N)}
TARGETS = [RNG.standard_normal(N, dtype=np.float32), RNG.standard_normal(N, dtype=np.float32)]


def architecture(spaces: Spaces = SPACES, **parameters: Any) -> TorchArchitecture:
    return TorchArchitecture(NetworkParameters(**parameters), spaces, "main/online")


def values(**parameters: Any) -> TorchArchitecture:
    """A network with one value head, trained by SGD with rate 1, so that a step is the gradient."""
    given = {"heads_parameters": [HeadParameters("value")], "optimizer_type": "SGD", "learning_rate": 1.0}
    return architecture(**{**given, **parameters})


def wrapper(has_target: bool | None = True, has_global: bool = True, **parameters: Any) -> NetworkWrapper:
    return NetworkWrapper({"main": NetworkParameters(**parameters)}, has_target, has_global, "main", SPACES)


def flat(arrays: Any) -> np.ndarray:
    return np.concatenate([np.ravel(array) for array in arrays])


def weights(network: TorchArchitecture | None) -> np.ndarray:
    assert network is not None
    return flat(network.get_weights())


def gradient_of(network: TorchArchitecture, inputs: Any = STATES, targets: Any = TARGETS[0]) -> np.ndarray:
    network.accumulate_gradients(inputs, targets, no_accumulation=True)
    return flat(network.accumulated_gradients)


# --- names, signatures, defaults


def test_network_parameters_have_every_field_in_order_with_its_default() -> None:
    found = fields(NetworkParameters)[: len(PARAMETERS)]
    assert [field.name for field in found] == list(PARAMETERS)
    for field in found:
        default = field.default if field.default_factory is MISSING else field.default_factory()
        assert default == PARAMETERS[field.name], field.name
    assert [field.name for field in fields(NetworkParameters)[len(PARAMETERS) :]] == OWN_PARAMETERS
    own = [parameter.annotation for parameter in inspect.signature(NetworkParameters).parameters.values()]
    assert all(annotation is not REQUIRED for annotation in own)


def test_network_parameters_may_be_given_by_position() -> None:
    given = list(PARAMETERS.values())
    given[4], given[20] = 0.5, 64
    parameters = NetworkParameters(*given)
    assert (parameters.clip_gradients, parameters.batch_size) == (0.5, 64)


@pytest.mark.parametrize(
    ("cls", "methods"),
    [(Architecture, ARCHITECTURE), (TorchArchitecture, ARCHITECTURE), (NetworkWrapper, WRAPPER)],
    ids=["Architecture", "TorchArchitecture", "NetworkWrapper"],
)
def test_every_method_is_there_with_its_parameters_and_defaults(cls: Any, methods: dict[str, dict[str, Any]]) -> None:
    for method, documented in methods.items():
        found = [p for p in inspect.signature(getattr(cls, method)).parameters.values() if p.name != "self"]
        added = ADDED.get((cls.__name__, method), [])
        assert [parameter.name for parameter in found] == [*documented, *added], method
        for parameter in found[len(documented) :]:
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        for parameter in found[: len(documented)]:
            expected = documented[parameter.name]
            expected, _ = DIFFERENCES.get((cls.__name__, method, parameter.name), (expected, ""))
            assert parameter.default == expected, (method, parameter.name)
            assert parameter.annotation is not REQUIRED
        assert method == "__init__" or inspect.getdoc(getattr(cls, method)), method


def test_parallel_predict_is_static_and_accumulated_gradients_a_property() -> None:
    assert isinstance(inspect.getattr_static(TorchArchitecture, "parallel_predict"), staticmethod)
    assert isinstance(inspect.getattr_static(TorchArchitecture, "accumulated_gradients"), property)


def test_architecture_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Architecture(NetworkParameters(), SPACES)  # type: ignore[abstract]


# --- what the text promises and no other test shows


def group_of(count: int, timeout_s: float = PATIENCE_S, **parameters: Any) -> list[NetworkWrapper]:
    group: WorkerGroup[TorchArchitecture] = WorkerGroup(count, timeout_s=timeout_s)
    given = NetworkParameters(heads_parameters=[HeadParameters("value")], **parameters)
    return [NetworkWrapper(given, False, True, "main", SPACES, group=group, worker=worker) for worker in range(count)]


def test_replace_mse_with_huber_loss() -> None:
    for head in (HeadParameters("value"), HeadParameters("q")):
        network = architecture(heads_parameters=[head], replace_mse_with_huber_loss=True)
        inputs = STATES if head.name == "value" else INPUTS
        predicted = network.predict(STATES)
        chosen = predicted if head.name == "value" else predicted[np.arange(N), INPUTS["output_0_0"]]
        total, *_ = network.accumulate_gradients(inputs, chosen + 5.0)
        assert total == pytest.approx(4.5, rel=1e-5)


def test_gradients_of_an_identical_network_may_be_applied() -> None:
    one, two = values(), values()
    gradient_of(one)
    two.apply_gradients(one.accumulated_gradients)
    one.apply_gradients(one.accumulated_gradients)
    assert np.array_equal(weights(one), weights(two))


def test_get_and_set_variable_value_of_the_documents_example() -> None:
    network = architecture(heads_parameters=[PPOHeadParameters(initial_kl_coefficient=0.5)])
    assert network.get_variable_value("heads.0.kl_coefficient") == 0.5
    network.set_variable_value("heads.0.kl_coefficient", np.float32(0.75), "heads.0.kl_coefficient_ph")
    assert network.get_variable_value("heads.0.kl_coefficient") == 0.75


ERRORS: list[tuple[str, Callable[[], Any]]] = [
    ("learning_rate = nan is not a finite number", lambda: architecture(learning_rate=float("nan"))),
    ("batch_size = 0 is not a whole number", lambda: architecture(batch_size=0)),
    ("gradient_averaging = 'max' is not one of sum, mean, samples", lambda: architecture(gradient_averaging="max")),
    ("target 0 is not finite", lambda: values().accumulate_gradients(STATES, TARGETS[0] * np.inf)),
    (
        "importance weights of output 0 is float32 \\[3\\]",
        lambda: values().accumulate_gradients(STATES, TARGETS[0], importance_weights=TARGETS[0][:3]),
    ),
    ("from 0 to 1, got 2", lambda: wrapper().update_target_network(2.0)),
]


@pytest.mark.parametrize(("message", "call"), ERRORS, ids=[message for message, _ in ERRORS])
def test_what_is_wrong_is_an_error_of_ours_that_names_it(message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(NetworkError, match=message):
        call()


# --- faults of Coach's own code, absent here


def test_db_d2_training_does_not_touch_the_memory_of_acting() -> None:
    """In mid-episode, a batch in between: the acting goes on as if the batch had taken place elsewhere."""
    lstm = LSTMMiddlewareParameters(number_of_lstm_cells=4)
    network = values(middleware_parameters=lstm, learning_rate=0.0)
    first = {"observation": OBSERVATIONS[:1], "recurrent_state": network.initial_state(1)}
    value, state = network.predict(first)
    again = network.predict(first)
    assert np.array_equal(again[0], value)  # asking for a log does not advance it
    second = {"observation": OBSERVATIONS[1:2], "recurrent_state": state}
    expected = network.predict(second)
    network.train_on_batch({**STATES, "recurrent_state": network.initial_state(2)}, TARGETS[0])
    assert all(map(np.array_equal, network.predict(second), expected))


def test_db_d3_lbfgs_returns_what_the_others_return_and_learns() -> None:
    network = values(optimizer_type="LBFGS", learning_rate=0.5)
    results = [network.train_on_batch(STATES, TARGETS[0]) for _ in range(30)]
    for total, losses, norm, fetched in results:
        assert (losses, fetched) == ([total], [])
        assert norm > 0.0
    assert results[-1][0] < 0.1 * results[0][0]


@pytest.mark.parametrize("async_training", [True, False])
def test_db_d4_an_update_counts_once(async_training: bool) -> None:
    """The rate halves every 2 updates, not every one, however the network is trained."""
    copies = wrapper(
        async_training=async_training, learning_rate_decay_rate=0.5, learning_rate_decay_steps=2, optimizer_type="SGD"
    )
    network = copies.global_network
    assert network is not None
    steps = []
    for _ in range(4):
        before = weights(network)
        copies.apply_gradients_to_global_network([np.ones_like(g) for g in network.accumulated_gradients])
        steps.append(float((before - weights(network)).mean()))
    assert network.updates == 4
    np.testing.assert_allclose(np.divide(steps, steps[0]), [1.0, 1.0, 0.5, 0.5], rtol=2e-2)


class Scaled(nn.Module):
    """A user's module with a parameter of no axes."""

    def __init__(self, spaces: Spaces) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.layer(x).squeeze(-1) * self.scale,)


def test_db_d5_a_scaler_changes_the_step_but_not_the_callers_arrays() -> None:
    network = values(module=Scaled)
    assert np.shape(network.get_variable_value("scale")) == ()
    gradients = [np.ones_like(gradient) for gradient in network.accumulated_gradients]
    gradients[network.flat.names.index("scale")] = np.float32(1.0)  # a NumPy scalar is not an array
    before = weights(network)
    network.apply_gradients(gradients, scaler=0.25)
    np.testing.assert_allclose(before - weights(network), 0.25, rtol=1e-5)
    assert all((np.asarray(gradient) == 1.0).all() for gradient in gradients)
    accumulated = gradient_of(network)
    network.apply_gradients(network.accumulated_gradients, scaler=0.5)
    assert np.array_equal(flat(network.accumulated_gradients), accumulated)


def test_db_d6_a_worker_that_stays_away_is_named_and_nobody_hangs() -> None:
    workers = group_of(3, timeout_s=0.05)
    raised = in_threads(*[lambda w=w: w.train_and_sync_networks(STATES, TARGETS[0]) for w in workers[::2]])
    assert [type(error) for error in raised] == [NetworkError] * 2
    assert {str(error) for error in raised} == {"no gradients of `main` from worker 1 within 0.05 s"}


def test_db_d7_a_reset_is_a_reset_of_nan_too() -> None:
    network = values()
    for part in network.accumulated_gradients:
        part.fill(np.nan)
    network.reset_accumulated_gradients()
    assert np.array_equal(flat(network.accumulated_gradients), np.zeros(len(flat(network.accumulated_gradients))))


def test_db_d9_a_target_update_is_one_pass_without_copies() -> None:
    """Nothing of the size of the weights is allocated on the way; Coach's fetched and fed both networks."""
    copies = wrapper(middleware_parameters=MiddlewareParameters((256, 256)))
    assert copies.target_network is not None
    copies.update_target_network(0.01)
    tracemalloc.start()
    copies.update_target_network(0.01)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < copies.target_network.flat.parameter_bytes / 10


@pytest.mark.parametrize("factor", [0.0, -1.0, 0.5])
def test_db_d11_the_rescaling_of_a_head_is_a_constant(factor: float) -> None:
    """It acts on the gradient below the head, is no parameter, and regularisation does not shrink it."""
    head = HeadParameters("value", rescale_gradient_from_head_by_factor=factor)
    network, plain = values(heads_parameters=[head], l2_regularization=0.5, learning_rate=0.1), values()
    assert "trunk.4.rescale" not in network.flat.names
    for _ in range(5):
        network.train_on_batch(STATES, TARGETS[0])
    assert network.get_variable_value("trunk.4.rescale").tolist() == [factor]
    unregularised = values(heads_parameters=[head])
    below = [not name.startswith("trunk.4") for name in plain.flat.names]
    gradient_of(plain), gradient_of(unregularised)
    pairs = zip(plain.accumulated_gradients, unregularised.accumulated_gradients, below, strict=True)
    for whole, rescaled, is_below in pairs:
        np.testing.assert_allclose(rescaled, factor * whole if is_below else whole, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("heads", [1, 3])
def test_db_d12_regularisation_counts_once_whatever_the_number_of_heads(heads: int) -> None:
    network = values(heads_parameters=[HeadParameters("value") for _ in range(heads)], l2_regularization=0.1)
    outputs = network.predict(STATES, squeeze_output=False)
    total, losses, *_ = network.accumulate_gradients(STATES, list(outputs))  # no other loss
    matrices = flat([weight for weight in network.get_weights() if weight.ndim > 1])
    assert len(losses) == heads + 1
    assert total == pytest.approx(0.05 * float((matrices**2).sum()), rel=1e-4)


def test_db_d16_the_gradient_does_not_grow_with_the_batch() -> None:
    """A batch of the same samples three times over has the same gradient, for every kind of head with a loss."""
    for head in ("value", "policy"):
        network = architecture(heads_parameters=[HeadParameters(head)])
        inputs = STATES if head == "value" else INPUTS
        once = gradient_of(network, inputs)
        thrice = {name: np.concatenate([array] * 3) for name, array in inputs.items()}
        np.testing.assert_allclose(
            gradient_of(network, thrice, np.concatenate([TARGETS[0]] * 3)), once, rtol=1e-4, atol=1e-6
        )
