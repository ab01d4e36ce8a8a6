"""NetworkWrapper: the copies, and what flows between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from worker_threads import in_threads

from hive.compat.coach.torch_architecture import TorchArchitecture
from hive.compat.coach.worker_group import WorkerGroup
from hive.compat.coach.wrapper import NetworkWrapper
from hive.envs.spaces.actions import Discrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError
from hive.networks import NetworkParameters, Spaces, aligned_block
from hive.networks.weights.flat import GroupUpdate
from hive.networks.weights.state import StateLayout, Version
from hive.networks.weights.wrapper import NetworkWrapper as InARun

SPACES = Spaces({"observation": ObservationSpec((3,), "float32")}, Discrete(2))
RNG = np.random.default_rng(0)
INPUTS = {"observation": RNG.standard_normal((6, 3), dtype=np.float32), "output_0_0": RNG.integers(0, 2, 6)}
TARGETS = [RNG.standard_normal(6, dtype=np.float32), RNG.standard_normal(6, dtype=np.float32)]


def wrapper(has_target: bool = True, has_global: bool = True, **parameters: Any) -> NetworkWrapper:
    return NetworkWrapper({"main": NetworkParameters(**parameters)}, has_target, has_global, "main", SPACES)


def weights(network: TorchArchitecture | None) -> np.ndarray:
    assert network is not None
    return np.concatenate([weight.ravel() for weight in network.get_weights()])


def shift(network: TorchArchitecture | None, by: float) -> None:
    assert network is not None
    network.set_weights([weight + by for weight in network.get_weights()])


@pytest.mark.parametrize("has_target", [True, False])
@pytest.mark.parametrize("has_global", [True, False])
def test_the_copies_exist_on_request_and_start_equal(has_target: bool, has_global: bool) -> None:
    generator = torch.Generator().manual_seed(4)  # moves on from copy to copy
    copies = NetworkWrapper(NetworkParameters(), has_target, has_global, "main", SPACES, generator=generator)
    assert (copies.target_network is not None) == has_target
    assert (copies.global_network is not None) == has_global
    assert [network.name for network in copies.networks][-1] == ("main/target" if has_target else "main/online")
    for network in copies.networks:
        assert np.array_equal(weights(network), weights(copies.online_network))


def test_sync_goes_from_global_to_online_to_target() -> None:
    copies = wrapper()
    shift(copies.global_network, 1.0)
    copies.sync()
    assert np.array_equal(weights(copies.online_network), weights(copies.global_network))
    assert np.array_equal(weights(copies.target_network), weights(copies.global_network))


def test_updates_mix_by_their_rate() -> None:
    copies = wrapper()
    start = weights(copies.online_network)
    shift(copies.online_network, 1.0)
    copies.update_target_network(0.25)
    np.testing.assert_allclose(weights(copies.target_network), start + 0.25, rtol=1e-6, atol=1e-6)
    copies.update_online_network(rate=0.5)
    np.testing.assert_allclose(weights(copies.online_network), start + 0.5, rtol=1e-6, atol=1e-6)
    copies.update_target_network()
    assert np.array_equal(weights(copies.target_network), weights(copies.online_network))


def test_updates_without_that_copy_do_nothing() -> None:
    copies = wrapper(has_target=False, has_global=False)
    before = weights(copies.online_network)
    copies.sync()
    assert np.array_equal(weights(copies.online_network), before)


@pytest.mark.parametrize("has_global", [True, False])
@pytest.mark.parametrize("shared_optimizer", [True, False])
def test_training_is_the_same_with_and_without_a_global_network(has_global: bool, shared_optimizer: bool) -> None:
    reference = TorchArchitecture(NetworkParameters(), SPACES)
    copies = wrapper(has_global=has_global, shared_optimizer=shared_optimizer)
    for _ in range(3):
        assert copies.train_and_sync_networks(INPUTS, TARGETS) == reference.train_on_batch(INPUTS, TARGETS)
    assert np.array_equal(weights(copies.online_network), weights(reference))
    assert not np.array_equal(weights(copies.target_network), weights(reference))
    owner = copies.global_network if has_global and shared_optimizer else copies.online_network
    assert [network.updates for network in copies.networks] == [
        3 if network is owner else 0 for network in copies.networks
    ]


def test_two_workers_share_a_global_network_and_its_optimizer() -> None:
    one, two = wrapper(), wrapper()
    two.global_network = one.global_network
    one.train_and_sync_networks(INPUTS, TARGETS)
    two.train_and_sync_networks(INPUTS, TARGETS)
    assert one.global_network is not None
    assert one.global_network.updates == 2
    assert np.array_equal(weights(two.online_network), weights(one.global_network))
    assert not np.array_equal(weights(one.online_network), weights(one.global_network))
    one.update_online_network()
    assert np.array_equal(weights(one.online_network), weights(two.online_network))


def test_reset_gradients_means_reset() -> None:
    copies = wrapper()
    copies.online_network.accumulate_gradients(INPUTS, TARGETS)
    copies.apply_gradients_and_sync_networks(reset_gradients=False)
    assert any(gradient.any() for gradient in copies.online_network.accumulated_gradients)
    copies.apply_gradients_and_sync_networks()
    assert not any(gradient.any() for gradient in copies.online_network.accumulated_gradients)


def test_training_replaces_accumulated_gradients() -> None:
    one, two = wrapper(), wrapper()
    one.online_network.accumulate_gradients(INPUTS, [10 * target for target in TARGETS])
    one.train_and_sync_networks(INPUTS, TARGETS)
    two.train_and_sync_networks(INPUTS, TARGETS)
    assert np.array_equal(weights(one.online_network), weights(two.online_network))


def test_gradients_can_be_brought_along() -> None:
    one, two = wrapper(), wrapper()
    one.online_network.accumulate_gradients(INPUTS, TARGETS)
    gradients = one.online_network.accumulated_gradients
    two.apply_gradients_to_global_network(gradients)
    one.apply_gradients_to_global_network()
    assert np.array_equal(weights(one.global_network), weights(two.global_network))
    two.apply_gradients_to_online_network(gradients)
    assert np.array_equal(weights(two.online_network), weights(two.global_network))
    one.apply_gradients_to_online_network()
    assert np.array_equal(weights(one.online_network), weights(two.online_network))


@pytest.mark.parametrize("limit", [5.0, 1e3])
@pytest.mark.parametrize("scale", [2e-5, 1.0])
def test_gradients_are_clipped_by_the_factor_of_torch(scale: float, limit: float) -> None:
    """The 1e-6 that torch adds to the norm is a third of a percent of the smaller one's."""
    copies = wrapper(optimizer_type="SGD", learning_rate=1 / scale, clip_gradients=limit * scale, clip_stage="update")
    before = weights(copies.global_network)
    gradients = [np.full(g.shape, scale, np.float32) for g in copies.online_network.accumulated_gradients]
    copies.apply_gradients_to_global_network(gradients)
    parameter = torch.nn.Parameter(torch.zeros(len(before)))
    parameter.grad = torch.full_like(parameter, scale)
    torch.nn.utils.clip_grad_norm_([parameter], limit * scale)
    expected = float(parameter.grad[0]) / scale
    assert (expected < 0.1) == (limit == 5.0)
    np.testing.assert_allclose(before - weights(copies.global_network), expected, rtol=1e-4, atol=1e-6)


