"""NetworkWrapper: the copies of a run in blocks of its state, and updates from block to block."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hive.envs.spaces.actions import Discrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError
from hive.networks import FlatParameters, NetworkParameters, OptimizerSettings, Spaces, aligned_block
from hive.networks.weights.flat import GroupUpdate
from hive.networks.weights.state import StateLayout, Version
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
    copies.begin_update(now, following)
    return copies, now, following


def test_copies_are_built_at_their_first_use() -> None:
    copies, now, following = versions(state := state_layout())
    gradient = np.ones(state.flat.parameter_elements, np.float32)
    built = []
    copies._copy = lambda: built.append(NetworkWrapper._copy(copies)) or built[-1]  # type: ignore[func-returns-value]
    assert copies.apply_gradients_to_global_network(gradient, [GroupUpdate(slice(None), 1.0, 1, 0.1)])
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
            wrapper.bind(block)
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


RATE = 0.01


def module() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False), nn.Tanh(), nn.Linear(4, 1))


def version(layout: StateLayout) -> Version:
    moments = [aligned_block(layout.flat.parameter_bytes).view(np.float32) for _ in range(2)]
    return Version(aligned_block(layout.bytes), moments)


class Run:
    """The copies of a learner over blocks that are reused in turn, as on a board, each with its former content."""

    def __init__(self, clip_gradients: float = 0.0, *, has_target: bool = True) -> None:
        self.layout = StateLayout(FlatParameters(module()), has_target=has_target)
        self.copies = in_a_run(self.layout)
        self.copies.configure(OptimizerSettings("adam"), clip_gradients)
        self.now, self.following = version(self.layout), version(self.layout)
        self.following.block[:] = 99
        self.layout.flat.initialize_into(self.layout.weights(self.now.block))
        self.layout.moments(self.now.block)[:] = 0.5, 2.0
        if has_target:
            self.layout.begin_target(self.now.block)
        self.copies.begin_update(self.now, self.following)

    def apply(self, gradient: np.ndarray, step: int) -> bool:
        norm = float(np.linalg.norm(gradient))
        return self.copies.apply_gradients_to_global_network(gradient, [GroupUpdate(slice(None), norm, step, RATE)])

    def turn(self) -> None:
        self.now, self.following = self.following, self.now
        self.copies.begin_update(self.now, self.following)


def gradient_of(flat: FlatParameters, network: nn.Module, seed: int) -> np.ndarray:
    network.zero_grad()
    inputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed))
    torch.autograd.backward((10 * network(inputs)).square().mean())
    gradient = aligned_block(flat.parameter_bytes).view(np.float32)
    for view, parameter in zip(flat.gradient_arrays(gradient), network.parameters(), strict=True):
        assert parameter.grad is not None
        view[...] = parameter.grad.numpy()
    return gradient


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_updates_from_block_to_block_are_those_of_torch(clip: float) -> None:
    run, network = Run(clip), module()
    adam = torch.optim.Adam(network.parameters(), lr=RATE)
    for step in range(1, 6):
        before = run.now.block.copy()
        assert run.apply(gradient_of(run.layout.flat, network, step), step)
        assert np.array_equal(run.now.block, before), "version v is only read"
        if clip:
            assert nn.utils.clip_grad_norm_(network.parameters(), clip) > clip
        adam.step()
        views = run.layout.flat.arrays(run.following.block)
        for name, parameter in network.named_parameters():
            np.testing.assert_allclose(views[name], parameter.detach().numpy(), rtol=1e-5, atol=1e-6)
        run.turn()


def test_an_update_carries_buffers_and_moments_of_advantages_over() -> None:
    run = Run()
    gradient = np.ones(run.layout.flat.parameter_elements, np.float32)
    buffers = run.layout.flat.buffer_arrays(run.now.block)
    buffers["1.running_mean"][:] = 7.0
    assert run.apply(gradient, 1)
    assert (run.layout.flat.buffer_arrays(run.following.block)["1.running_mean"] == 7.0).all()
    assert run.layout.moments(run.following.block).tolist() == [0.5, 2.0]


def test_weights_that_are_not_finite_are_reported_and_version_v_is_left_alone() -> None:
    run = Run()
    before = run.now.block.copy()
    gradient = np.ones(run.layout.flat.parameter_elements, np.float32)
    assert not run.copies.apply_gradients_to_global_network(gradient, [GroupUpdate(slice(None), 1.0, 1, float("inf"))])
    assert np.array_equal(run.now.block, before)
    run.copies.keep_global_network()
    assert np.array_equal(run.layout.weights(run.following.block), run.layout.weights(before))


def test_keep_makes_the_next_version_the_present_one() -> None:
    run = Run()
    for number, moments in enumerate(run.now.moments):
        moments[:] = number + 1
    run.copies.keep_global_network()
    run.copies.update_target_network(0.0, version=9)
    used = run.layout.weight_bytes
    assert np.array_equal(run.following.block[:used], run.now.block[:used])
    assert np.array_equal(run.layout.target(run.following.block), run.layout.target(run.now.block))
    assert run.layout.target_version(run.following.block)[0] == 1
    assert run.layout.moments(run.following.block).tolist() == [0.5, 2.0]
    for old, new in zip(run.now.moments, run.following.moments, strict=True):
        assert np.array_equal(old, new)


def test_the_target_follows_the_new_weights() -> None:
    run = Run()
    assert run.apply(np.ones(run.layout.flat.parameter_elements, np.float32), 1)
    run.copies.update_target_network(1.0, version=2)
    after = run.following.block
    assert np.array_equal(run.layout.target(after), run.layout.weights(after))
    assert not np.array_equal(run.layout.target(after), run.layout.target(run.now.block))
    assert run.layout.target_version(after)[0] == 2


def test_other_settings_count_from_the_next_update_on() -> None:
    run, clipped = Run(), Run(0.5)
    run.copies.configure(OptimizerSettings("adam"), 0.5)
    gradient = np.full(run.layout.flat.parameter_elements, 3.0, np.float32)
    assert run.apply(gradient, 1)
    assert clipped.apply(gradient, 1)
    assert np.array_equal(run.following.moments[0], clipped.following.moments[0])


def test_calls_outside_of_an_update_are_refused() -> None:
    run = Run()
    fresh = in_a_run(run.layout)
    with pytest.raises(NetworkError, match="the global network has no block yet"):
        fresh.update_online_network()
    gradient = np.ones(run.layout.flat.parameter_elements, np.float32)
    for call in (
        lambda: fresh.apply_gradients_to_global_network(gradient, [GroupUpdate(slice(None), 1.0, 1, RATE)]),
        fresh.keep_global_network,
        lambda: fresh.update_target_network(version=1),
    ):
        with pytest.raises(NetworkError, match="no update of the global network has begun"):
            call()
