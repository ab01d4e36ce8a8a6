"""Reductions of adopted rounds and norm_and_finite through the binding: values, blame, purity, errors."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hive import _native

Block = NDArray[np.float32]


def blocks(count: int, size: int, seed: int = 0) -> list[Block]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(size, dtype=np.float32) for _ in range(count)]


def adopting(gradients: list[Block], weights: list[float], size: int) -> _native.GradAccumulator:
    """Rounds of one sample each, whose factors undo the mean: the result is the sum of weight * gradient."""
    native = _native.GradAccumulator()
    native.lay_out(["float32"], [size])
    native.lay_out_slots(size, "none")
    for gradient, weight in zip(gradients, weights, strict=True):
        native.adopt({"gradient": gradient}, 1, weight * len(weights))
    return native


def reduce(gradients: list[Block], weights: list[float]) -> tuple[Block, _native.Reduction]:
    out = np.full_like(gradients[0], np.nan)
    return out, adopting(gradients, weights, len(out)).reduce_adopted(out)


@pytest.mark.parametrize("size", [0, 1, 7, 64, 1023, 1024, 1025, 100_003])
@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_weighted_sum_and_norm(count: int, size: int) -> None:
    gradients = blocks(count, size, seed=count)
    weights = [0.5 / (k + 1) for k in range(count)]
    out, reduction = reduce(gradients, weights)
    expected = np.zeros(size, np.float32)
    for gradient, weight in zip(gradients, weights, strict=True):
        expected += np.float32(1 / count * (weight * count)) * gradient
    np.testing.assert_array_equal(out, expected)
    assert reduction.norm == pytest.approx(np.linalg.norm(expected.astype(np.float64)), rel=2e-6)
    assert (reduction.finite, reduction.bad_input, reduction.bad_index) == (True, -1, -1)
    assert _native.norm_and_finite(out) == (reduction.norm, True)


def test_weights_by_samples_equal_the_mean_over_all_samples() -> None:
    samples = np.random.default_rng(1).standard_normal((60, 500)).astype(np.float32)
    shares = [samples[:10], samples[10:45], samples[45:]]
    out, _ = reduce([share.mean(axis=0) for share in shares], [len(share) / 60 for share in shares])
    np.testing.assert_allclose(out, samples.mean(axis=0), rtol=1e-5, atol=1e-6)


def test_one_gradient_of_weight_one_is_copied() -> None:
    (gradient,) = blocks(1, 5000)
    out, _ = reduce([gradient], [1.0])
    assert out.tobytes() == gradient.tobytes()


def test_order_is_by_position_not_by_size() -> None:
    large, small = np.float32([1e8]), np.float32([1.0])
    assert reduce([large, small, -large], [1.0, 1.0, 1.0])[0][0] == 0.0
    assert reduce([large, -large, small], [1.0, 1.0, 1.0])[0][0] == 1.0


def test_inputs_stay_and_may_be_read_only() -> None:
    gradients = blocks(3, 1000)
    before = [gradient.copy() for gradient in gradients]
    for gradient in gradients:
        gradient.flags.writeable = False
    reduce(gradients, [1.0, 2.0, 3.0])
    for gradient, kept in zip(gradients, before, strict=True):
        np.testing.assert_array_equal(gradient, kept)


def test_weight_zero_is_not_read() -> None:
    clean, poisoned = blocks(1, 3000)[0], np.full(3000, np.nan, np.float32)
    out, reduction = reduce([poisoned, clean], [0.0, 1.0])
    assert reduction.finite
    np.testing.assert_array_equal(out, clean)


@pytest.mark.parametrize("weights", [[0.0, 0.0], []])
def test_nothing_to_add_gives_zero(weights: list[float]) -> None:
    out = np.ones(1500, np.float32)
    given = [np.full(1500, np.nan, np.float32)] * len(weights)
    reduction = adopting(given, weights, 1500).reduce_adopted(out)
    assert (reduction.norm, reduction.finite) == (0.0, True)
    assert not out.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("index", [0, 1024, 9_999])
def test_bad_input_is_named(bad: float, index: int) -> None:
    gradients = blocks(4, 10_000)
    gradients[1][index] = bad
    gradients[3][0] = bad
    _, reduction = reduce(gradients, [0.25] * 4)
    assert (reduction.finite, reduction.bad_input, reduction.bad_index) == (False, 1, 0)
    assert _native.norm_and_finite(gradients[1])[1] is False


def test_opposite_infinities_do_not_cancel() -> None:
    gradients = blocks(2, 100)
    gradients[0][50], gradients[1][50] = np.inf, -np.inf
    _, reduction = reduce(gradients, [0.5, 0.5])
    assert (reduction.bad_input, reduction.bad_index) == (0, 0)


def test_overflow_of_finite_gradients_is_found_but_blamed_on_none() -> None:
    large = np.full(10, 3e38, np.float32)
    _, reduction = reduce([large, large], [1.0, 1.0])
    assert (reduction.finite, reduction.bad_input, reduction.bad_index) == (False, -1, 0)
    assert _native.norm_and_finite(large)[1] is True


def test_threads_reduce_the_same_bytes() -> None:
    gradients = blocks(3, 200_000)
    outs = [np.empty(200_000, np.float32) for _ in range(2)]
    weights = [0.1, 0.2, 0.3]
    native = adopting(gradients, weights, 200_000)
    threads = [threading.Thread(target=native.reduce_adopted, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outs[0].tobytes() == outs[1].tobytes() == reduce(gradients, weights)[0].tobytes()


def test_results_do_not_depend_on_alignment() -> None:
    gradients = blocks(2, 4099)
    aligned, reduction = reduce(gradients, [0.3, 0.6])
    shifted = [np.concatenate([np.float32([0]), gradient])[1:] for gradient in gradients]
    out, shifted_reduction = reduce(shifted, [0.3, 0.6])
    assert out.tobytes() == aligned.tobytes()
    assert shifted_reduction.norm == reduction.norm


def test_large_results_have_the_bits_of_small_ones() -> None:
    """From 48 MiB on, with the blocks, they are written past the caches."""
    count = (1 << 22) + 24
    (values,) = blocks(1, count)
    large, small = np.empty(count, np.float32), np.empty(1024, np.float32)
    assert large.ctypes.data % 16 == 0
    found = adopting([values] * 3, [0.1, 0.2, 0.3], count).reduce_adopted(large)
    for begin in (0, 1 << 20, 1 << 22):
        part = values[begin : begin + 1024]
        adopting([part] * 3, [0.1, 0.2, 0.3], len(part)).reduce_adopted(small[: len(part)])
        assert large[begin : begin + 1024].tobytes() == small[: len(part)].tobytes()
    assert found.norm == pytest.approx(float(np.linalg.norm(large.astype(np.float64))), rel=2e-6)


def read_only(block: Block) -> Block:
    block.flags.writeable = False
    return block


ONES = np.ones(8, np.float32)


@pytest.mark.parametrize(
    ("gradient", "out", "error", "message"),
    [
        (np.ones(8), ONES.copy(), TypeError, "gradient must be float32, got float64"),
        ([1.0, 2.0], ONES.copy(), TypeError, "gradient must be a numpy .* got list"),
        (ONES, np.ones(8), TypeError, "out must be float32, got float64"),
        (ONES, ONES.astype(">f4"), TypeError, "out must be float32, got >f4"),
        (ONES, np.ones((2, 4), np.float32), ValueError, r"out must be 1-dim.* got shape \(2, 4\)"),
        (np.ones(16, np.float32)[::2], ONES.copy(), ValueError, "gradient must be contiguous"),
        (np.ones(9, np.float32), ONES.copy(), ValueError, "gradient must have 8 elements, got 9"),
        (ONES, np.ones(9, np.float32), ValueError, "out must have 8 elements, got 9"),
        (ONES, read_only(ONES.copy()), ValueError, "out is read-only"),
        (ONES, ONES, ValueError, "out overlaps adopted round 0"),
    ],
)
def test_wrong_arguments_are_named(gradient: Any, out: Block, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        adopting([gradient], [1.0], 8).reduce_adopted(out)


def test_partial_overlap_and_misalignment_are_refused() -> None:
    memory = np.zeros(20, np.float32)
    with pytest.raises(ValueError, match="out overlaps adopted round 0"):
        adopting([memory[4:12]], [1.0], 8).reduce_adopted(memory[:8])
    adopting([memory[8:16]], [1.0], 8).reduce_adopted(memory[:8])
    shifted = np.frombuffer(bytearray(33), np.float32, count=8, offset=1)
    with pytest.raises(ValueError, match="block must be contiguous and aligned"):
        _native.norm_and_finite(shifted)


def test_slots_need_fields_and_a_known_compression() -> None:
    native = _native.GradAccumulator()
    with pytest.raises(ValueError, match="the fields have fewer elements than a slot"):
        native.lay_out_slots(1, "none")
    native.lay_out(["float32"], [8])
    with pytest.raises(ValueError, match="compressions are none, bf16, fp16 and top-k, got zip"):
        native.lay_out_slots(8, "zip")


def test_released_rounds_are_gone() -> None:
    native = adopting([ONES], [1.0], 8)
    native.release()
    out = np.ones(8, np.float32)
    assert native.reduce_adopted(out).norm == 0.0
    assert not out.any()