def test_applying_to_a_missing_global_network_raises_an_error_with_a_hint() -> None:
    with pytest.raises(NetworkError, match="network `main` has no global copy") as error:
        wrapper(has_global=False).apply_gradients_to_global_network()
    assert "apply_gradients_and_sync_networks" in error.value.hint


def test_fetches_and_importance_weights_are_passed_on() -> None:
    copies = wrapper()
    total, *_, fetched = copies.train_and_sync_networks(INPUTS, TARGETS, [1], np.zeros(6))
    assert (total, len(fetched)) == (0.0, 1)


def test_parallel_prediction_keeps_the_order() -> None:
    copies = wrapper()
    assert copies.target_network is not None
    shift(copies.target_network, 1.0)
    states = {"observation": INPUTS["observation"]}
    outputs = copies.parallel_prediction([(copies.target_network, states), (copies.online_network, states)])
    expected = [*copies.target_network.predict(states), *copies.online_network.predict(states)]
    assert all(np.array_equal(a, b) for a, b in zip(outputs, expected, strict=True))


def test_is_training_reaches_every_copy() -> None:
    copies = wrapper()
    copies.set_is_training(False)
    assert not any(network.module.training for network in copies.networks)


def test_variables_are_live_and_local_or_global() -> None:
    copies = wrapper()
    local, shared = copies.get_local_variables(), copies.get_global_variables()
    assert len(local) == 2 * len(shared) == 2 * len(copies.online_network.get_weights())
    shared[0][:] = 7.0
    assert copies.global_network is not None
    assert (copies.global_network.get_weights()[0] == 7.0).all()
    assert wrapper(has_global=False).get_global_variables() == []


