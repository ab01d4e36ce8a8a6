"""Gradients of a network on a device are those of the same network on the CPU, for every algorithm and kind of input.

Each test runs with the CPU in the place of the device: weights, inputs and outputs are copied as for a GPU, and all
numbers must agree up to rounding. With a GPU it runs there, too.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_trainer import Arrays, Trainer, allocate, collector_of, config_of, weights_of, worker_of
from torch import Tensor, nn

from hive.algorithms.replaying import Batch
from hive.errors import MemoryShort, NetworkError, PlatformError, TopologyError
from hive.gpus import Gpu
from hive.gradients import CAUSE, CAUSES, SAMPLES
from hive.networks import aligned_block
from hive.networks.weights.device import DeviceParameters, PinnedMemory, _can_be_captured, to_device
from hive.training import Blueprint, GWorker, ReplayWorker
from hive.training.gradient.devices import chosen_device, device_errors

GPU = pytest.param("cuda:0", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU"))
CPU = torch.device("cpu")
DEVICES = pytest.mark.parametrize("device", ["cpu", GPU])

# Name -> environment, and keys of the config.
ROLLOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a2c": ("Drift", {}),
    "ppo": ("Drift", {"run__scheme": '"ppo"'}),
    "ppo, box actions, normalised over the round": (
        "Drift",
        {"run__scheme": '"ppo"', "env__options": '{actions="box"}', "algorithm__normalize_over": '"round"'},
    ),
    "ppo, target_kl": ("Drift", {"run__scheme": '"ppo"', "algorithm__target_kl": 1e-9}),
    "ppo, truncated episodes": ("Drift", {"run__scheme": '"ppo"', "env__options": "{truncates=3}"}),
    "ppo, parts and masks": ("Parts", {"run__scheme": '"ppo"', "network__normalize_observations": "true"}),
    "ppo, critic parts": (
        "Privileged",
        {"run__scheme": '"ppo"', "network__separate_networks": "true", "network__critic_parts": '["far"]'},
    ),
    "ppo, images": ("Images", {"run__scheme": '"ppo"'}),
    "ppo, stacked images": ("Images", {"run__scheme": '"ppo"', "env__frame_stack": 3}),
    "ppo, memory": ("Drift", {"run__scheme": '"ppo"', "network__memory": '"lstm"', "algorithm__minibatches": 2}),
    "ppo, novelty": ("Drift", {"run__scheme": '"ppo"', "network__novelty_weight": 0.5}),
    "ppo, frozen policy": (
        "Drift",
        {
            "run__scheme": '"ppo"',
            "network__separate_networks": "true",
            "network__frozen": '["branches.0.*"]',
        },
    ),
    "a2c, frozen value": (
        "Drift",
        {"network__separate_networks": "true", "network__frozen": '["branches.1.*"]'},
    ),
    "ppo, own network": ("Drift", {"run__scheme": '"ppo"', "network__module": '"test_devices:Constants"'}),
    "ppo, own extractor": ("Drift", {"run__scheme": '"ppo"', "network__extractor": '"test_devices:Shifted"'}),
    "impala": ("Drift", {"run__scheme": '"impala"'}),
    "pqn": ("Drift", {"run__scheme": '"pqn"'}),
    "pqn, images": ("Images", {"run__scheme": '"pqn"'}),
    "nstep-q": ("Drift", {"run__scheme": '"nstep-q"'}),
}
REPLAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("CartPole-v1", {}),
    "c51": ("CartPole-v1", {}),
    "qr-dqn": ("CartPole-v1", {"algorithm__dueling": 8}),
    "rainbow": ("CartPole-v1", {}),
    "sac": ("Pendulum-v1", {}),
    "sac, discrete": ("CartPole-v1", {}),
    "td3": ("Pendulum-v1", {}),
    "ddpg": ("Pendulum-v1", {}),
}
ROWS = 16


class Constants(nn.Module):
    """A network with tensors that are neither parameters nor buffers, and with a buffer."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh())
        self.policy, self.value = nn.Linear(8, 2), nn.Linear(8, 1)
        self.bounds = [torch.tensor([1.0, 2.0, 3.0]), (torch.tensor(0.5),)]
        self.register_buffer("shift", torch.tensor([0.1, 0.2, 0.3]))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        features = self.layers((observations + self.shift) * self.bounds[0] + self.bounds[1][0])
        return self.policy(features), self.value(features).squeeze(-1)


