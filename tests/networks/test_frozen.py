"""Parameters that require no gradient keep their bits: under every optimizer and option, in runs and in scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hive.compat.autonomous import Approximation, PolyakTarget
from hive.compat.coach.torch_architecture import TorchArchitecture
from hive.compat.coach.wrapper import NetworkWrapper
from hive.envs import Discrete, ObservationSpec
from hive.errors import NetworkError
from hive.networks import FlatParameters, NetworkParameters, Spaces, aligned_block
from hive.networks.build.parameters import OPTIMIZERS
from hive.networks.weights.flat import GroupUpdate
from hive.networks.weights.optimizers import NAMES, FlatOptimizer, OptimizerSettings
from hive.networks.weights.state import StateLayout, Version
from hive.networks.weights.wrapper import NetworkWrapper as RunNetworks

SPACES = Spaces({"observation": ObservationSpec((3,), "float32")}, Discrete(2))
VALUE = 0.1  # in float32, 0.7 * 0.1 + 0.3 * 0.1 is another number


class Net(nn.Module):
    """A frozen layer in the middle of the block, and heads that learn."""

    def __init__(self, spaces: Any = None) -> None:
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.base = nn.Linear(5, 7)
        nn.init.constant_(self.base.weight, VALUE)
        nn.init.constant_(self.base.bias, -0.0)
        self.base.requires_grad_(False)
        self.policy, self.value = nn.Linear(7, 2), nn.Linear(7, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.base(torch.tanh(self.first(observations))))
        return self.policy(hidden), self.value(hidden)[:, 0]


def bits(module: nn.Module) -> list[bytes]:
    return [parameter.detach().numpy().tobytes() for parameter in module.parameters() if not parameter.requires_grad]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "lbfgs"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_turn_of_a_run_keeps_them(name: str, momentum: float) -> None:
    """The weights, their moments and their target; all others change."""
    flat = FlatParameters(Net())
    layout = StateLayout(flat, has_target=True)
    settings = OptimizerSettings(name, weight_decay=0.1, momentum=momentum)
    shared = RunNetworks(NetworkParameters(), SPACES, layout, torch.Generator())
    shared.configure(settings, 0.5)
    count = FlatOptimizer(settings).moment_blocks
    versions = [
        Version(aligned_block(layout.bytes), [np.zeros(flat.parameter_elements, np.float32) for _ in range(count)])
        for _ in range(2)
    ]
    now, following = versions
    flat.initialize_into(now.block)
    layout.begin_target(now.block)
    start = now.block.copy()
    gradient = np.zeros(flat.parameter_elements, np.float32)
    for field, view in zip(flat.parameters, flat.gradient_arrays(gradient), strict=True):
        view[...] = 0.0 if field.name.startswith("base") else 1.0
    for step in (1, 2, 3):
        shared.begin_update(now, following)
        assert shared.apply_gradients_to_global_network(gradient, [GroupUpdate(slice(None), 1.0, step, 0.01)])
        shared.update_target_network(0.3, version=step + 1)
        now, following = following, now
    blocks = (layout.weights(start), layout.weights(now.block)), (layout.target(start), layout.target(now.block))
    for before, after in blocks:
        arrays = flat.arrays(before), flat.arrays(after)
        for key in flat.names:
            same = arrays[0][key].tobytes() == arrays[1][key].tobytes()
            assert same == key.startswith("base"), key
    assert not any(moments[elements].any() for moments in now.moments for elements in flat.frozen())


def test_ranges_follow_what_is_frozen_at_present() -> None:
    module = Net()
    flat = FlatParameters(module)
    assert [elements.stop - elements.start for elements in flat.frozen()] == [35, 7]
    module.base.bias.requires_grad_(True)
    assert [elements.stop - elements.start for elements in flat.frozen()] == [35]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_network_of_a_script_keeps_them(optimizer: str) -> None:
    """Also gradients that a caller hands over do not reach them, and count in no norm."""
    parameters = NetworkParameters(
        module=Net, optimizer_type=optimizer, weight_decay=0.1, clip_gradients=1.0, learning_rate=0.01, momentum=0.5
    )
    network, other = (TorchArchitecture(parameters, SPACES) for _ in range(2))
    start = bits(network.module)
    inputs = {"observation": np.ones((4, 3), np.float32), "output_0_0": np.zeros(4, np.int64)}
    network.train_on_batch(inputs, [np.ones(4, np.float32), np.ones(4, np.float32)])
    gradients = [np.ones_like(array) for array in network.accumulated_gradients]
    network.apply_gradients(gradients)
    gradients[2][...] = 1e9  # of base.weight
    other.train_on_batch(inputs, [np.ones(4, np.float32), np.ones(4, np.float32)])
    other.apply_gradients(gradients)
    assert bits(network.module) == bits(other.module) == start
    assert np.array_equal(network.get_weights()[0], other.get_weights()[0])


def test_a_target_network_keeps_them() -> None:
    wrapper = NetworkWrapper(
        NetworkParameters(module=Net, learning_rate=0.1),
        has_target=True,
        has_global=False,
        name="main",
        spaces=SPACES,
        generator=torch.Generator().manual_seed(0),
    )
    assert wrapper.target_network is not None
    start = bits(wrapper.target_network.module)
    wrapper.online_network.apply_gradients([np.ones_like(a) for a in wrapper.online_network.accumulated_gradients])
    wrapper.update_target_network(0.3)
    assert bits(wrapper.target_network.module) == start


OPTIMS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 0.1, weight_decay=0.5),
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=0.5, nesterov=True),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, 0.1, momentum=0.9, weight_decay=0.5),
}


@pytest.mark.parametrize("name", OPTIMS)
def test_an_approximation_keeps_them_and_those_that_are_frozen_later(name: str) -> None:
    model = Net()
    approximation = Approximation(model, OPTIMS[name](model.parameters()), target=PolyakTarget(0.3), clip_grad=1.0)
    target = approximation.target_network._copy  # type: ignore[union-attr]
    inputs = torch.ones(2, 3)
    start = bits(model)
    approximation.reinforce(model(inputs)[0].sum() + model(inputs)[1].sum())
    assert [p.detach().numpy().tobytes() for p in list(target.parameters())[2:4]] == start
    (model(inputs)[0].sum() + model(inputs)[1].sum()).backward()
    model.policy.requires_grad_(False)  # after its backward pass, so it has a gradient
    frozen = bits(model)
    model.policy.weight.grad = torch.full_like(model.policy.weight, 1e9)
    approximation.step()
    assert bits(model) == frozen
    assert approximation.report is not None
    assert approximation.report.norm is not None
    assert approximation.report.norm < 1e3


def test_a_network_of_frozen_parameters_cannot_learn() -> None:
    network = TorchArchitecture(NetworkParameters(module=lambda spaces: Net().requires_grad_(False)), SPACES)
    inputs = {"observation": np.ones((4, 3), np.float32), "output_0_0": np.zeros(4, np.int64)}
    with pytest.raises(NetworkError, match="has nothing to learn"):
        network.train_on_batch(inputs, [np.ones(4, np.float32), np.ones(4, np.float32)])