def test_other_devices_are_refused() -> None:
    with pytest.raises(NetworkError, match="cannot be placed on cuda"):
        NetworkWrapper(NetworkParameters(), True, True, "main", SPACES, worker_device="cuda")
    with pytest.raises(NetworkError, match="cannot be placed on gpu"):
        NetworkWrapper(NetworkParameters(), True, True, "main", SPACES, "gpu")
    NetworkWrapper(NetworkParameters(), False, False, "main", SPACES, "cpu", torch.device("cpu"))


def test_the_target_is_there_if_the_parameters_say_so() -> None:
    for wanted in (True, False):
        copies = NetworkWrapper(NetworkParameters(create_target_network=wanted), None, False, "main", SPACES)
        assert (copies.target_network is not None) == wanted


def test_force_cpu_passes_devices_over() -> None:
    copies = NetworkWrapper(NetworkParameters(force_cpu=True), True, True, "main", SPACES, "cuda:0", "cuda:1")
    assert all(parameter.device.type == "cpu" for parameter in copies.online_network.module.parameters())


def test_batches_are_of_the_size_of_the_parameters() -> None:
    copies, by_hand = wrapper(batch_size=4), wrapper()
    results = copies.train_in_batches(INPUTS, TARGETS, np.ones(6, np.float32))
    for rows in (slice(0, 4), slice(4, 6)):
        inputs = {name: array[rows] for name, array in INPUTS.items()}
        expected = by_hand.train_and_sync_networks(inputs, [target[rows] for target in TARGETS])
        assert results.pop(0) == expected
    assert not results
    assert np.array_equal(weights(copies.online_network), weights(by_hand.online_network))


def test_batches_of_uneven_arrays_are_refused_before_the_first() -> None:
    copies = wrapper(batch_size=4)
    before = weights(copies.online_network)
    more = np.ones(12, np.float32)
    for arguments, message in (
        ((INPUTS, [more, TARGETS[1]]), "equal numbers of rows"),
        (({**INPUTS, "output_0_0": INPUTS["output_0_0"][:5]}, TARGETS), "equal numbers of rows"),
        ((INPUTS, TARGETS, more), "equal numbers of rows"),
        ((INPUTS, TARGETS[:1]), "2 outputs and 1 targets"),
        ((INPUTS, None), "the targets are missing"),
        (({}, TARGETS), "needs the input"),
        ((INPUTS["observation"], TARGETS), "a mapping from names to arrays"),
    ):
        with pytest.raises(NetworkError, match=message):
            copies.train_in_batches(*arguments)  # type: ignore[arg-type]
    assert np.array_equal(weights(copies.online_network), before)