class Shifted(nn.Module):
    def __init__(self, spaces: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 8)
        self.shift = torch.tensor([0.1, 0.2, 0.3])

    def forward(self, observations: Tensor) -> Tensor:
        return torch.tanh(self.layer(observations + self.shift))


def on(device: str | None, config: Any) -> Blueprint:
    blueprint = Blueprint(config)
    blueprint.device = None if device is None else torch.device(device)
    return blueprint


def config_for(name: str, case: tuple[str, dict[str, Any]], **more: Any) -> Any:
    id, values = case
    return config_of(f"small_environments:{id}" if id[-2] != "v" else id, network__backend='"torch"', **values, **more)


def rollouts_of(blueprint: Blueprint) -> list[Arrays]:
    made = []
    for source in range(2):
        collector = collector_of(
            blueprint,
            source,
            log_probs=blueprint.behaviour_log_probs,
            discount=blueprint.config.algorithm.discount,
        )
        arrays = allocate(blueprint.rollout_layout)
        collector.collect(arrays, sequence=0, version=0)
        made.append(arrays)
    return made


def round_of(worker: GWorker, blueprint: Blueprint, share: Sequence[Arrays]) -> list[Arrays]:
    """All gradients of one round."""
    worker.bind(weights_of(blueprint))
    slots = [allocate(blueprint.gradient_layout(len(share))) for _ in range(worker.algo.gradients_per_round)]
    for number, slot in enumerate(slots):
        worker.compute(share, slot, sequence=number, version=0)
    return slots


