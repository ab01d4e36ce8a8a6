"""Coach's architectures document, line by line: every name, parameter, default and promise of it.

The tables below are the document, written out. `test_db_d..` are the faults of Coach's own code in these classes, each
shown to be absent. What differs from the document on purpose is in DIFFERENCES, with the reason.
"""

from __future__ import annotations

import inspect
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hive.envs.spec import Discrete, ObservationSpec
from hive.errors import NetworkError
from hive.networks import (
    Architecture,
    CategoricalQHeadParameters,
    DuelingQHeadParameters,
    EmbeddingMergerType,
    GradientClippingMethod,
    HeadParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    MiddlewareParameters,
    NetworkParameters,
    NetworkWrapper,
    PPOHeadParameters,
    QuantileQHeadParameters,
    Spaces,
    TorchArchitecture,
    WorkerGroup,
)

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
PATIENCE_S = 30.0  # of a test that would otherwise hang


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


# --- NetworkParameters: every field does what it says


def test_force_cpu() -> None:
    with pytest.raises(NetworkError, match="cannot live on cuda"):
        NetworkWrapper(NetworkParameters(), False, False, "main", SPACES, worker_device="cuda")
    NetworkWrapper(NetworkParameters(force_cpu=True), False, False, "main", SPACES, "cuda", "cuda")


def group_of(count: int, timeout_s: float = PATIENCE_S, **parameters: Any) -> list[NetworkWrapper]:
    group: WorkerGroup[TorchArchitecture] = WorkerGroup(count, timeout_s=timeout_s)
    given = NetworkParameters(heads_parameters=[HeadParameters("value")], **parameters)
    return [NetworkWrapper(given, False, True, "main", SPACES, group=group, worker=worker) for worker in range(count)]


def at_once(*calls: Callable[[], Any]) -> list[BaseException | None]:
    """Runs every call in a thread of its own; what each raised."""
    raised: list[BaseException | None] = [None] * len(calls)

    def run(place: int) -> None:
        torch.set_num_threads(1)
        try:
            calls[place]()
        except BaseException as error:
            raised[place] = error

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    return raised


def test_async_training_decides_whether_workers_wait() -> None:
    alone, _ = group_of(2, async_training=True)
    alone.train_and_sync_networks(STATES, TARGETS[0])
    waiting, _ = group_of(2, timeout_s=0.05)
    with pytest.raises(NetworkError, match="no gradients of `main` from worker 1 within"):
        waiting.train_and_sync_networks(STATES, TARGETS[0])


@pytest.mark.parametrize("shared", [True, False])
def test_shared_optimizer_decides_whose_moments_are_used(shared: bool) -> None:
    workers = group_of(2, shared_optimizer=shared)
    assert at_once(*[lambda w=w: w.train_and_sync_networks(STATES, TARGETS[0]) for w in workers]) == [None] * 2
    network = workers[0].global_network
    assert network is not None
    assert (network.updates, [w.online_network.updates for w in workers]) == ((1, [0, 0]) if shared else (0, [1, 1]))


