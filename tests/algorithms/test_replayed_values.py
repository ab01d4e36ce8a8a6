"""DQN, C51 and QR-DQN: one gradient of a batch against the algorithms written out in float64, sample by sample."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from hive.algorithms import C51, DQN, QRDQN, Batch
from hive.algorithms.making import make_algorithm
from hive.algorithms.parameters import update_parameter
from hive.algorithms.q_learning import ReplayedValues
from hive.compat.autonomous import OptimizerReceiver, TrivialTarget
from hive.config import C51Config, DQNConfig, NetworkConfig, QRDQNConfig
from hive.envs import Discrete, ObservationSpec
from hive.errors import NetworkError, TopologyError
from hive.networks import Categorical, Spaces, build_network
from hive.networks.build.configured import network_parameters
from hive.networks.build.layers import NoisyLinear

SAMPLES, ACTIONS = 12, 3
SPACES = Spaces({"observation": ObservationSpec((5,), "float32")}, Discrete(ACTIONS))
NETWORK = NetworkConfig(middleware=(8,), value_gain=1.0)
CONFIGS: dict[str, DQNConfig | C51Config | QRDQNConfig] = {
    "dqn": DQNConfig(double=False),
    "dqn, double": DQNConfig(),
    "dqn, squared": DQNConfig(huber_loss=False),
    "dqn, dueling": DQNConfig(dueling=6),
    "c51": C51Config(atoms=11, v_min=-3.0, v_max=3.0),
    "c51, double": C51Config(atoms=7, v_min=-1.0, v_max=2.0, double=True),
    "c51, dueling": C51Config(atoms=5, v_min=-2.0, v_max=2.0, dueling=6),
    "qr-dqn": QRDQNConfig(quantiles=7),
    "qr-dqn, double": QRDQNConfig(quantiles=4, double=True),
    "qr-dqn, dueling": QRDQNConfig(quantiles=5, dueling=6),
}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


class Given(TrivialTarget):
    """The target network with the weights that it is given."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def init(self, model: nn.Module) -> None:
        copied = copy.deepcopy(model)
        copied.get_submodule("network").load_state_dict(self.network.state_dict())
        super().init(copied)


def made(config: Any, **options: Any) -> ReplayedValues:
    algorithm = make_algorithm(config, Categorical(ACTIONS), 1, **{"round_steps": 4, **options})
    assert isinstance(algorithm, DQN | C51 | QRDQN)
    return algorithm


def network_of(algorithm: ReplayedValues, seed: int, config: NetworkConfig = NETWORK) -> nn.Module:
    """A network whose outputs differ clearly between actions and observations."""
    network = build_network(
        network_parameters(config, heads=algorithm.heads), SPACES, torch.Generator().manual_seed(seed)
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator))
    return network


def batch_of_numbers(seed: int = 3) -> Batch:
    """Transitions of one to three steps, of which some have terminated."""
    random = np.random.default_rng(seed)
    discounts = np.array([0.0, 0.9, 0.9**2, 0.9**3], np.float32)[random.integers(0, 4, SAMPLES)]
    return Batch(
        torch.from_numpy(random.standard_normal((SAMPLES, 5), np.float32)),
        torch.from_numpy(random.integers(0, ACTIONS, SAMPLES)),
        torch.from_numpy(random.standard_normal(SAMPLES, np.float32)),
        torch.from_numpy(discounts),
        torch.from_numpy(random.standard_normal((SAMPLES, 5), np.float32)),
        torch.from_numpy(random.random(SAMPLES, np.float32)),
        np.full(SAMPLES, np.nan, np.float32),
    )


def learned(config: Any, batch: Batch, online: nn.Module, target: nn.Module) -> tuple[list[Tensor], tuple[float, ...]]:
    """The gradient of one batch, parameter by parameter, and the statistics of its loss."""
    algorithm, network = made(config), copy.deepcopy(online)
    algorithm.connect(network, OptimizerReceiver(SGD(network.parameters(), lr=1.0)), Given(target))
    algorithm.gradient(batch)
    pairs = zip(online.parameters(), network.parameters(), strict=True)
    return [(before - after).detach() for before, after in pairs], algorithm.q.statistics


# --- the algorithms, written out


def expected(config: Any, output: Tensor) -> Tensor:
    """The values of all actions."""
    if isinstance(config, DQNConfig):
        return output
    if isinstance(config, QRDQNConfig):
        return torch.stack([quantiles.mean() for quantiles in output])
    returns = torch.linspace(config.v_min, config.v_max, config.atoms, dtype=torch.float64)
    return torch.stack([(row.exp() * returns).sum() for row in output])


def huber(error: Tensor) -> Tensor:
    return error.abs() - 0.5 if error.abs() > 1 else 0.5 * error**2