def test_gradients_of_another_network_are_refused() -> None:
    copies = wrapper()
    for call in (copies.apply_gradients_to_global_network, copies.apply_gradients_to_online_network):
        with pytest.raises(NetworkError, match="0 arrays, expected a list of 6"):
            call([])


# --- workers that share a global network


def batch(worker: int) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(worker)
    inputs = {"observation": rng.standard_normal((6, 3), dtype=np.float32), "output_0_0": rng.integers(0, 2, 6)}
    return inputs, [rng.standard_normal(6, dtype=np.float32) for _ in range(2)]


def members(count: int, **parameters: Any) -> list[NetworkWrapper]:
    group: WorkerGroup[TorchArchitecture] = WorkerGroup(count)
    given = NetworkParameters(**parameters)
    return [NetworkWrapper(given, False, True, "main", SPACES, group=group, worker=worker) for worker in range(count)]


def train(copies: NetworkWrapper, updates: int) -> None:
    for _ in range(updates):
        copies.train_and_sync_networks(*batch(copies.worker))


@pytest.mark.parametrize("scale_down", [True, False])
@pytest.mark.parametrize("shared_optimizer", [True, False])
def test_synchronous_workers_make_one_update_of_all_gradients(scale_down: bool, shared_optimizer: bool) -> None:
    parameters: dict[str, Any] = {
        "shared_optimizer": shared_optimizer,
        "scale_down_gradients_by_number_of_workers_for_sync_training": scale_down,
    }
    workers = members(3, **parameters)
    assert len({id(copies.global_network) for copies in workers}) == 1
    assert in_threads(*[lambda copies=copies: train(copies, 4) for copies in reversed(workers)]) == [None] * 3
    # The same by hand, in one thread.
    expected = members(3, async_training=True, **parameters)
    scaler = 1 / 3 if scale_down else 1.0
    for _ in range(4):
        gradients = []
        for copies in expected:
            copies.online_network.accumulate_gradients(*batch(copies.worker), no_accumulation=True)
            gradients.append(copies.online_network.accumulated_gradients)
        assert copies.global_network is not None
        if shared_optimizer:
            total = [
                np.sum(parts, axis=0) / np.float32(3 if scale_down else 1) for parts in zip(*gradients, strict=True)
            ]
            copies.global_network.apply_gradients(total)
        else:
            for member, own in zip(expected, gradients, strict=True):
                member.online_network.apply_gradients_to(copies.global_network, own, scaler)
        for member in expected:
            member.update_online_network()
    for copies in workers:
        assert np.array_equal(weights(copies.online_network), weights(expected[0].global_network))
    assert workers[0].global_network is not None
    assert workers[0].global_network.updates == (4 if shared_optimizer else 0)


@pytest.mark.parametrize("scale_down", [True, False])
def test_gradients_of_workers_are_reduced_as_they_are_given(scale_down: bool) -> None:
    """Lists of any floating-point type; each worker's number stands for its gradient."""
    workers = members(
        3,
        optimizer_type="SGD",
        learning_rate=1.0,
        scale_down_gradients_by_number_of_workers_for_sync_training=scale_down,
    )
    before = weights(workers[0].global_network)
    shapes = [gradient.shape for gradient in workers[0].online_network.accumulated_gradients]
    given = [[np.full(shape, 10.0**w, kind) for shape in shapes] for w, kind in enumerate(("f4", "f8", ">f4"))]
    given[2][0].flags.writeable = False
    calls = [lambda copies=copies: copies.apply_gradients_to_global_network(given[copies.worker]) for copies in workers]
    assert in_threads(*calls) == [None] * 3
    moved = before - weights(workers[0].global_network)
    np.testing.assert_allclose(moved, 37.0 if scale_down else 111.0, rtol=1e-4)