def distance(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Relative to the size of the second."""
    return float(np.linalg.norm(one.astype(np.float64) - other) / (np.linalg.norm(other) or 1.0))


def assert_equal_slots(found: Arrays, expected: Arrays) -> None:
    assert distance(found["gradient"], expected["gradient"]) < 1e-5
    assert found["mask"].tolist() == expected["mask"].tolist()
    assert found["header"][SAMPLES] == expected["header"][SAMPLES]
    np.testing.assert_allclose(found["statistics"], expected["statistics"], rtol=1e-4, atol=1e-5)


@pytest.mark.rotates
@DEVICES
@pytest.mark.parametrize("name", ROLLOUTS)
def test_gradients_of_a_round_are_those_of_the_cpu(name: str, device: str) -> None:
    config = config_for(name, ROLLOUTS[name])
    reference = on(None, config)
    share = rollouts_of(reference)
    expected = round_of(worker_of(reference), reference, share)
    blueprint = on(device, config)
    found = round_of(worker_of(blueprint), blueprint, share)
    assert any(slot["header"][SAMPLES] for slot in expected)
    for mine, its in zip(found, expected, strict=True):
        assert_equal_slots(mine, its)


def some_batch(blueprint: Blueprint, number: int) -> Batch:
    random = np.random.default_rng(number)
    observation, action = blueprint.environment.observation, blueprint.environment.action
    drawn = random.standard_normal((2, ROWS, *observation.shape), np.float32)
    acted = random.integers(0, 2, ROWS) if action.dtype == "int64" else random.random((ROWS, *action.shape), np.float32)
    rows = torch.from_numpy(random.random((3, ROWS), np.float32))
    errors = np.full(ROWS, np.nan, np.float32)
    return Batch(
        torch.from_numpy(drawn[0]),
        torch.from_numpy(acted),
        rows[0],
        rows[1],
        torch.from_numpy(drawn[1]),
        rows[2],
        errors,
        number,
    )


@DEVICES
@pytest.mark.parametrize("name", REPLAYS)
def test_gradients_of_a_batch_are_those_of_the_cpu(name: str, device: str) -> None:
    if name == "rainbow" and device != "cpu":
        pytest.skip("a GPU draws other noise")
    scheme = name.partition(",")[0]
    config = config_for(name, REPLAYS[name], run__scheme=f'"{scheme}"', algorithm__batch_size=ROWS)
    found = []
    for place in (None, device):
        blueprint = on(place, config)
        memory = np.zeros(blueprint.memory_layout.bytes, np.uint8)
        worker = ReplayWorker(blueprint, 0, memory)
        worker.bind(weights_of(blueprint))
        slots = []
        for number in range(2 * worker.algo.gradients_per_batch):
            slot, batch = allocate(blueprint.gradient_layout(1)), some_batch(blueprint, number)
            worker.compute(batch, slot, sequence=number, version=0)
            slots.append((slot, batch.errors))
        found.append(slots)
    for (expected, its_errors), (mine, my_errors) in zip(*found, strict=True):
        assert_equal_slots(mine, expected)
        np.testing.assert_allclose(my_errors, its_errors, rtol=1e-4, atol=1e-5)


@DEVICES
@pytest.mark.parametrize("name", ["sac", "dqn"])
def test_a_backward_pass_has_one_thread(name: str, device: str) -> None:
    """A second one, of the device, would add to the sums of the first whenever it is ready: bits would be chance."""
    blueprint = on(device, config_for(name, REPLAYS[name], run__scheme=f'"{name}"', algorithm__batch_size=ROWS))
    worker = ReplayWorker(blueprint, 0, np.zeros(blueprint.memory_layout.bytes, np.uint8))
    worker.bind(weights_of(blueprint))
    seen = []
    for parameter in worker.networks.online_network.module.parameters():
        parameter.register_hook(
            lambda gradient: seen.append((threading.get_ident(), torch._C._is_multithreading_enabled()))
        )
    worker.compute(some_batch(blueprint, 0), allocate(blueprint.gradient_layout(1)), sequence=0, version=0)
    assert set(seen) == {(threading.get_ident(), False)}
    assert torch._C._is_multithreading_enabled()


@DEVICES
@pytest.mark.parametrize(
    ("codec", "name"), [("none", "a2c"), ("bf16", "a2c"), ("top-k", "a2c"), ("none", "changed_losses:Steady")]
)
def test_training_on_a_device_repeats_and_follows_the_cpu(device: str, codec: str, name: str) -> None:
    """Turns with the learner's optimizer: twice the same bytes, and the CPU's weights up to rounding."""
    values = {"run__scheme": '"a2c"', "network__backend": '"torch"', "gradients__compression": f'"{codec}"'}
    values["algorithm__name"] = f'"{name}"'
    trained = []
    for place in (device, device, None):
        trainer = Trainer(config_of("small_environments:Drift", **values), collectors=2)
        trainer.blueprint.device = None if place is None else torch.device(place)
        trainer.worker = worker_of(trainer.blueprint)
        trainer.train(10)
        trained.append(trainer.weights[trainer.turns % 2])
    assert np.array_equal(trained[0], trained[1])
    size = trainer.blueprint.flat.parameter_bytes
    parameters, expected = (block[:size].view(np.float32) for block in trained[1:])
    assert distance(parameters, expected) < (1e-4 if codec == "none" else 1e-2)
    assert distance(expected, weights_of(trainer.blueprint)[:size].view(np.float32)) > 1e-2


@DEVICES
def test_a_gradient_that_is_not_finite_is_marked_and_its_inputs_are_kept(device: str) -> None:
    blueprint = on(device, config_of("small_environments:Drift", network__backend='"torch"'))
    share = rollouts_of(blueprint)
    share[1]["rewards"][2, 1] = np.nan
    worker, found = worker_of(blueprint), []
    worker.slot.on_not_finite = lambda finding, header: found.append(finding)
    (slot,) = round_of(worker, blueprint, share)
    assert CAUSES[slot["header"][CAUSE]] == "reward"
    assert found[0].arrays["inputs"].shape[1:] == (3,)


@DEVICES
def test_weights_are_copied_when_they_are_bound(device: str) -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    flat = DeviceParameters(module, torch.device(device))
    block = aligned_block(flat.block_bytes)
    flat.initialize_into(block)
    block[: flat.parameter_bytes].view(np.float32)[:] *= 2.0
    flat.bind(block)
    expected = flat.arrays(block)["0.weight"].copy()
    block[:] = 0
    assert np.array_equal(module[0].weight.detach().cpu().numpy(), expected)
    assert flat.block is block or np.shares_memory(flat.block, block)


def test_a_network_on_a_device_is_not_computed_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hive.training.blueprint.chosen_device", lambda name: CPU)
    with pytest.raises(NetworkError, match=r'network.backend = "native" computes on the CPU'):
        Blueprint(config_of("small_environments:Drift", network__backend='"native"'))


# --- the choice


def gpus(*names: str) -> list[Gpu]:
    return [Gpu(name, 80 << 30, 1 << 30, 40, "580.1") for name in names]


def test_the_cpu_is_no_device_and_needs_no_driver() -> None:
    assert chosen_device("cpu") is None


@pytest.mark.parametrize("cuda", [None, "13.0"])
@pytest.mark.parametrize("found", [None, [], gpus("H100")])
def test_auto_takes_a_gpu_that_torch_can_use(
    found: list[Gpu] | None, cuda: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hive.training.gradient.devices.gpus_here", lambda: found)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    assert chosen_device("auto") == (torch.device("cuda", 0) if found and cuda else None)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hive.training.gradient.devices.gpus_here", lambda: gpus("A", "B"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert chosen_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(TopologyError, match="there is no GPU with number 2; this machine shows 2"):
        chosen_device("cuda:2")
    monkeypatch.setattr("hive.training.gradient.devices.gpus_here", list)
    with pytest.raises(TopologyError, match="this machine shows none"):
        chosen_device("cuda")
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    with pytest.raises(TopologyError, match="needs a torch that is built for GPUs"):
        chosen_device("cuda")


def test_errors_of_a_device_name_sizes_and_end_the_run() -> None:
    short = pytest.raises(MemoryShort, match="has no memory for a gradient of 8 rows")
    with short as raised, device_errors(None, lambda: "a gradient of 8 rows", "fewer rows"):
        raise torch.OutOfMemoryError("CUDA out of memory.")
    assert "(fewer rows)" in raised.value.hint
    assert raised.value.permanent
    without = pytest.raises(PlatformError, match=r"^cumsum_cuda_kernel has no deterministic kernel")
    with without as other, device_errors(None, lambda: "", ""):
        raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation, but you set")
    assert other.value.permanent
    with pytest.raises(RuntimeError, match="another"), device_errors(None, lambda: "", ""):
        raise RuntimeError("another error")


# --- registered memory


class Cuda:
    """Stands for CUDA's registration of host memory."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.ranges: list[tuple[int, int]] = []

    def cudaHostRegister(self, first: int, size: int, flags: int) -> int:
        self.ranges.append((first, size))
        return self.code


def pages(count: int) -> NDArray[np.uint8]:
    block = np.zeros((count + 1) * 4096, np.uint8)
    start = -block.ctypes.data % 4096
    return block[start : start + count * 4096]


def place(array: NDArray[np.uint8]) -> tuple[int, int]:
    return array.ctypes.data, array.nbytes


def test_memory_is_registered_once_in_whole_pages_that_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, memory, block = Cuda(), PinnedMemory(), pages(6)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cuda)
    first, over, last = block[64:9000], block[9000:20000], block[4 * 4096 :]
    assert not memory.touches(*place(first))
    for array in (first, first, block[:100], over, last):
        memory.register(array)
    assert cuda.ranges == [(block.ctypes.data, 3 * 4096), (last.ctypes.data, 2 * 4096)]
    for within in (first, block[:100], block[5000:6000], last):
        assert memory.touches(*place(within))
        assert not memory.splits(*place(within))
    assert memory.splits(*place(over))  # it begins in a page of the first and ends in none
    assert memory.splits(*place(block))
    assert not memory.splits(*place(block[3 * 4096 : 4 * 4096]))


