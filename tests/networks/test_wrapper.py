"""NetworkWrapper: the copies of a run in blocks of its state."""

from __future__ import annotations

import numpy as np
import torch

from hive.envs.spaces.actions import Discrete
from hive.envs.spaces.observation import ObservationSpec
from hive.networks import NetworkParameters, Spaces, aligned_block
from hive.networks.weights.shared_network import Version
from hive.networks.weights.state import StateLayout
from hive.networks.weights.wrapper import BoundNetwork, NetworkWrapper

SPACES = Spaces({"observation": ObservationSpec((3,), "float32")}, Discrete(2))


def weights(network: BoundNetwork | None) -> np.ndarray:
    assert network is not None
    return network.flat.weights.copy()


def state_layout(has_target: bool = True) -> StateLayout:
    return StateLayout(BoundNetwork(NetworkParameters(), SPACES, torch.Generator()).flat, has_target=has_target)


def in_a_run(state: StateLayout) -> NetworkWrapper:
    return NetworkWrapper(NetworkParameters(), SPACES, state, torch.Generator())


def block_of(state: StateLayout, weight: float, target: float) -> np.ndarray:
    block = aligned_block(state.bytes)
    state.parameters(block)[:] = weight
    if state.has_target:
        state.target(block)[: state.flat.parameter_bytes].view(np.float32)[:] = target
    return block


def versions(state: StateLayout) -> tuple[NetworkWrapper, Version, Version]:
    """A learner's wrapper in the middle of an update from one version to the next."""

    def version(weight: float) -> Version:
        moments = [aligned_block(state.flat.parameter_bytes).view(np.float32) for _ in range(2)]
        return Version(block_of(state, weight, weight), moments)

    copies, now, following = in_a_run(state), version(1.0), version(99.0)
    copies.global_network.between(now, following)
    return copies, now, following


def test_copies_are_built_at_their_first_use() -> None:
    copies, now, following = versions(state := state_layout())
    gradient = np.ones(state.flat.parameter_elements, np.float32)
    built = []
    copies._built = lambda: built.append(NetworkWrapper._built(copies)) or built[-1]  # type: ignore[func-returns-value]
    assert copies.apply_gradients_to_global_network(gradient, norm=1.0, step=1, learning_rate=0.1)
    copies.update_target_network(0.5, version=2)
    assert not built
    assert (state.parameters(following.block) < state.parameters(now.block)).all()
    assert [copies.target_network, copies.target_network, copies.online_network] == [built[0], *built]
    without = in_a_run(state_layout(has_target=False))
    without.update_target_network(0.5)
    assert without.target_network is None


def test_updating_the_online_network_binds_it_and_its_target_to_the_block() -> None:
    copies = in_a_run(state := state_layout())
    late = in_a_run(state)
    assert copies.target_network is not None
    for weight in (2.0, 5.0):
        block = block_of(state, weight, weight + 1)
        for wrapper in (copies, late):
            wrapper.global_network.at(block)
            wrapper.update_online_network()
        assert (weights(copies.online_network) == weight).all()
        assert (weights(copies.target_network) == weight + 1).all()
        assert (weights(late.target_network) == weight + 1).all(), "also one that is first asked for now"
        state.parameters(block)[:] = 7.0
        assert (weights(copies.online_network) == 7.0).all(), "it is read in place"


def test_the_target_of_the_next_version_is_a_polyak_step() -> None:
    copies, now, following = versions(state := state_layout())
    state.parameters(following.block)[:] = 3.0
    copies.update_target_network(0.25, version=4)
    target = state.target(following.block)[: state.flat.parameter_bytes].view(np.float32)
    np.testing.assert_allclose(target, 1.5)
    assert state.target_version(following.block)[0] == 4
    assert (state.parameters(now.block) == 1.0).all()


def test_an_update_that_is_not_finite_says_so_and_changes_nothing() -> None:
    copies, now, _ = versions(state := state_layout())
    before = now.block.copy()
    gradient = np.ones(state.flat.parameter_elements, np.float32)
    assert not copies.apply_gradients_to_global_network(gradient, norm=1.0, step=3, learning_rate=float("inf"))
    assert np.array_equal(now.block, before)
    assert not any(moments.any() for moments in now.moments)