@pytest.mark.parametrize("scale_down", [True, False])
def test_scale_down_averages_over_the_workers(scale_down: bool) -> None:
    workers = group_of(
        2,
        optimizer_type="SGD",
        learning_rate=1.0,
        scale_down_gradients_by_number_of_workers_for_sync_training=scale_down,
    )
    before, gradient = weights(workers[0].global_network), gradient_of(workers[0].online_network)
    assert at_once(*[lambda w=w: w.train_and_sync_networks(STATES, TARGETS[0]) for w in workers]) == [None] * 2
    step = before - weights(workers[0].global_network)
    np.testing.assert_allclose(step, gradient if scale_down else 2 * gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("method", GradientClippingMethod)
def test_clip_gradients_and_its_method(method: GradientClippingMethod) -> None:
    plain = values()
    gradient = gradient_of(plain)
    parts = [part.copy() for part in plain.accumulated_gradients]
    if method is GradientClippingMethod.ClipByGlobalNorm:
        expected = gradient * min(1.0, 0.05 / np.linalg.norm(gradient))
    elif method is GradientClippingMethod.ClipByNorm:
        expected = flat([part * min(1.0, 0.05 / np.linalg.norm(part)) for part in parts])
    else:
        expected = gradient.clip(-0.05, 0.05)
    assert not np.allclose(expected, gradient)
    clipped = gradient_of(values(clip_gradients=0.05, gradients_clipping_method=method))
    np.testing.assert_allclose(clipped, expected, rtol=1e-4, atol=1e-7)


def test_l2_regularization_is_a_loss() -> None:
    network = values(l2_regularization=0.1)
    _, losses, *_ = network.accumulate_gradients(STATES, TARGETS[0])
    matrices = flat([weight for weight in network.get_weights() if weight.ndim > 1])
    assert losses[1] == pytest.approx(0.1 * float((matrices**2).sum()) / 2, rel=1e-5)


def test_learning_rate_and_its_decay_in_steps() -> None:
    network = values(learning_rate=0.5, learning_rate_decay_rate=0.1, learning_rate_decay_steps=2)
    steps = []
    for _ in range(5):
        before = weights(network)
        network.apply_gradients([np.ones_like(part) for part in network.accumulated_gradients])
        steps.append(float((before - weights(network)).mean()))
    np.testing.assert_allclose(steps, [0.5, 0.5, 0.05, 0.05, 0.005], rtol=1e-3)
    with pytest.raises(NetworkError, match="needs learning_rate_decay_steps"):
        values(learning_rate_decay_rate=0.1)


def test_input_embedders_are_chosen_by_the_input() -> None:
    spaces = Spaces(
        {"observation": ObservationSpec((8, 8, 3), "uint8"), "measurements": ObservationSpec((2,), "float32")},
        Discrete(2),
    )
    embedders = {name: InputEmbedderParameters([5]) for name in spaces.observations}
    network = architecture(spaces, input_embedders_parameters=embedders)
    kinds = [{type(layer) for layer in embedder.modules()} for embedder in network.module.trunk[0].embedders]
    assert [nn.Conv2d in kind for kind in kinds] == [False, True]  # in order of their names
    only = architecture(spaces, input_embedders_parameters={"measurements": InputEmbedderParameters()})
    assert only.predict({"measurements": np.zeros((4, 2), np.float32)})[1].shape == (4,)


@pytest.mark.parametrize("merger", EmbeddingMergerType)
def test_embedding_merger_type(merger: EmbeddingMergerType) -> None:
    spaces = Spaces({name: ObservationSpec((3,), "float32") for name in "ab"}, Discrete(2))
    network = architecture(
        spaces, embedding_merger_type=merger, middleware_parameters=MiddlewareParameters(()), optimizer_type="SGD"
    )
    a, b = OBSERVATIONS, OBSERVATIONS[::-1].copy()
    swaps = np.allclose(network.predict({"a": a, "b": b})[0], network.predict({"a": b, "b": a})[0], atol=1e-6)
    assert swaps == (merger is EmbeddingMergerType.Sum)
    assert network.module.trunk[-1].in_features == (3 if swaps else 6)


def test_middleware_parameters_fully_connected_and_lstm() -> None:
    dense = architecture(middleware_parameters=MiddlewareParameters((7, 5)))
    assert [layer.out_features for layer in dense.module.trunk if isinstance(layer, nn.Linear)] == [7, 5, 3]
    lstm = architecture(middleware_parameters=LSTMMiddlewareParameters((7,), number_of_lstm_cells=4))
    policy, value, state = lstm.predict({**STATES, "recurrent_state": lstm.initial_state(N)})
    assert (policy.shape, value.shape, state.shape) == ((N, 2), (N,), (N, 8))


HEADS = [
    (HeadParameters("value"), (N,)),
    (HeadParameters("q"), (N, 2)),
    (DuelingQHeadParameters(hidden=4), (N, 2)),
    (CategoricalQHeadParameters(atoms=11), (N, 2, 11)),
    (QuantileQHeadParameters(atoms=9), (N, 2, 9)),
    (HeadParameters("policy"), (N, 2)),
    (PPOHeadParameters(), (N, 2)),
]


def test_heads_parameters_are_outputs_in_order_with_weights_and_losses() -> None:
    network = architecture(heads_parameters=[head for head, _ in HEADS])
    assert [output.shape for output in network.predict(STATES)] == [shape for _, shape in HEADS]
    twice = architecture(heads_parameters=[HeadParameters("value"), HeadParameters("value", loss_weight=0.25)])
    value, _ = twice.predict(STATES)
    total, losses, *_ = twice.accumulate_gradients(STATES, [value + 1, TARGETS[0]])
    expected = 0.25 * float(((twice.predict(STATES)[1] - TARGETS[0]) ** 2).mean())
    assert losses == [pytest.approx(1.0, rel=1e-5), pytest.approx(expected, rel=1e-5)]
    assert total == pytest.approx(sum(losses))


def test_use_separate_networks_per_head() -> None:
    shared, separate = architecture(), architecture(use_separate_networks_per_head=True)
    assert len(separate.get_weights()) > len(shared.get_weights())
    separate.accumulate_gradients(INPUTS, [np.zeros(N, np.float32), TARGETS[1]])
    gradients = dict(zip(separate.flat.names, separate.accumulated_gradients, strict=True))
    assert not any(gradient.any() for name, gradient in gradients.items() if name.startswith("branches.0"))
    assert all(gradient.any() for name, gradient in gradients.items() if name.startswith("branches.1"))


@pytest.mark.parametrize("optimizer_type", ["Adam", "RMSProp"])
def test_the_constants_of_the_optimizers(optimizer_type: str) -> None:
    network = values(optimizer_type=optimizer_type, learning_rate=0.01)
    parameter = nn.Parameter(torch.from_numpy(weights(network)))
    reference: Any = (
        torch.optim.Adam([parameter], 0.01, betas=(0.9, 0.99), eps=1e-4)
        if optimizer_type == "Adam"
        else torch.optim.RMSprop([parameter], 0.01, alpha=0.9, eps=1e-4)
    )
    for _ in range(4):
        gradient = gradient_of(network)
        network.apply_gradients(network.accumulated_gradients)
        parameter.grad = torch.from_numpy(gradient)
        reference.step()
    np.testing.assert_allclose(weights(network), parameter.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [2, 4])
def test_batch_size(size: int) -> None:
    copies = wrapper(batch_size=size)
    assert len(copies.train_in_batches(INPUTS, TARGETS)) == -(-N // size)


def test_replace_mse_with_huber_loss() -> None:
    for head in (HeadParameters("value"), HeadParameters("q")):
        network = architecture(heads_parameters=[head], replace_mse_with_huber_loss=True)
        inputs = STATES if head.name == "value" else INPUTS
        predicted = network.predict(STATES)
        chosen = predicted if head.name == "value" else predicted[np.arange(N), INPUTS["output_0_0"]]
        total, *_ = network.accumulate_gradients(inputs, chosen + 5.0)
        assert total == pytest.approx(4.5, rel=1e-5)


@pytest.mark.parametrize("wanted", [True, False])
def test_create_target_network(wanted: bool) -> None:
    copies = wrapper(None, create_target_network=wanted)
    assert (copies.target_network is not None) == wanted


# --- Architecture and NetworkWrapper: what the text promises


def test_accumulate_gradients_returns_what_it_says() -> None:
    network = architecture(l2_regularization=0.01, clip_gradients=1e-3)
    total, losses, norm, fetched = network.accumulate_gradients(INPUTS, TARGETS, [1, "trunk.4.bias"])
    assert total == pytest.approx(sum(losses), rel=1e-6)
    assert len(losses) == 3  # of the targets, then the regularisation
    assert norm > 1e-3  # before clipping
    assert [array.shape for array in fetched] == [(N,), (3,)]
    once = flat(network.accumulated_gradients).copy()
    network.accumulate_gradients(INPUTS, TARGETS)
    np.testing.assert_allclose(flat(network.accumulated_gradients), 2 * once, rtol=1e-5)
    network.accumulate_gradients(INPUTS, TARGETS, no_accumulation=True)
    assert np.array_equal(flat(network.accumulated_gradients), once)


def test_importance_weights_multiply_the_loss() -> None:
    network = values()
    importance = np.arange(N, dtype=np.float32)
    errors = (network.predict(STATES) - TARGETS[0]) ** 2
    total, *_ = network.accumulate_gradients(STATES, TARGETS[0], importance_weights=importance)
    assert total == pytest.approx(float((importance * errors).mean()), rel=1e-5)


def test_apply_and_reset_is_apply_then_reset() -> None:
    one, two = values(), values()
    for network in (one, two):
        network.accumulate_gradients(STATES, TARGETS[0])
    one.apply_and_reset_gradients(one.accumulated_gradients, 0.5)
    two.apply_gradients(two.accumulated_gradients, 0.5)
    two.reset_accumulated_gradients()
    assert np.array_equal(weights(one), weights(two))
    assert not flat(one.accumulated_gradients).any()


def test_gradients_of_an_identical_network_may_be_applied() -> None:
    one, two = values(), values()
    gradient_of(one)
    two.apply_gradients(one.accumulated_gradients)
    one.apply_gradients(one.accumulated_gradients)
    assert np.array_equal(weights(one), weights(two))


def test_predict_and_parallel_predict() -> None:
    network, other = architecture(), architecture(use_separate_networks_per_head=True)
    policy, value = network.predict(STATES)
    assert np.array_equal(network.predict(STATES, [0]), policy)
    assert isinstance(network.predict(STATES, [0], squeeze_output=False), tuple)
    assert np.array_equal(network.predict({}, initial_feed_dict=STATES)[1], value)
    outputs = TorchArchitecture.parallel_predict(None, [(other, STATES), (network, STATES)])
    assert all(map(np.array_equal, outputs, [*other.predict(STATES), policy, value]))


def test_get_and_set_variable_value_of_the_documents_example() -> None:
    network = architecture(heads_parameters=[PPOHeadParameters(initial_kl_coefficient=0.5)])
    assert network.get_variable_value("heads.0.kl_coefficient") == 0.5
    network.set_variable_value("heads.0.kl_coefficient", np.float32(0.75), "heads.0.kl_coefficient_ph")
    assert network.get_variable_value("heads.0.kl_coefficient") == 0.75


@pytest.mark.parametrize("has_target", [True, False])
@pytest.mark.parametrize("has_global", [True, False])
def test_the_wrapper_always_has_an_online_network_and_syncs_what_there_is(has_target: bool, has_global: bool) -> None:
    copies = wrapper(has_target, has_global)
    assert (copies.global_network is not None, copies.target_network is not None) == (has_global, has_target)
    copies.train_and_sync_networks(INPUTS, TARGETS)
    if copies.global_network is not None:
        assert np.array_equal(weights(copies.online_network), weights(copies.global_network))
    if copies.target_network is not None:
        assert not np.array_equal(weights(copies.online_network), weights(copies.target_network))
        copies.sync()
        assert np.array_equal(weights(copies.online_network), weights(copies.target_network))


def test_update_target_and_online_networks_by_a_rate() -> None:
    copies = wrapper()
    old = weights(copies.target_network)
    copies.online_network.set_weights([weight + 1.0 for weight in copies.online_network.get_weights()])
    copies.update_target_network(0.25)
    np.testing.assert_allclose(weights(copies.target_network), old + 0.25, rtol=1e-5, atol=1e-6)
    copies.update_online_network(0.5)
    np.testing.assert_allclose(weights(copies.online_network), old + 0.5, rtol=1e-5, atol=1e-6)


def test_local_and_global_variables() -> None:
    copies = wrapper()
    assert copies.global_network is not None
    assert copies.target_network is not None
    shared, local = copies.get_global_variables(), copies.get_local_variables()
    own = [*copies.online_network.weights_view.values(), *copies.target_network.weights_view.values()]
    assert all(map(np.shares_memory, shared, copies.global_network.weights_view.values()))
    assert all(map(np.shares_memory, local, own))
    assert (len(shared), len(local)) == (len(own) // 2, len(own))


def test_set_is_training_and_parallel_prediction() -> None:
    copies = wrapper()
    copies.set_is_training(False)
    assert not copies.online_network.module.training
    assert copies.target_network is not None
    outputs = copies.parallel_prediction([(copies.target_network, STATES), (copies.online_network, STATES)])
    assert len(outputs) == 4


ERRORS: list[tuple[str, Callable[[], Any]]] = [
    ("no head `naf`", lambda: architecture(heads_parameters=[HeadParameters("naf")])),
    ("optimizer_type = 'Adagrad' is not one of Adam", lambda: architecture(optimizer_type="Adagrad")),
    (
        "no input `speed` to embed",
        lambda: architecture(input_embedders_parameters={"speed": InputEmbedderParameters()}),
    ),
    (
        "no parameters for network `critic`",
        lambda: NetworkWrapper({"main": NetworkParameters()}, *ROLES, "critic", SPACES),
    ),
    ("clip_gradients = -1 is not", lambda: architecture(clip_gradients=-1)),
    ("learning_rate = nan is not a finite number", lambda: architecture(learning_rate=float("nan"))),
    ("batch_size = 0 is not a whole number >= 1", lambda: architecture(batch_size=0)),
    ("gradient_averaging = 'max' is not one of sum, mean", lambda: architecture(gradient_averaging="max")),
    ("needs the input `observation`", lambda: architecture().predict({})),
    ("has no input `speed`", lambda: architecture().predict({**STATES, "speed": OBSERVATIONS})),
    (
        "is float32 \\[6, 2\\], expected float32 \\[6, 3\\]",
        lambda: architecture().predict({"observation": OBSERVATIONS[:, :2]}),
    ),
    ("is complex64 ", lambda: architecture().predict({"observation": OBSERVATIONS.astype(np.complex64)})),
    ("there are 2 outputs and 1 targets", lambda: architecture().accumulate_gradients(INPUTS, TARGETS[:1])),
    ("target 0 is float32 \\[6, 1\\]", lambda: values().accumulate_gradients(STATES, TARGETS[0][:, None])),
    ("input `output_0_0` is missing", lambda: architecture().accumulate_gradients(STATES, TARGETS)),
    ("a batch of no samples", lambda: values().accumulate_gradients({"observation": OBSERVATIONS[:0]}, TARGETS[0][:0])),
    (
        "input `observation` .* is not finite",
        lambda: values().accumulate_gradients({"observation": OBSERVATIONS * np.nan}, TARGETS[0]),
    ),
    ("target 0 is not finite", lambda: values().accumulate_gradients(STATES, TARGETS[0] * np.inf)),
    (
        "importance weights of output 0 is float32 \\[3\\]",
        lambda: values().accumulate_gradients(STATES, TARGETS[0], importance_weights=TARGETS[0][:3]),
    ),
    ("do not fit", lambda: values().apply_gradients([])),
    ("do not fit", lambda: values().set_weights([])),
    ("between 0 and 1, got 2", lambda: wrapper().update_target_network(2.0)),
    ("has no variable `kl`", lambda: values().get_variable_value("kl")),
    ("has no output 5", lambda: values().predict(STATES, [5])),
    ("has no global copy", lambda: wrapper(has_global=False).apply_gradients_to_global_network()),
    ("is no pair of a network and its inputs", lambda: TorchArchitecture.parallel_predict(None, [STATES])),  # type: ignore[list-item]
]
ROLES = (False, False)


@pytest.mark.parametrize(("message", "call"), ERRORS, ids=[message for message, _ in ERRORS])
def test_what_is_wrong_is_an_error_of_ours_that_names_it(message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(NetworkError, match=message):
        call()


# --- faults of Coach's own code, absent here


def test_db_d1_mutable_defaults_are_not_shared() -> None:
    one, two = NetworkParameters(), NetworkParameters()
    one.input_embedders_parameters["observation"] = InputEmbedderParameters()
    one.heads_parameters.append(HeadParameters("value"))
    assert (two.input_embedders_parameters, two.heads_parameters) == ({}, [])


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
    workers = group_of(3, timeout_s=0.5)
    raised = at_once(*[lambda w=w: w.train_and_sync_networks(STATES, TARGETS[0]) for w in workers[::2]])
    assert [type(error) for error in raised] == [NetworkError] * 2
    assert {str(error) for error in raised} == {"no gradients of `main` from worker 1 within 0.5 s"}


def test_db_d7_a_reset_is_a_reset_of_nan_too() -> None:
    network = values()
    for part in network.accumulated_gradients:
        part.fill(np.nan)
    network.reset_accumulated_gradients()
    assert np.array_equal(flat(network.accumulated_gradients), np.zeros(len(flat(network.accumulated_gradients))))


def test_db_d8_rate_is_called_rate() -> None:
    network = values()
    old = network.get_weights()
    network.set_weights(weights=[weight + 1.0 for weight in old], rate=0.5)
    np.testing.assert_allclose(weights(network), flat(old) + 0.5, rtol=1e-5, atol=1e-6)


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


def test_db_d10_the_scaler_is_not_ignored() -> None:
    one, two = values(), values()
    gradient = gradient_of(one)
    before = weights(two)
    two.train_on_batch(STATES, TARGETS[0], scaler=0.125)
    np.testing.assert_allclose(before - weights(two), 0.125 * gradient, rtol=1e-3, atol=1e-7)


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


def test_db_d13_a_global_network_works_with_optimizers_of_the_workers() -> None:
    copies = wrapper(shared_optimizer=False)
    before = weights(copies.global_network)
    copies.train_and_sync_networks(INPUTS, TARGETS)
    assert not np.array_equal(weights(copies.global_network), before)
    assert np.array_equal(weights(copies.global_network), weights(copies.online_network))


def test_db_d14_without_a_global_network_the_error_says_what_to_do() -> None:
    copies = wrapper(has_global=False)
    with pytest.raises(NetworkError, match="network `main` has no global copy") as error:
        copies.apply_gradients_to_global_network()
    assert "apply_gradients_and_sync_networks" in error.value.hint


def test_db_d15_accumulated_segments_can_be_averaged() -> None:
    """Segments of 1, 2 and 3 samples make the step of one batch of 6; Coach's sum is as long as all three."""
    segments = (slice(0, 1), slice(1, 3), slice(3, 6))
    whole = gradient_of(values())
    for averaging, expected in (("samples", whole), ("sum", None)):
        network = values(gradient_averaging=averaging)
        for rows in segments:
            network.accumulate_gradients({"observation": OBSERVATIONS[rows]}, TARGETS[0][rows])
        found = flat(network.accumulated_gradients)
        if expected is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        else:
            assert not np.allclose(found, whole, rtol=1e-2)


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


def test_the_inverted_text_of_reset_gradients_is_not_followed() -> None:
    """The document says that True keeps the gradients; Coach's code, and every caller of it, means reset."""
    copies = wrapper()
    for reset in (False, True):
        copies.online_network.accumulate_gradients(INPUTS, TARGETS)
        copies.apply_gradients_and_sync_networks(reset_gradients=reset)
        assert flat(copies.online_network.accumulated_gradients).any() != reset