def test_asynchronous_workers_do_not_wait() -> None:
    one, two = members(2, async_training=True)
    train(one, 3)
    assert one.global_network is two.global_network
    assert one.global_network is not None
    assert one.global_network.updates == 3
    assert in_threads(lambda: train(one, 20), lambda: train(two, 20)) == [None] * 2
    assert one.global_network.updates == 43


def test_all_workers_raise_an_error_that_names_the_one_with_bad_gradients() -> None:
    workers = members(2)
    before = weights(workers[0].global_network)
    for copies in workers:
        copies.online_network.accumulate_gradients(*batch(copies.worker))
    workers[1].online_network.accumulated_gradients[0][0, 0] = np.inf
    raised = in_threads(*[copies.apply_gradients_to_global_network for copies in workers])
    assert [str(error) for error in raised] == [
        "gradients of worker 1 for network `main` are not finite; none were applied"
    ] * 2
    assert np.array_equal(weights(workers[0].global_network), before)


def test_a_worker_is_of_its_group() -> None:
    with pytest.raises(NetworkError, match="no worker 2 in a group of 2"):
        NetworkWrapper(NetworkParameters(), False, True, "main", SPACES, group=WorkerGroup(2), worker=2)


# --- in a run


@pytest.mark.parametrize("limit", [None, 0.5])
def test_an_update_in_blocks_is_that_of_an_architecture(limit: float | None) -> None:
    """One optimizer step from block v to v + 1, clipped as the library clips what an update applies."""
    reference = wrapper(has_target=False, clip_gradients=limit, clip_stage="update")
    flat = reference.online_network.flat
    state = StateLayout(flat, has_target=True)
    parameters = NetworkParameters(clip_gradients=limit)
    copies = InARun(parameters, SPACES, state, torch.Generator())
    now, following = (
        Version(aligned_block(state.bytes), [np.zeros(flat.parameter_elements, np.float32) for _ in range(2)])
        for _ in range(2)
    )
    flat.initialize_into(state.weights(now.block))
    copies.begin_update(now, following)
    rng = np.random.default_rng(1)
    for step in (1, 2, 3):
        gradient = aligned_block(state.flat.parameter_bytes).view(np.float32)
        for view in state.flat.gradient_arrays(gradient):
            view[...] = rng.standard_normal(view.shape)
        before = now.block.copy()
        norm = float(np.linalg.norm(gradient))
        update = GroupUpdate(slice(None), norm, step, parameters.learning_rate)
        copies.apply_gradients_to_global_network(gradient, [update])
        copies.update_target_network(1.0, version=step + 1)
        assert np.array_equal(now.block, before)
        reference.apply_gradients_to_global_network(state.flat.gradient_arrays(gradient))
        assert reference.global_network is not None
        expected = reference.global_network.flat.weights
        np.testing.assert_allclose(state.parameters(following.block), expected, rtol=1e-5, atol=1e-6)
        assert np.array_equal(state.target(following.block), state.weights(following.block))
        now, following = following, now
        copies.begin_update(now, following)


# --- memory


def test_blocks_for_training_are_made_with_the_first_training() -> None:
    """A network that only predicts has its weights; one whose gradients go elsewhere has no optimizer's moments."""
    blocks = {"_gradient", "_accumulated", "_spare", "_moments", "_spare_moments"}
    copies = wrapper()
    for network in copies.networks:
        network.predict({"observation": INPUTS["observation"]})
    copies.sync()
    assert all(not blocks & vars(network).keys() for network in copies.networks)
    copies.train_and_sync_networks(INPUTS, TARGETS)
    used = [blocks & vars(network).keys() for network in copies.networks]
    assert [sorted(names) for names in used] == [
        ["_gradient", "_moments", "_spare", "_spare_moments"],
        ["_accumulated", "_gradient"],
        [],
    ]
    assert [network.name for network in copies.networks] == ["main/global", "main/online", "main/target"]
