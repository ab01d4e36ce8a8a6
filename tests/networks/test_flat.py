"""Flat parameters: the layout, binding without copying, gradients, and errors."""

from __future__ import annotations

import mmap
import os

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hive.errors import NetworkError
from hive.networks import FlatParameters, aligned_block
from hive.networks.weights import flat as flat_module
from hive.networks.weights.flat import ALIGNMENT


class Mixed(nn.Module):
    """Odd sizes, a tied weight, a frozen and an unused parameter, buffers of every allowed dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.second = nn.Linear(5, 5, bias=False)
        self.tied = self.second
        self.frozen = nn.Parameter(torch.arange(7.0), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2))
        for name in ("float32", "float64", "int64", "uint8", "bool"):
            self.register_buffer(name, torch.ones(3).to(getattr(torch, name)))
        self.register_buffer("count", torch.tensor(4))
        self.register_buffer("nothing", None)

    def forward(self, x: Tensor) -> Tensor:
        return self.tied(self.second(self.first(x)))


def module() -> Mixed:
    torch.manual_seed(0)
    return Mixed()


def copy_of(flat: FlatParameters, scale: float = 1.0) -> np.ndarray:
    block = aligned_block(flat.block_bytes)
    flat.initialize_into(block)
    block[: flat.parameter_bytes].view(np.float32)[:] *= np.float32(scale)
    return block


def test_layout_is_aligned_and_in_the_order_of_the_module() -> None:
    flat = FlatParameters(module())
    assert flat.names == ("frozen", "unused", "first.weight", "first.bias", "second.weight")
    assert flat.shapes == ((7,), (2,), (5, 3), (5,), (5, 5))
    assert flat.offsets == (0, 64, 128, 192, 256)
    assert (flat.parameter_bytes, flat.parameter_elements) == (256 + 128, 96)
    assert [field.name for field in flat.buffers] == ["float32", "float64", "int64", "uint8", "bool", "count"]
    assert all(field.offset % ALIGNMENT == 0 for field in flat.buffers)
    assert flat.block_bytes == flat.parameter_bytes + 6 * 64
    assert flat.describe()[2] == ("first.weight", (5, 3))


def test_flattening_keeps_values_names_and_outputs() -> None:
    plain, flattened = module(), module()
    flat = FlatParameters(flattened)
    assert list(plain.state_dict()) == list(flattened.state_dict())
    for name, value in plain.state_dict().items():
        assert torch.equal(value, flattened.state_dict()[name])
        assert value.dtype == flattened.state_dict()[name].dtype
    x = torch.randn(4, 3)
    assert torch.equal(plain(x), flattened(x))
    assert flattened.tied.weight is flattened.second.weight
    for name, tensor in [*flattened.named_parameters(), *flattened.named_buffers()]:
        assert tensor.data_ptr() == flat.arrays(flat.block)[name].ctypes.data


def test_round_trip_is_equal_in_every_byte_and_padding_is_zero() -> None:
    flat = FlatParameters(module())
    dirty = aligned_block(flat.block_bytes)
    dirty[:] = 0xFF
    flat.initialize_into(dirty)
    assert np.array_equal(dirty, flat.block)
    used = np.zeros(flat.block_bytes, bool)
    for field in flat.parameters + flat.buffers:
        used[field.offset : field.offset + field.nbytes] = True
    assert not dirty[~used].any()
    flat.bind(dirty)
    again = aligned_block(flat.block_bytes)
    flat.initialize_into(again)
    assert np.array_equal(dirty, again)
    flat.initialize_into(dirty)  # into the block that is bound
    assert np.array_equal(dirty, again)


def test_bind_reads_the_block_in_place_and_accepts_a_larger_one() -> None:
    network = module()
    flat = FlatParameters(network)
    block = aligned_block(flat.block_bytes + 100)
    flat.bind(block)
    assert not network.first.weight.any()
    flat.arrays(block)["first.weight"][1, 2] = 5.0
    assert network.first.weight[1, 2] == 5.0
    network.count += 1
    assert flat.arrays(block)["count"] == 1


def test_bind_takes_a_memoryview() -> None:
    network = module()
    flat = FlatParameters(network)
    with mmap.mmap(-1, flat.block_bytes) as memory:
        view = memoryview(memory)
        flat.initialize_into(view)
        flat.bind(view)
        flat.arrays(view)["unused"][:] = 3.0
        assert network.unused.tolist() == [3.0, 3.0]
        assert flat.arrays(view)["unused"].ctypes.data == network.unused.data_ptr()
        flat.bind(aligned_block(flat.block_bytes))
        flat._bound.clear()
        flat._views.clear()
        view.release()


@pytest.mark.parametrize("by", ["block", "reader"])
def test_a_read_only_block_gives_weights_in_place_and_private_buffers(by: str) -> None:
    """Both a read-only block and `read_only` prevent writes."""
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    flat = FlatParameters(network)
    shared = copy_of(flat)
    before = shared.copy()
    seen = shared[:]
    seen.flags.writeable = by == "reader"
    for _ in range(2):
        flat.bind(seen, read_only=by == "reader")
        assert network[1].num_batches_tracked == 0
        assert network[0].weight.data_ptr() == flat.arrays(shared)["0.weight"].ctypes.data
        network(torch.randn(8, 2)).sum().backward()  # BatchNorm writes its running statistics
        assert network[1].num_batches_tracked == 1
        assert not flat.block.flags.writeable
        assert np.array_equal(shared, before)
    if by == "reader":
        flat.bind(seen)  # one who owns the block
        network(torch.randn(8, 2))
        assert not np.array_equal(shared, before)


def test_a_read_only_mapping_can_be_trained_on() -> None:
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    flat = FlatParameters(network)
    descriptor = os.memfd_create("weights")
    os.write(descriptor, copy_of(flat, 2.0).tobytes())
    expected = 2.0 * network[0].weight.detach()
    memory = mmap.mmap(descriptor, flat.block_bytes, prot=mmap.PROT_READ)
    os.close(descriptor)
    flat.bind(memoryview(memory))
    assert torch.equal(network[0].weight, expected)
    network(torch.randn(4, 2)).sum().backward()  # writing into this mapping would be a segmentation fault
    assert network[0].weight.grad is not None
    del flat, network
    memory.close()


def test_views_made_in_inference_mode_can_be_trained_later() -> None:
    network = module()
    flat = FlatParameters(network)
    block = copy_of(flat)
    with torch.inference_mode():
        flat.bind(block)
        network(torch.ones(1, 3))
    network(torch.ones(1, 3)).sum().backward()
    assert network.first.weight.grad is not None


def test_binding_back_and_forth_reuses_the_views() -> None:
    network = module()
    flat = FlatParameters(network)
    one, two = copy_of(flat, 1.0), copy_of(flat, 2.0)
    expected = network.first.bias.detach().clone()
    flat.bind(one)
    flat.bind(two)
    made = list(flat._bound.values())
    for _ in range(3):
        flat.bind(one)
        assert torch.equal(network.first.bias, expected)
        flat.bind(two)
        assert torch.equal(network.first.bias, 2 * expected)
    assert [id(bound) for bound in flat._bound.values()] == [id(bound) for bound in made]


def test_new_views_of_old_memory_are_recognised_by_their_address() -> None:
    """A new array may have the `id` of a deleted one; its views are not mixed up."""
    network = module()
    flat = FlatParameters(network)
    blocks = [copy_of(flat, scale) for scale in (1.0, 2.0, 3.0)]
    expected = network.first.bias.detach().clone()
    for turn in range(30):
        flat.bind(blocks[turn % 3][: flat.block_bytes])
        assert torch.equal(network.first.bias, (1 + turn % 3) * expected)
    assert len(flat._views) == 1 + len(blocks)  # all, and the initial block


def test_the_cache_of_views_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_module, "CACHED_BLOCKS", 3)
    flat = FlatParameters(module())
    for block in [aligned_block(flat.block_bytes) for _ in range(7)]:
        flat.bind(block)
        assert len(flat._views) <= 3
        assert len(flat._bound) <= 3
    for gradient in [aligned_block(flat.parameter_bytes).view(np.float32) for _ in range(7)]:
        flat.gradient(gradient)
        assert len(flat._gradient_views) <= 3


def test_gradient_copies_all_gradients_and_marks_missing_ones() -> None:
    network = module()
    flat = FlatParameters(network)
    out = aligned_block(flat.parameter_bytes).view(np.float32)
    out[:] = np.nan  # a slot that was used for something else
    network(torch.randn(4, 3)).square().sum().backward()
    mask = flat.gradient(out)
    assert mask.tolist() == [0, 0, 1, 1, 1]
    parts = dict(zip(flat.names, flat.gradient_arrays(out), strict=True))
    for name, parameter in network.named_parameters():
        expected = np.zeros(parameter.shape) if parameter.grad is None else parameter.grad.numpy()
        assert np.array_equal(parts[name], expected)
    assert np.count_nonzero(out) == 15 + 5 + 25  # all elements but the padding
    flat.release_gradients()
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not flat.gradient(out).any()
    assert not out.any()


@pytest.mark.filterwarnings("ignore:Using backward")
def test_gradient_of_a_gradient_leaves_no_graph_behind() -> None:
    network = nn.Linear(2, 1)
    flat = FlatParameters(network)
    out = aligned_block(flat.parameter_bytes).view(np.float32)
    network(torch.ones(1, 2)).square().sum().backward(create_graph=True)
    flat.gradient(out)
    assert np.array_equal(flat.gradient_arrays(out)[0], network.weight.grad.detach().numpy())
    assert not flat._gradient_views_of(out)[0].requires_grad
    flat.release_gradients()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_precisions_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(NetworkError, match=f"`weight` is {str(dtype)[6:]}, a flat block holds float32") as error:
        FlatParameters(nn.Linear(2, 2).to(dtype))
    assert "call .float()" in error.value.hint


def test_other_buffers_and_devices_are_refused() -> None:
    network = nn.Linear(1, 1)
    network.register_buffer("odd", torch.zeros(2, dtype=torch.int32))
    with pytest.raises(NetworkError, match="`odd` is int32, a flat block holds float32, float64, int64"):
        FlatParameters(network)
    with pytest.raises(NetworkError, match="on meta"):
        FlatParameters(nn.Linear(1, 1, device="meta"))


def test_blocks_that_do_not_fit_are_refused() -> None:
    flat = FlatParameters(module())
    with pytest.raises(NetworkError, match=f"a block of 64 bytes is too small for {flat.block_bytes} bytes"):
        flat.bind(aligned_block(64))
    with pytest.raises(NetworkError, match="must start at a multiple of 64 bytes"):
        flat.bind(aligned_block(flat.block_bytes + 4)[4:])
    with pytest.raises(NetworkError, match=r"a gradient block is float32 \[96\], got float32 \[95\]"):
        flat.gradient(aligned_block(flat.parameter_bytes).view(np.float32)[:-1])


def test_a_module_without_parameters_is_an_empty_block() -> None:
    flat = FlatParameters(nn.Identity())
    assert (flat.parameter_elements, flat.block_bytes, flat.describe()) == (0, 0, [])
