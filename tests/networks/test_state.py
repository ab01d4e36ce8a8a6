"""The block of a learner's state: its layout, and the updates of its target."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from hive import _native
from hive.networks import FlatParameters, aligned_block
from hive.networks.weights.state import StateLayout

Block = npt.NDArray[np.uint8]


def layout(has_target: bool = True) -> StateLayout:
    """Returns the layout of a linear layer and a BatchNorm without parameters, whose statistics are buffers."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3, affine=False))
    return StateLayout(FlatParameters(network), has_target=has_target)


def block_of(state: StateLayout, weights: float = 0.0, target: float = 0.0, version: int = 0) -> Block:
    """A block with equal weights, whose buffers hold the weights' number in bytes."""
    block = aligned_block(state.bytes)
    state.parameters(block)[:] = weights
    block[state.flat.parameter_bytes : state.weight_bytes] = int(weights)
    if state.has_target:
        state.target(block)[: state.flat.parameter_bytes].view(np.float32)[:] = target
        state.target(block)[state.flat.parameter_bytes :] = int(target)
        state.target_version(block)[0] = version
    return block


def target_of(state: StateLayout, block: Block) -> tuple[float, int, int]:
    """The value of the target's weights, which are all equal, of its buffers, and its version."""
    (weight,) = np.unique(state.target(block)[: state.flat.parameter_bytes].view(np.float32))
    (buffer,) = np.unique(state.target(block)[state.flat.parameter_bytes :])
    return float(weight), int(buffer), int(state.target_version(block)[0])


def test_ranges_do_not_overlap_and_fill_the_block() -> None:
    state = layout()
    block = aligned_block(state.bytes)
    for number, part in enumerate((state.weights(block), state.target(block)), start=1):
        assert part.size == state.weight_bytes == state.flat.block_bytes
        assert not part.any()
        part[:] = number
    state.moments(block)[:] = 1.5, 2.5
    state.target_version(block)[0] = 7
    assert (state.weights(block) == 1).all()
    assert (state.target(block) == 2).all()
    assert state.moments(block).tolist() == [1.5, 2.5]
    assert np.shares_memory(state.parameters(block), state.weights(block))
    assert state.parameters(block).size == state.flat.parameter_elements
    assert state.target(block).ctypes.data % 64 == 0


def test_a_layout_without_a_target_has_no_space_for_one() -> None:
    assert layout(has_target=False).bytes == layout().bytes - layout().weight_bytes


def test_the_view_of_a_target_is_the_same_object_for_the_same_block() -> None:
    state = layout()
    blocks = [block_of(state, target=number) for number in range(200)]
    assert state.target(blocks[0]) is state.target(blocks[0])
    assert [target_of(state, block)[0] for block in blocks] == list(range(200))


def test_a_first_target_equals_the_weights() -> None:
    state = layout()
    block = block_of(state, weights=3.0)
    state.begin_target(block)
    assert target_of(state, block) == (3.0, 3, 1)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(0.0, (2.0, 2, 5)), (1.0, (12.0, 12, 6)), (0.25, (4.5, 12, 6))],
)
def test_a_target_follows_by_its_rate(rate: float, expected: tuple[float, int, int]) -> None:
    """With rate 0 target and version stay; buffers are copied, not mixed."""
    state = layout()
    before, after = block_of(state, 1.0, target=2.0, version=5), block_of(state, 12.0, target=9.0, version=3)
    state.follow(before, after, rate, 6)
    assert target_of(state, after) == expected
    assert target_of(state, before) == (2.0, 2, 5)
    assert (state.parameters(after) == 12.0).all()


def test_a_rate_between_is_the_polyak_step_of_torch() -> None:
    state = layout()
    before, after = aligned_block(state.bytes), aligned_block(state.bytes)
    size, rng = state.flat.parameter_bytes, np.random.default_rng(0)
    old = state.target(before)[:size].view(np.float32)
    for values in (old, state.parameters(after)):
        values[:] = rng.standard_normal(values.size)
    state.follow(before, after, 0.3, 2)
    expected = torch.from_numpy(old).lerp(torch.from_numpy(state.parameters(after)), 0.3).numpy()
    np.testing.assert_allclose(state.target(after)[:size].view(np.float32), expected, rtol=1e-6, atol=1e-7)


def test_a_target_that_the_block_holds_is_not_copied_again() -> None:
    state = layout()
    before, after = block_of(state, target=2.0, version=5), block_of(state, target=2.0, version=5)
    state.target(after)[0] = 77  # a mark that a copy would overwrite
    state.follow(before, after, 0.0, 6)
    assert state.target(after)[0] == 77


def test_a_target_whose_writer_was_killed_is_copied_again() -> None:
    """The version is 0 while the bytes are written."""
    state = layout()
    before, after = block_of(state, target=2.0, version=5), block_of(state, target=9.0, version=0)
    state.follow(before, after, 0.0, 6)
    assert target_of(state, after) == (2.0, 2, 5)


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_a_writer_that_is_killed_leaves_version_0(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    state = layout()
    before, after = block_of(state, target=2.0, version=5), block_of(state, 4.0, target=9.0, version=4)

    def die_if_begun(*arguments: object) -> object:
        if state.target_version(after)[0] == 0:
            raise KeyboardInterrupt
        return StateLayout.target(state, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(state, "target", die_if_begun)
        patch.setattr(_native, "polyak", die_if_begun)
        with pytest.raises(KeyboardInterrupt):
            state.follow(before, after, rate, 6)
    assert state.target_version(after)[0] == 0
    state.follow(before, after, rate, 6)
    assert target_of(state, after)[2] == (5 if rate == 0.0 else 6)
