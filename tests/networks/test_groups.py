"""Parameter groups: their ranges in a flat vector, and updates of some of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hive.errors import NetworkError
from hive.networks import FlatParameters, NetworkParameters, OptimizerSettings, Spaces, aligned_block
from hive.networks.weights.flat import GroupUpdate
from hive.networks.weights.state import StateLayout, Version
from hive.networks.weights.wrapper import NetworkWrapper as RunNetworks

RATE = 0.01


class Agent(nn.Module):
    def __init__(self, *names: str) -> None:
        super().__init__()
        self.parameter_groups = names
        self.actor = nn.Linear(3, 2)
        self.critic = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1))


def test_a_module_without_groups_has_one_of_all_parameters() -> None:
    (group,) = FlatParameters(nn.Linear(3, 2)).groups
    assert (group.name, group.parameters, group.elements) == ("network", slice(0, 2), slice(0, 32))


def test_groups_are_ranges_of_parameters_and_of_elements() -> None:
    flat = FlatParameters(Agent("actor", "critic"))
    actor, critic = flat.groups
    assert (actor.name, actor.parameters, actor.elements) == ("actor", slice(0, 2), slice(0, 32))
    assert (critic.name, critic.parameters, critic.elements) == ("critic", slice(2, 6), slice(32, 96))
    assert flat.parameter_elements == 96
    mask = np.array([0, 0, 0, 1, 0, 0], np.uint8)
    assert (actor.has_gradient(mask), critic.has_gradient(mask)) == (False, True)


def test_groups_may_lie_in_a_child_and_have_its_names() -> None:
    around = nn.Module()
    around.network = Agent()
    around.parameter_groups = ("network.actor", "network.critic")
    own = [(group.name, group.parameters) for group in FlatParameters(around).groups]
    assert own == [("actor", slice(0, 2)), ("critic", slice(2, 6))]


@pytest.mark.parametrize("names", [("actor",), ("critic", "actor"), ("actor", "critic", "value"), ("actor", "actor")])
def test_groups_that_do_not_fit_the_parameters_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(NetworkError, match="the parameters actor, critic do not form the groups"):
        FlatParameters(Agent(*names))


def test_each_group_is_clipped_counted_and_stepped_for_itself() -> None:
    torch.manual_seed(1)
    network = Agent("actor", "critic")
    layout = StateLayout(FlatParameters(network), has_target=False)
    shared = RunNetworks(NetworkParameters(), Spaces({}, None), layout, torch.Generator())
    shared.configure(OptimizerSettings("adam"), 1.0)
    now, following = (
        Version(
            aligned_block(layout.bytes),
            [aligned_block(layout.flat.parameter_bytes).view(np.float32) for _ in range(2)],
        )
        for _ in range(2)
    )
    following.block[:] = 99
    layout.flat.initialize_into(layout.weights(now.block))
    networks = network.actor, network.critic
    adams = [torch.optim.Adam(part.parameters(), rate) for part, rate in zip(networks, (RATE, 3 * RATE), strict=True)]
    steps = [0, 0]
    generator = np.random.default_rng(0)
    gradient = aligned_block(layout.flat.parameter_bytes).view(np.float32)
    for learning in ([0, 1], [1], [1], [0], [0, 1]):
        before = [now.block.copy(), *(moments.copy() for moments in now.moments)]
        updates = []
        for number, group in enumerate(layout.flat.groups):
            views = layout.flat.gradient_arrays(gradient)[group.parameters]
            for view, parameter in zip(views, list(network.parameters())[group.parameters], strict=True):
                view[...] = generator.standard_normal(view.shape)
                parameter.grad = torch.from_numpy(view.copy())
            steps[number] += number in learning
            norm = float(np.linalg.norm(gradient[group.elements]))
            step = steps[number] if number in learning else 0
            updates.append(GroupUpdate(group.elements, norm, step, (1, 3)[number] * RATE))
        for number in learning:
            nn.utils.clip_grad_norm_(networks[number].parameters(), 1.0)
            adams[number].step()
        shared.begin_update(now, following)
        assert shared.apply_gradients_to_global_network(gradient, updates)
        views = layout.flat.arrays(following.block)
        for name, parameter in network.named_parameters():
            np.testing.assert_allclose(views[name], parameter.detach().numpy(), rtol=1e-5, atol=1e-6)
        for number in {0, 1} - set(learning):
            kept = layout.flat.groups[number].elements
            pairs = zip(before, (following.block, *following.moments), strict=True)
            assert all(np.array_equal(old.view(np.float32)[kept], new.view(np.float32)[kept]) for old, new in pairs)
        now, following = following, now