def value_loss(config: DQNConfig, value: Tensor, reward: float, discount: float, following: Tensor) -> Any:
    error = reward + discount * following - value
    return (huber(error) if config.huber_loss else error**2), error.abs()


def category_loss(config: C51Config, logs: Tensor, reward: float, discount: float, following: Tensor) -> Any:
    """Algorithm 1 of the paper."""
    spacing = (config.v_max - config.v_min) / (config.atoms - 1)
    masses = [0.0] * config.atoms
    for i, probability in enumerate(following.exp().tolist()):
        moved = reward + discount * (config.v_min + i * spacing)
        b = (min(max(moved, config.v_min), config.v_max) - config.v_min) / spacing
        low = min(int(b), config.atoms - 2)
        masses[low] += probability * (low + 1 - b)
        masses[low + 1] += probability * (b - low)
    loss = -sum(mass * logs[i] for i, mass in enumerate(masses))
    entropy = -sum(mass * math.log(mass) for mass in masses if mass > 0)
    return loss, loss - entropy


def quantile_loss(config: QRDQNConfig, quantiles: Tensor, reward: float, discount: float, following: Tensor) -> Any:
    """Equation 10 of the paper."""
    n, total = config.quantiles, torch.zeros((), dtype=torch.float64)
    targets = [reward + discount * value.item() for value in following]
    for i in range(n):
        for target in targets:
            error = target - quantiles[i]
            total = total + abs((2 * i + 1) / (2 * n) - float(error < 0)) * huber(error) / n
    return total, (sum(targets) / n - quantiles.mean()).abs()


def reference(config: Any, batch: Batch, online: nn.Module, target: nn.Module) -> tuple[Tensor, list[float]]:
    """The loss, and the error of each sample."""
    losses, errors = [], []
    one_loss: Any = {DQNConfig: value_loss, C51Config: category_loss, QRDQNConfig: quantile_loss}[type(config)]
    for i in range(len(batch)):
        seen, after = (rows[i : i + 1].double() for rows in (batch.observations, batch.next_observations))
        with torch.no_grad():
            following = target(after)[0][0]
            chooses = online(after)[0][0] if config.double else following
            best = int(expected(config, chooses).argmax())
        output = online(seen)[0][0][int(batch.actions[i])]
        loss, error = one_loss(config, output, float(batch.returns[i]), float(batch.discounts[i]), following[best])
        losses.append(float(batch.importance[i]) * loss)
        errors.append(error.item())
    return torch.stack(losses).mean(), errors


@every_config
def test_one_gradient_is_that_of_the_reference(config: Any) -> None:
    online, target = (network_of(made(config), seed) for seed in (1, 2))
    batch = batch_of_numbers()
    exact = copy.deepcopy(online).double()
    total, errors = reference(config, batch, exact, copy.deepcopy(target).double())
    gradient, statistics = learned(config, batch, online, target)
    for one, other in zip(gradient, torch.autograd.grad(total, list(exact.parameters())), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=2e-6)
    assert statistics[0] == pytest.approx(total.item(), rel=1e-5)
    assert len(statistics) == len(made(config).statistics)
    np.testing.assert_allclose(batch.errors, errors, rtol=1e-4, atol=1e-5)


@every_config
def test_the_case_tells_double_from_single(config: Any) -> None:
    """The networks disagree about the best action of some samples, so that a wrong choice changes the reference."""
    online, target = (network_of(made(config), seed) for seed in (1, 2))
    after = batch_of_numbers().next_observations
    with torch.no_grad():
        best = [[int(expected(config, row.double()).argmax()) for row in net(after)[0]] for net in (online, target)]
    assert best[0] != best[1]


@every_config
def test_importance_scales_losses_but_not_errors(config: Any) -> None:
    online, target = (network_of(made(config), seed) for seed in (1, 2))
    whole, half = batch_of_numbers(), batch_of_numbers()
    whole.importance.fill_(1.0)
    half.importance.fill_(0.5)
    (one, first), (other, second) = (learned(config, batch, online, target) for batch in (whole, half))
    for whole_part, half_part in zip(one, other, strict=True):
        torch.testing.assert_close(0.5 * whole_part, half_part, rtol=1e-4, atol=1e-6)
    assert second[0] == pytest.approx(0.5 * first[0])
    assert second[1:] == first[1:]
    np.testing.assert_array_equal(whole.errors, half.errors)


