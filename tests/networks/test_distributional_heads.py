"""C51 and QR-DQN: outputs, losses against the papers' formulas, and learning."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hive.compat.coach.losses import head_loss
from hive.compat.coach.torch_architecture import TorchArchitecture
from hive.envs.spaces.actions import Discrete, MultiDiscrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError
from hive.networks import (
    CategoricalQHeadParameters,
    MiddlewareParameters,
    NetworkParameters,
    QuantileQHeadParameters,
    Spaces,
)
from hive.networks.act.projection import point_mass
from hive.networks.build.value_heads import CategoricalQHead, QuantileQHead

ACTION = Discrete(2)
ACTIONS = torch.tensor([1, 0, 1])


def categorical(atoms: int = 5) -> CategoricalQHead:
    return CategoricalQHead(CategoricalQHeadParameters(atoms=atoms, v_min=-2.0, v_max=2.0), ACTION)


def quantile(atoms: int = 3, kappa: float = 1.0) -> QuantileQHead:
    return QuantileQHead(QuantileQHeadParameters(atoms=atoms, huber_loss_interval=kappa), ACTION)


def test_categories_are_log_probabilities_of_every_action() -> None:
    head = categorical()
    columns = torch.randn(3, head.width)
    output = head(columns)
    assert output.shape == (3, *head.output_shape) == (3, 2, 5)
    torch.testing.assert_close(output.exp().sum(-1), torch.ones(3, 2))
    torch.testing.assert_close(output[:, 1], columns[:, 5:].log_softmax(-1))
    expected = (columns.reshape(3, 2, 5).softmax(-1) * torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])).sum(-1)
    torch.testing.assert_close(head.values(output), expected)


def test_the_categorical_loss_is_the_cross_entropy() -> None:
    head = categorical()
    output = head(torch.randn(3, head.width))
    target = torch.randn(3, 5).softmax(-1)
    expected = [-float((target[row] * output[row, ACTIONS[row]]).sum()) for row in range(3)]
    np.testing.assert_allclose(head_loss(head).loss(output, target, ACTIONS).numpy(), expected, rtol=1e-6)


def test_a_target_that_lost_mass_is_refused() -> None:
    head = categorical()
    target = point_mass(torch.zeros(3), head.support)
    target[1] *= 0.4
    with pytest.raises(NetworkError, match=r"the target of sample 1 is not a distribution: its sum is 0.4") as error:
        head_loss(head).loss(head(torch.zeros(3, 10)), target, ACTIONS)
    assert "project_categorical" in error.value.hint
    target[1] = torch.tensor([1.5, -0.5, 0.0, 0.0, 0.0])
    with pytest.raises(NetworkError, match="sample 1"):
        head_loss(head).loss(head(torch.zeros(3, 10)), target, ACTIONS)


@pytest.mark.parametrize("kappa", [0.0, 0.5, 1.0])
def test_the_quantile_loss_is_the_papers(kappa: float) -> None:
    head = quantile(kappa=kappa)
    output, target = torch.randn(3, 2, 3), torch.randn(3, 3)
    expected = []
    for row in range(3):
        total = 0.0
        for i in range(3):
            tau, each = (2 * i + 1) / 6, []
            for j in range(3):
                u = float(target[row, j] - output[row, ACTIONS[row], i])
                huber = abs(u) if not kappa else u * u / 2 / kappa if abs(u) <= kappa else abs(u) - kappa / 2
                each.append(abs(tau - (u < 0)) * huber)
            total += float(np.mean(each))
        expected.append(total)
    np.testing.assert_allclose(head_loss(head).loss(output, target, ACTIONS).numpy(), expected, rtol=1e-5)


def test_quantiles_of_every_action_and_their_mean() -> None:
    head = quantile()
    output = head(torch.arange(6.0).reshape(1, 6))
    assert output.tolist() == [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]
    assert head.values(output).tolist() == [[1.0, 4.0]]


def test_the_quantiles_of_a_sample_are_learned() -> None:
    """Uniform targets 0 .. 8: the quantiles at 1/6, 1/2 and 5/6 are near 1.3, 4 and 6.7."""
    spaces = Spaces({"observation": ObservationSpec((1,), "float32")}, ACTION)
    parameters = NetworkParameters(
        heads_parameters=[QuantileQHeadParameters(atoms=3, huber_loss_interval=0.0)],
        middleware_parameters=MiddlewareParameters(()),
        optimizer_type="SGD",
        learning_rate=0.3,
    )
    network = TorchArchitecture(parameters, spaces)
    rows = 27
    inputs = {"observation": np.ones((rows, 1), np.float32), "output_0_0": np.ones(rows, np.int64)}
    samples = np.tile(np.linspace(0.0, 8.0, rows, dtype=np.float32)[:, None], 3)
    for _ in range(400):
        network.train_on_batch(inputs, samples)
    learned = network.predict({"observation": inputs["observation"][:1]})[0, 1]
    np.testing.assert_allclose(learned, [8 / 6, 4.0, 8 * 5 / 6], atol=0.45)


def test_the_support_is_a_variable_of_the_network() -> None:
    spaces = Spaces({"observation": ObservationSpec((1,), "float32")}, ACTION)
    head = CategoricalQHeadParameters(atoms=3, v_min=-1.0, v_max=1.0)
    network = TorchArchitecture(NetworkParameters(heads_parameters=[head]), spaces)
    assert network.get_variable_value("heads.0.support").tolist() == [-1.0, 0.0, 1.0]
    assert network.predict({"observation": np.zeros((4, 1), np.float32)}).shape == (4, 2, 3)


def test_impossible_heads_are_refused() -> None:
    for make in (
        lambda: CategoricalQHead(CategoricalQHeadParameters(), MultiDiscrete((2, 2))),
        lambda: QuantileQHead(QuantileQHeadParameters(), MultiDiscrete((2, 2))),
    ):
        with pytest.raises(NetworkError, match="needs a discrete action"):
            make()
    head = quantile()
    with pytest.raises(NetworkError, match="but there are only 2"):
        head_loss(head).loss(torch.zeros(3, 2, 3), torch.zeros(3, 3), ACTIONS + 1)
