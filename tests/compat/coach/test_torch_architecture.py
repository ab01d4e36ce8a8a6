"""TorchArchitecture: Coach's methods, each against plain torch or against its own documentation."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hive.compat.coach.torch_architecture import TorchArchitecture
from hive.envs.spaces.actions import Box, Discrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError
from hive.networks import DuelingQHeadParameters, HeadParameters, InputEmbedderParameters, NetworkParameters, Spaces
from hive.networks.build.parameters import GradientClippingMethod

SPACES = Spaces({"observation": ObservationSpec((4,), "float32")}, Discrete(2))
RNG = np.random.default_rng(0)
OBSERVATIONS = RNG.standard_normal((8, 4), dtype=np.float32)
ACTIONS = RNG.integers(0, 2, 8)
INPUTS = {"observation": OBSERVATIONS, "output_0_0": ACTIONS}
TARGETS = [RNG.standard_normal(8, dtype=np.float32), RNG.standard_normal(8, dtype=np.float32)]


def architecture(**parameters: Any) -> TorchArchitecture:
    return TorchArchitecture(NetworkParameters(**parameters), SPACES, "main/online")


def flat(arrays: Any) -> np.ndarray:
    return np.concatenate([np.ravel(array) for array in arrays])


def torch_gradients(network: TorchArchitecture) -> list[np.ndarray]:
    """The gradient of the documented loss by plain torch."""
    policy, value = network.module(torch.from_numpy(OBSERVATIONS))
    chosen = policy.log_softmax(-1)[torch.arange(8), torch.from_numpy(ACTIONS)]
    loss = -(chosen * torch.from_numpy(TARGETS[0])).mean() + (value - torch.from_numpy(TARGETS[1])).square().mean()
    return [gradient.numpy() for gradient in torch.autograd.grad(loss, list(network.module.parameters()))]


def test_accumulate_gradients_computes_the_documented_loss_and_leaves_the_weights() -> None:
    network = architecture()
    before, expected = network.get_weights(), torch_gradients(network)
    total, losses, norm, fetched = network.accumulate_gradients(INPUTS, TARGETS)
    np.testing.assert_allclose(flat(network.accumulated_gradients), flat(expected), rtol=1e-5, atol=1e-7)
    assert total == pytest.approx(sum(losses))
    assert (len(losses), fetched) == (2, [])
    assert norm == pytest.approx(float(np.linalg.norm(flat(expected))), rel=1e-5)
    assert np.array_equal(flat(before), flat(network.get_weights()))
    assert network.updates == 0
    assert all(parameter.grad is None for parameter in network.module.parameters())


def test_gradients_add_up_until_they_are_replaced_or_reset() -> None:
    network = architecture()
    network.accumulate_gradients(INPUTS, TARGETS)
    once = flat(network.accumulated_gradients)
    network.accumulate_gradients(INPUTS, TARGETS)
    np.testing.assert_allclose(flat(network.accumulated_gradients), 2 * once, rtol=1e-6)
    network.accumulate_gradients(INPUTS, TARGETS, no_accumulation=True)
    assert np.array_equal(flat(network.accumulated_gradients), once)
    network.accumulated_gradients[0][:] = np.nan
    network.reset_accumulated_gradients()
    assert not flat(network.accumulated_gradients).any()


def test_regularisation_is_one_loss_at_the_end() -> None:
    network = architecture(l2_regularization=0.1)
    total, losses, _, _ = network.accumulate_gradients(INPUTS, TARGETS)
    matrices = [weight for weight in network.get_weights() if weight.ndim > 1]
    assert len(losses) == 3
    assert losses[2] == pytest.approx(0.05 * float(np.square(flat(matrices)).sum()), rel=1e-5)
    assert total == pytest.approx(sum(losses))


@pytest.mark.parametrize("method", GradientClippingMethod)
def test_clipping(method: GradientClippingMethod) -> None:
    network = architecture(clip_gradients=0.01, gradients_clipping_method=method)
    expected = torch_gradients(network)
    unclipped = float(np.linalg.norm(flat(expected)))
    *_, norm, _ = network.accumulate_gradients(INPUTS, TARGETS)
    assert norm == pytest.approx(unclipped, rel=1e-5)
    if method is GradientClippingMethod.ClipByGlobalNorm:
        expected = [gradient * 0.01 / unclipped for gradient in expected]
    elif method is GradientClippingMethod.ClipByNorm:
        expected = [gradient * min(1.0, 0.01 / np.linalg.norm(gradient)) for gradient in expected]
    else:
        expected = [gradient.clip(-0.01, 0.01) for gradient in expected]
    np.testing.assert_allclose(flat(network.accumulated_gradients), flat(expected), rtol=1e-4, atol=1e-7)


def test_a_gradient_within_the_limit_is_not_touched() -> None:
    one, two = architecture(), architecture(clip_gradients=1e6)
    for network in (one, two):
        network.accumulate_gradients(INPUTS, TARGETS)
    assert np.array_equal(flat(one.accumulated_gradients), flat(two.accumulated_gradients))


def test_apply_gradients_is_torchs_adam_and_keeps_the_gradients() -> None:
    network = architecture(learning_rate=0.01, learning_rate_decay_rate=0.5, learning_rate_decay_steps=2)
    parameters = [nn.Parameter(torch.from_numpy(weight)) for weight in network.get_weights()]
    adam = torch.optim.Adam(parameters, 0.01, betas=(0.9, 0.99), eps=1e-4)
    for update in range(5):
        network.accumulate_gradients(INPUTS, TARGETS, no_accumulation=True)
        gradients = network.accumulated_gradients
        given = flat(gradients)
        network.apply_gradients(gradients, scaler=0.25)
        assert np.array_equal(flat(network.accumulated_gradients), given)
        adam.param_groups[0]["lr"] = 0.01 * 0.5 ** (update // 2)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.from_numpy(0.25 * gradient)
        adam.step()
        np.testing.assert_allclose(
            flat(network.get_weights()), flat([p.detach().numpy() for p in parameters]), rtol=1e-5, atol=1e-6
        )
    assert network.updates == 5


def test_train_on_batch_is_all_three_steps() -> None:
    one, two = architecture(), architecture()
    result = one.train_on_batch(INPUTS, TARGETS, scaler=0.5)
    assert result == two.accumulate_gradients(INPUTS, TARGETS)
    two.apply_and_reset_gradients(two.accumulated_gradients, 0.5)
    assert np.array_equal(flat(one.get_weights()), flat(two.get_weights()))
    assert not flat(one.accumulated_gradients).any()


@pytest.mark.parametrize("optimizer_type", ["Adam", "AdamW", "RMSProp", "SGD", "LBFGS"])
def test_every_optimizer_learns_a_batch(optimizer_type: str) -> None:
    rate = {"SGD": 0.05, "LBFGS": 0.5}.get(optimizer_type, 0.01)
    network = architecture(
        optimizer_type=optimizer_type, learning_rate=rate, heads_parameters=[HeadParameters("value")]
    )
    losses = [network.train_on_batch({"observation": OBSERVATIONS}, TARGETS[1])[0] for _ in range(60)]
    assert losses[-1] < 0.2 * losses[0]


def test_a_gradient_that_is_not_finite_reaches_nothing() -> None:
    network = architecture()
    before = flat(network.get_weights())
    with pytest.raises(
        NetworkError, match=r"the gradient of `trunk\.0\.weight` in network `main/online` is not finite"
    ):
        network.accumulate_gradients(INPUTS, [TARGETS[0], np.full(8, np.nan, np.float32)])
    assert not flat(network.accumulated_gradients).any()
    gradients = network.accumulated_gradients
    gradients[3][0] = np.inf
    with pytest.raises(NetworkError, match=r"`trunk\.2\.bias`"):
        network.apply_gradients(gradients)
    assert np.array_equal(flat(network.get_weights()), before)
    assert network.updates == 0


def test_gradients_and_weights_that_do_not_fit_change_nothing() -> None:
    network = architecture()
    before = flat(network.get_weights())
    with pytest.raises(NetworkError, match="gradients of network `main/online` do not fit"):
        network.apply_gradients(network.accumulated_gradients[:-1])
    weights = [weight + 1 for weight in network.get_weights()]
    weights[-1] = weights[-1][:1]
    with pytest.raises(NetworkError, match="weights of network `main/online` do not fit"):
        network.set_weights(weights)
    with pytest.raises(NetworkError, match=r"from 0 to 1, got 1\.5"):
        network.set_weights(network.get_weights(), rate=1.5)
    assert np.array_equal(flat(network.get_weights()), before)


def test_set_weights_mixes_and_get_weights_copies() -> None:
    network = architecture()
    old = network.get_weights()
    network.set_weights([weight + 1.0 for weight in old], rate=0.25)
    np.testing.assert_allclose(flat(network.get_weights()), flat(old) + 0.25, rtol=1e-6, atol=1e-7)
    network.get_weights()[0][:] = 100.0
    assert flat(network.get_weights()).max() < 100.0
    network.set_weights(old)
    assert np.array_equal(flat(network.get_weights()), flat(old))


class WithBuffers(nn.Module):
    """A user-defined module with BatchNorm, and optionally a frozen parameter."""

    def __init__(self, spaces: Spaces) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.layer(self.norm(x))
        return outputs[:, :2], outputs[:, 2]


def test_buffers_are_weights_that_are_copied_not_mixed() -> None:
    one, two = architecture(module=WithBuffers), architecture(module=WithBuffers)
    one.accumulate_gradients(INPUTS, TARGETS)
    assert one.get_variable_value("norm.num_batches_tracked") == 1
    two.copy_weights_from(one, rate=0.5)
    assert two.get_variable_value("norm.num_batches_tracked") == 1
    assert np.array_equal(two.get_variable_value("norm.running_mean"), one.get_variable_value("norm.running_mean"))
    assert len(one.get_weights()) == 4 + 3
    assert len(one.accumulated_gradients) == 4


def test_networks_that_differ_do_not_exchange_weights() -> None:
    with pytest.raises(NetworkError, match="is not built like `main/online`"):
        architecture().copy_weights_from(architecture(module=WithBuffers))


def test_is_training_switches_layers() -> None:
    network = architecture(module=WithBuffers)
    network.set_is_training(False)
    network.predict({"observation": OBSERVATIONS})
    assert network.get_variable_value("norm.num_batches_tracked") == 0
    network.set_is_training(True)
    network.predict({"observation": OBSERVATIONS})
    assert network.get_variable_value("norm.num_batches_tracked") == 1


def test_predict_returns_all_or_chosen_outputs() -> None:
    network = architecture()
    policy, value = network.predict({"observation": OBSERVATIONS})
    expected = network.module(torch.from_numpy(OBSERVATIONS))
    assert np.array_equal(policy, expected[0].detach().numpy())
    assert np.array_equal(network.predict({"observation": OBSERVATIONS}, outputs=[1]), value)
    (alone,) = network.predict({}, [1], squeeze_output=False, initial_feed_dict={"observation": OBSERVATIONS})
    assert np.array_equal(alone, value)


def test_parallel_predict_takes_one_network_twice() -> None:
    one, two = architecture(), TorchArchitecture(NetworkParameters(), SPACES, generator=torch.Generator())
    batches = [{"observation": OBSERVATIONS[:3]}, {"observation": OBSERVATIONS[3:]}]
    outputs = TorchArchitecture.parallel_predict(None, [(one, batches[0]), (one, batches[1]), (two, batches[0])])
    expected = [*one.predict(batches[0]), *one.predict(batches[1]), *two.predict(batches[0])]
    for found, alone in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-7)  # one batch of 8 rows rounds as it likes


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "needs the input `observation`"),
        ({"observation": OBSERVATIONS, "obs": OBSERVATIONS}, "has no input `obs`"),
        (
            {"observation": OBSERVATIONS[:, :3]},
            r"input `observation` is float32 \[8, 3\], expected float32 \[8, 4\]",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Any, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        architecture().predict(inputs)


def test_variables_by_name() -> None:
    network = architecture()
    network.set_variable_value("trunk.4.bias", np.float32([1.0, 2.0, 3.0]), None)
    value = network.get_variable_value("trunk.4.bias")
    assert value.tolist() == [1.0, 2.0, 3.0]
    value[:] = 0.0
    assert network.module.trunk[-1].bias.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(NetworkError, match="has no variable `bias`"):
        network.get_variable_value("bias")
    with pytest.raises(NetworkError, match=r"variable `trunk.4.bias` do not fit"):
        network.set_variable_value("trunk.4.bias", np.zeros(4))


def test_fetches_are_outputs_by_number_and_variables_by_name() -> None:
    network = architecture()
    *_, fetched = network.accumulate_gradients(INPUTS, TARGETS, additional_fetches=[1, "trunk.4.bias"])
    assert np.array_equal(fetched[0], network.predict({"observation": OBSERVATIONS}, [1]))
    assert fetched[1].tolist() == [0.0, 0.0, 0.0]


def test_continuous_actions_train_mean_and_deviation() -> None:
    spaces = Spaces(SPACES.observations, Box((2,), (-1.0, -1.0), (1.0, 1.0)))
    network = TorchArchitecture(NetworkParameters(learning_rate=0.01), spaces)
    actions = RNG.standard_normal((8, 2), dtype=np.float32)
    network.train_on_batch({"observation": OBSERVATIONS, "output_0_0": actions}, TARGETS)
    assert network.get_variable_value("heads.0.log_std").all()


def test_equal_parameters_give_equal_networks_unless_seeded() -> None:
    assert np.array_equal(flat(architecture().get_weights()), flat(architecture().get_weights()))
    other = TorchArchitecture(NetworkParameters(), SPACES, generator=torch.Generator().manual_seed(9))
    assert not np.array_equal(flat(architecture().get_weights()), flat(other.get_weights()))


class Frozen(WithBuffers):
    def __init__(self, spaces: Spaces) -> None:
        super().__init__(spaces)
        self.layer.weight.requires_grad_(False)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"learning_rate_decay_rate": 0.5}, "needs learning_rate_decay_steps"),
        ({"clip_gradients": -1.0}, "clip_gradients = -1.0 is not"),
    ],
)
def test_impossible_parameters_are_refused_at_once(parameters: Any, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        architecture(**parameters)


def test_frozen_parameters_stay() -> None:
    network = architecture(module=Frozen, weight_decay=0.1)
    before = network.get_variable_value("layer.weight")
    network.train_on_batch(INPUTS, TARGETS)
    assert np.array_equal(network.get_variable_value("layer.weight"), before)
    assert network.get_variable_value("layer.bias").any()


@pytest.mark.parametrize("averaging", ["sum", "mean", "samples"])
def test_accumulated_gradients_are_live(averaging: Any) -> None:
    """The views stay valid, and values written to them enter later accumulations."""
    network, other = architecture(gradient_averaging=averaging), architecture()
    views = network.accumulated_gradients
    sizes = (1, 5, 2)
    parts = []
    for size in sizes:
        inputs, targets = {k: v[:size] for k, v in INPUTS.items()}, [target[:size] for target in TARGETS]
        network.accumulate_gradients(inputs, targets)
        other.accumulate_gradients(inputs, targets, no_accumulation=True)
        parts.append(flat(other.accumulated_gradients).astype(np.float64))
    shares = {"sum": (1.0, 1.0, 1.0), "mean": (1 / 3, 1 / 3, 1 / 3), "samples": (1 / 8, 5 / 8, 2 / 8)}[averaging]
    expected = sum(share * part for share, part in zip(shares, parts, strict=True))
    np.testing.assert_allclose(flat(views), expected, rtol=1e-5, atol=1e-7)
    for view in views:
        view[...] = 3.0
    network.accumulate_gradients(inputs, targets)
    share = {"sum": (1.0, 1.0), "mean": (3 / 4, 1 / 4), "samples": (8 / 10, 2 / 10)}[averaging]
    np.testing.assert_allclose(flat(views), share[0] * 3.0 + share[1] * parts[-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("averaging", ["sum", "mean", "samples"])
def test_gradients_of_uneven_batches(averaging: Any) -> None:
    network, whole = architecture(gradient_averaging=averaging), architecture()
    parts = []
    for rows in (slice(0, 5), slice(5, 6), slice(6, 8)):
        inputs = {name: array[rows] for name, array in INPUTS.items()}
        targets = [target[rows] for target in TARGETS]
        network.accumulate_gradients(inputs, targets)
        whole.accumulate_gradients(inputs, targets, no_accumulation=True)
        parts.append(flat(whole.accumulated_gradients))
    whole.accumulate_gradients(INPUTS, TARGETS, no_accumulation=True)
    expected = {
        "sum": np.sum(parts, axis=0),
        "mean": np.mean(parts, axis=0),
        "samples": flat(whole.accumulated_gradients),  # the gradient of the batch that they are together
    }
    np.testing.assert_allclose(flat(network.accumulated_gradients), expected[averaging], rtol=1e-4, atol=1e-6)
    network.reset_accumulated_gradients()
    network.accumulate_gradients(INPUTS, TARGETS)
    np.testing.assert_allclose(flat(network.accumulated_gradients), expected["samples"], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("scaler", [1.0, 0.25])
@pytest.mark.parametrize("method", GradientClippingMethod)
def test_clipping_may_come_last(method: GradientClippingMethod, scaler: float) -> None:
    """SGD with rate 1: the step is the clipped gradient, whatever was accumulated."""
    parameters: dict[str, Any] = {"optimizer_type": "SGD", "learning_rate": 1.0}
    network = architecture(clip_gradients=0.1, gradients_clipping_method=method, clip_stage="update", **parameters)
    for _ in range(2):
        network.accumulate_gradients(INPUTS, TARGETS)
    gradients = [2 * scaler * gradient for gradient in torch_gradients(network)]
    np.testing.assert_allclose(scaler * flat(network.accumulated_gradients), flat(gradients), rtol=1e-4, atol=1e-6)
    before = flat(network.get_weights())
    network.apply_gradients(network.accumulated_gradients, scaler)
    if method is GradientClippingMethod.ClipByGlobalNorm:
        gradients = [gradient * 0.1 / np.linalg.norm(flat(gradients)) for gradient in gradients]
    elif method is GradientClippingMethod.ClipByNorm:
        gradients = [gradient * min(1.0, 0.1 / np.linalg.norm(gradient)) for gradient in gradients]
    else:
        gradients = [gradient.clip(-0.1, 0.1) for gradient in gradients]
    np.testing.assert_allclose(before - flat(network.get_weights()), flat(gradients), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("optimizer_type", ["Adam", "RMSProp", "SGD", "LBFGS"])
def test_an_update_with_a_non_finite_result_is_not_applied(optimizer_type: str) -> None:
    """Gradients of a finite norm, but the weights, or the squares of Adam, overflow. Afterwards training continues."""
    one, two = (architecture(optimizer_type=optimizer_type, learning_rate=0.01) for _ in range(2))
    for network in (one, two):
        network.train_on_batch(INPUTS, TARGETS)
    before = flat(one.get_weights())
    huge = [np.full_like(gradient, 1e25) for gradient in one.accumulated_gradients]
    with pytest.raises(NetworkError, match="update 2 of network `main/online` is not finite; it was not applied"):
        one.apply_gradients(huge, scaler=1e30)
    assert np.array_equal(flat(one.get_weights()), before)
    assert one.updates == 1
    for network in (one, two):
        network.train_on_batch(INPUTS, TARGETS)
    if optimizer_type == "LBFGS":  # a non-finite step clears its history
        assert np.isfinite(flat(one.get_weights())).all()
    else:
        assert np.array_equal(flat(one.get_weights()), flat(two.get_weights()))


def test_the_cause_of_a_bad_gradient_is_named_and_buffers_see_no_nan() -> None:
    network = architecture(module=WithBuffers)
    with pytest.raises(NetworkError, match=r"is not finite; it was not applied: target 1 is not finite"):
        network.accumulate_gradients(INPUTS, [TARGETS[0], np.full(8, np.nan, np.float32)])
    bad = {**INPUTS, "observation": np.full((8, 4), np.inf, np.float32)}
    with pytest.raises(NetworkError, match="input `observation` of network `main/online` is not finite"):
        network.accumulate_gradients(bad, TARGETS)
    assert np.isfinite(network.get_variable_value("norm.running_mean")).all()


def test_values_that_are_not_finite_are_not_set() -> None:
    network = architecture()
    before = flat(network.get_weights())
    weights = network.get_weights()
    weights[2][0] = np.nan
    with pytest.raises(NetworkError, match="weights of network `main/online` are not finite"):
        network.set_weights(weights)
    with pytest.raises(NetworkError, match=r"the value for variable `trunk.4.bias` is not finite"):
        network.set_variable_value("trunk.4.bias", np.full(3, np.inf, np.float32))
    with pytest.raises(NetworkError, match=r"variable `trunk.4.bias` do not fit: complex128"):
        network.set_variable_value("trunk.4.bias", np.ones(3, complex))
    with pytest.raises(NetworkError, match="from 0 to 1, got nan"):
        network.set_weights(network.get_weights(), rate=float("nan"))
    assert np.array_equal(flat(network.get_weights()), before)


def test_unknown_outputs_and_fetches_are_refused_before_anything_happens() -> None:
    network = architecture()
    with pytest.raises(NetworkError, match="has no output 2"):
        network.predict({"observation": OBSERVATIONS}, outputs=[2])
    for fetch in (2, -1, "nothing"):
        with pytest.raises(NetworkError, match=r"has no (output|variable)"):
            network.accumulate_gradients(INPUTS, TARGETS, additional_fetches=[fetch])
    assert not flat(network.accumulated_gradients).any()


RAGGED: Any = [[1.0, 2.0], [3.0]]
UNCLEAR: list[tuple[Any, str]] = [
    (lambda n: n.apply_gradients([]), "do not fit: 0 arrays, expected a list of 6 arrays"),
    (lambda n: n.apply_gradients(None), "do not fit: NoneType, expected a list of 6 arrays"),
    (lambda n: n.set_weights(None), "do not fit: NoneType"),
    (lambda n: n.apply_gradients([RAGGED] * 6), "is not an array"),
    (lambda n: n.accumulate_gradients(INPUTS, None), "the targets are missing"),
    (lambda n: n.accumulate_gradients(INPUTS, lambda outputs: None), "the targets are missing"),
    (lambda n: n.accumulate_gradients(INPUTS, 3.0), "the targets are given as float"),
    (lambda n: n.accumulate_gradients(INPUTS, dict(enumerate(TARGETS))), "the targets are given as dict"),
    (lambda n: n.accumulate_gradients(INPUTS, [TARGETS[0], RAGGED]), "target 1 is not an array"),
    (lambda n: n.accumulate_gradients(INPUTS, TARGETS, None, TARGETS[:1]), "2 outputs and 1 importance weights"),
    (lambda n: n.accumulate_gradients(INPUTS, TARGETS, None, []), "2 outputs and 0 importance weights"),
    (lambda n: n.accumulate_gradients(INPUTS, TARGETS, None, 2.0), "importance weights are given as float"),
    (lambda n: n.accumulate_gradients(INPUTS, [TARGETS[0] * np.nan, TARGETS[1]], None, [None, TARGETS[0]]), "target 0"),
    (lambda n: n.accumulate_gradients(INPUTS, TARGETS, [["trunk.0.weight"]]), "has no variable"),
    (lambda n: n.accumulate_gradients(INPUTS, TARGETS, [np.int64(2)]), "has no output"),
    (lambda n: n.accumulate_gradients(None, TARGETS), "a mapping from names to arrays, not NoneType"),
    (lambda n: n.predict(OBSERVATIONS), "a mapping from names to arrays, not ndarray"),
    (lambda n: n.predict({}, initial_feed_dict=[OBSERVATIONS]), "a mapping from names to arrays, not list"),
    (lambda n: n.predict({"observation": RAGGED}), "input `observation` is not an array"),
    (lambda n: n.predict({"observation": OBSERVATIONS}, ["value"]), "has no output 'value'"),
    (lambda n: n.predict({"observation": OBSERVATIONS}, "value"), "must be a list, not 'value'"),
    (lambda n: n.predict({"observation": OBSERVATIONS}, 0), "must be a list, not 0"),
    (lambda n: n.predict({"observation": OBSERVATIONS}, [0.0]), "has no output 0.0"),
    (lambda n: n.predict({"observation": OBSERVATIONS}, [True]), "has no output True"),
    (lambda n: n.predict({"observation": OBSERVATIONS}, [np.int64(-1)]), "has no output"),
]


@pytest.mark.parametrize(("call", "message"), UNCLEAR)
def test_invalid_calls_raise_network_errors_and_change_nothing(call: Any, message: str) -> None:
    network = architecture()
    before = flat(network.get_weights())
    with pytest.raises(NetworkError, match=message):
        call(network)
    assert np.array_equal(flat(network.get_weights()), before)
    assert (flat(network.accumulated_gradients).any(), network.updates) == (False, 0)


def test_outputs_are_selected_by_whole_numbers_and_listed_in_the_error() -> None:
    network = architecture()
    policy, value = network.predict({"observation": OBSERVATIONS})
    assert np.array_equal(network.predict({"observation": OBSERVATIONS}, [np.int64(1)]), value)
    assert np.array_equal(network.predict({"observation": OBSERVATIONS}, np.array([1, 0]))[1], policy)
    *_, (fetched,) = network.accumulate_gradients(INPUTS, TARGETS, [np.int64(0)])
    assert fetched.shape == policy.shape
    with pytest.raises(NetworkError) as error:
        network.predict({"observation": OBSERVATIONS}, ["value"])  # type: ignore[list-item]
    assert error.value.hint == "by number: 0 policy, 1 value"


def test_tensors_of_torch_are_arrays() -> None:
    network, other = architecture(), architecture()
    network.accumulate_gradients(INPUTS, TARGETS)
    network.apply_gradients([torch.from_numpy(g).requires_grad_() for g in network.accumulated_gradients])  # type: ignore[misc]
    other.set_weights([torch.from_numpy(w).requires_grad_() for w in network.get_weights()])  # type: ignore[misc]
    assert np.array_equal(flat(other.get_weights()), flat(network.get_weights()))


def test_gradients_are_computed_even_under_no_grad() -> None:
    network = architecture()
    with torch.no_grad():
        network.accumulate_gradients(INPUTS, TARGETS)
    assert flat(network.accumulated_gradients).any()


def test_heads_of_a_users_module_draw_no_random_numbers() -> None:
    class Two(nn.Module):
        def __init__(self, spaces: Spaces) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> tuple[Tensor]:
            return (self.layer(x),)

    state = torch.random.get_rng_state()
    network = architecture(module=Two, heads_parameters=[DuelingQHeadParameters(hidden=4)])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert network.predict({"observation": OBSERVATIONS}).shape == (8, 2)
    network.train_on_batch(INPUTS, TARGETS[0])
    with pytest.raises(NetworkError, match=r"returns 1 outputs, expected a tuple \(q, value\)"):
        architecture(module=Two, heads_parameters=[HeadParameters("q"), HeadParameters("value")])


def test_a_critic_of_states_and_actions() -> None:
    spaces = Spaces(SPACES.observations, Box((2,), (-1.0, -1.0), (1.0, 1.0)))
    parameters = NetworkParameters(
        heads_parameters=[HeadParameters("value")],
        input_embedders_parameters={"observation": InputEmbedderParameters(), "action": InputEmbedderParameters()},
    )
    critic = TorchArchitecture(parameters, spaces)
    actions = RNG.standard_normal((8, 2), dtype=np.float32)
    values = critic.predict({"observation": OBSERVATIONS, "action": actions})
    assert values.shape == (8,)
    assert not np.allclose(critic.predict({"observation": OBSERVATIONS, "action": -actions}), values)
    with pytest.raises(NetworkError, match="needs the input `action`"):
        critic.predict({"observation": OBSERVATIONS})
    one_hot = Spaces(SPACES.observations, Discrete(3))
    assert TorchArchitecture(parameters, one_hot).inputs["action"].shape == (3,)


def test_a_reader_in_another_thread_sees_all_of_an_update_or_nothing() -> None:
    """The weights are all 0 or all 1: a torn read would be a value between, or a mixture."""
    network = architecture()
    zeros, ones = ([np.full_like(weight, value) for weight in network.get_weights()] for value in (0.0, 1.0))
    network.set_weights(zeros)
    over = threading.Event()
    seen: set[tuple[float, float]] = set()

    def read() -> None:
        while not over.is_set():
            weights = flat(network.get_weights())
            seen.add((float(weights.min()), float(weights.max())))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for _ in range(300):
        network.set_weights(ones)
        network.set_weights(zeros)
    over.set()
    reader.join(30.0)
    assert not reader.is_alive()
    assert seen <= {(0.0, 0.0), (1.0, 1.0)}