def test_a_target_after_a_termination_does_not_depend_on_the_next_observation() -> None:
    for config in CONFIGS.values():
        online, target = (network_of(made(config), seed) for seed in (1, 2))
        one, other = batch_of_numbers(), batch_of_numbers()
        for batch in (one, other):
            batch.discounts.fill_(0.0)
        other.next_observations.add_(5.0)
        for part, same in zip(*(learned(config, b, online, target)[0] for b in (one, other)), strict=True):
            torch.testing.assert_close(part, same, rtol=0, atol=1e-6)  # rounding of probabilities, which sum to 1


@pytest.mark.parametrize(
    ("config", "atoms"),
    [(DQNConfig(dueling=6), 1), (C51Config(dueling=6, atoms=5), 5), (QRDQNConfig(dueling=6, quantiles=4), 4)],
    ids=["dqn", "c51", "qr-dqn"],
)
def test_dueling_streams_have_the_width_of_the_key(config: Any, atoms: int) -> None:
    network = network_of(made(config), 1)
    shapes = {name: tuple(array.shape) for name, array in network.named_parameters()}
    assert shapes["trunk.2.weight"] == (12, 8)
    assert shapes["heads.0.value.weight"] == (atoms, 6)
    assert shapes["heads.0.advantage.weight"] == (ACTIONS * atoms, 6)


# --- acting


@every_config
def test_the_first_rounds_explore_until_learning_starts(config: Any) -> None:
    """10 steps in rounds of 4 are three rounds; epsilon decreases by the number of the rollout all the while."""
    started = type(config)(learning_starts=10, exploration_steps=40)
    distribution = made(started).distribution
    end = started.exploration_end
    later = [1.0 + (end - 1.0) * r / 10 for r in (3, 5)]
    epsilons = [distribution.for_rollout(r).epsilon for r in (0, 2, 3, 5, 10)]  # type: ignore[attr-defined]
    assert epsilons == pytest.approx([1.0, 1.0, *later, end])
    assert distribution.epsilon == pytest.approx(end)  # type: ignore[attr-defined]


@every_config
def test_the_policy_takes_the_action_of_the_largest_expected_return(config: Any) -> None:
    algorithm = made(config)
    with torch.no_grad():
        output = network_of(algorithm, 3)(3 * torch.randn((50, 5), generator=torch.Generator().manual_seed(0)))[0]
    best = [int(expected(config, row.double()).argmax()) for row in output]
    assert len(set(best)) > 1
    distribution = algorithm.distribution
    assert distribution.mode(output).tolist() == best
    noise = distribution.draw_noise(np.random.default_rng(1), 50)
    noise[:, 0] = 1.0  # epsilon is less, so nothing is explored
    assert distribution.sample_numpy(output.numpy(), noise).tolist() == best
    assert distribution.sample(output, torch.from_numpy(noise)).tolist() == best


# --- noise in the weights (NoisyNet)


@every_config
def test_a_gradient_with_noise_follows_from_the_seed_of_torch(config: Any) -> None:
    """So a gradient that is made again after a crash has the same bytes."""
    network = dataclasses.replace(NETWORK, noisy_deviation=0.5)
    online, target = (network_of(made(config), seed, network) for seed in (1, 2))
    gradients = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        gradients.append(torch.cat([part.flatten() for part in learned(config, batch_of_numbers(), online, target)[0]]))
    assert torch.equal(gradients[0], gradients[1])
    assert not torch.equal(gradients[0], gradients[2])
    assert {name.rpartition(".")[2] for name, _ in online.named_parameters()} >= {"weight_deviation", "bias_deviation"}
    assert all(isinstance(layer, NoisyLinear) for layer in online.trunk if not isinstance(layer, nn.Tanh))


# --- keys


def test_a_fraction_of_an_update_is_refused() -> None:
    assert made(DQNConfig(), round_steps=8).gradients_per_round == 4
    with pytest.raises(TopologyError, match=r"updates_per_step = 1/2 makes 3\.5 updates of a round of 7") as caught:
        made(C51Config(), round_steps=7)
    assert '"3/7" or "4/7"' in (caught.value.hint or "")


def test_a_support_must_have_an_extent() -> None:
    with pytest.raises(NetworkError, match=r"invalid support of 51 atoms from 2\.0 to 1\.0"):
        made(C51Config(v_min=2.0, v_max=1.0))


def test_parameters_change_from_the_next_gradient_on() -> None:
    config = QRDQNConfig(quantiles=4)
    algorithm, online, target = made(config), *(network_of(made(config), seed) for seed in (1, 2))
    algorithm.connect(online, OptimizerReceiver(SGD(online.parameters(), lr=1e-30)), Given(target))
    batches = [batch_of_numbers() for _ in range(2)]
    algorithm.gradient(batches[0])
    assert update_parameter(algorithm, "double", True) is False
    algorithm.gradient(batches[1])
    assert (batches[0].errors != batches[1].errors).any()