def test_refused_memory_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, memory, block = Cuda(code=2), PinnedMemory(), pages(4)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cuda)
    monkeypatch.setattr("hive.networks.weights.device._forget_error", lambda: None)
    for array in (block[:4096], block[:4096], block[8192:]):
        memory.register(array)
    assert memory.refused == {block.ctypes.data, block[8192:].ctypes.data}
    assert len(cuda.ranges) == 4  # each as usual memory, and as memory that is only read
    assert not memory.touches(*place(block))


def test_what_is_half_registered_is_copied_first(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, block = PinnedMemory(), pages(4)
    monkeypatch.setattr(torch.cuda, "cudart", Cuda)
    monkeypatch.setattr("hive.networks.weights.device.pinned", memory)
    memory.register(block[:4096])
    half, whole = torch.from_numpy(block[1000:8000]), torch.from_numpy(block[:100])
    assert to_device(half, CPU).data_ptr() != half.data_ptr()
    assert to_device(whole, CPU).data_ptr() == whole.data_ptr()


# --- captured passes


def test_only_layers_of_hive_and_torch_without_hooks_are_captured() -> None:
    def layers() -> nn.Sequential:
        return nn.Sequential(nn.Linear(3, 2), nn.ReLU())

    assert _can_be_captured(layers())
    assert not _can_be_captured(nn.Sequential(layers(), Shifted(None)))
    hooked, masked = layers(), layers()
    hooked[0].register_forward_hook(lambda module, inputs, outputs: None)
    masked[0].weight.register_hook(lambda gradient: gradient)
    assert not _can_be_captured(hooked)
    assert not _can_be_captured(masked)
