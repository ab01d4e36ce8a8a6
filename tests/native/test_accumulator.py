"""reduce and norm_and_finite through the binding: values, blame, purity, errors that name the argument."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from hive import _native

Block = NDArray[np.float32]


def blocks(count: int, size: int, seed: int = 0) -> list[Block]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(size, dtype=np.float32) for _ in range(count)]


def reduce(gradients: list[Block], weights: list[float]) -> tuple[Block, _native.Reduction]:
    out = np.full_like(gradients[0], np.nan)
    return out, _native.reduce(gradients, weights, out)


@pytest.mark.parametrize("size", [0, 1, 7, 64, 1023, 1024, 1025, 100_003])
@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_weighted_sum_and_norm(count: int, size: int) -> None:
    gradients = blocks(count, size, seed=count)
    weights = [0.5 / (k + 1) for k in range(count)]
    out, reduction = reduce(gradients, weights)
    expected = np.zeros(size, np.float32)
    for gradient, weight in zip(gradients, weights, strict=True):
        expected += np.float32(weight) * gradient
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
    reduction = _native.reduce([np.full(1500, np.nan, np.float32)] * len(weights), weights, out)
    assert (reduction.norm, reduction.finite) == (0.0, True)
    assert not out.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("index", [0, 1024, 9_999])
def test_bad_input_is_named(bad: float, index: int) -> None:
    gradients = blocks(4, 10_000)
    gradients[1][index] = bad
    gradients[3][0] = bad
    _, reduction = reduce(gradients, [0.25] * 4)
    assert (reduction.finite, reduction.bad_input, reduction.bad_index) == (False, 1, index)
    assert _native.norm_and_finite(gradients[1])[1] is False


def test_opposite_infinities_do_not_cancel() -> None:
    gradients = blocks(2, 100)
    gradients[0][50], gradients[1][50] = np.inf, -np.inf
    _, reduction = reduce(gradients, [0.5, 0.5])
    assert (reduction.bad_input, reduction.bad_index) == (0, 50)


def test_overflow_of_finite_gradients_is_found_but_blamed_on_none() -> None:
    large = np.full(10, 3e38, np.float32)
    _, reduction = reduce([large, large], [1.0, 1.0])
    assert (reduction.finite, reduction.bad_input, reduction.bad_index) == (False, -1, 0)
    assert _native.norm_and_finite(large)[1] is True


def test_threads_reduce_the_same_bytes() -> None:
    gradients = blocks(3, 200_000)
    outs = [np.empty(200_000, np.float32) for _ in range(2)]
    weights = [0.1, 0.2, 0.3]
    threads = [threading.Thread(target=_native.reduce, args=(gradients, weights, out)) for out in outs]
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


def read_only(block: Block) -> Block:
    block.flags.writeable = False
    return block


ONES = np.ones(8, np.float32)


@pytest.mark.parametrize(
    ("gradients", "weights", "out", "error", "message"),
    [
        ([ONES, np.ones(8)], [1, 1], ONES.copy(), TypeError, r"gradients\[1\] must be float32, got float64"),
        ([[1.0, 2.0]], [1], ONES.copy(), TypeError, r"gradients\[0\] must be a numpy .* got list"),
        ([ONES], [1], np.ones(8), TypeError, "out must be float32, got float64"),
        ([ONES], [1], ONES.astype(">f4"), TypeError, "out must be float32, got >f4"),
        ([ONES], [1], np.ones((2, 4), np.float32), ValueError, r"out must be 1-dim.* got shape \(2, 4\)"),
        ([np.ones(16, np.float32)[::2]], [1], ONES.copy(), ValueError, r"gradients\[0\] must be contiguous"),
        ([ONES], [1], np.ones(9, np.float32), ValueError, r"gradients\[0\] and out must have the same shape"),
        ([ONES], [1], read_only(ONES.copy()), ValueError, "out is read-only"),
        ([ONES], [1, 1], ONES.copy(), ValueError, "as many, got 1 and 2"),
        ([ONES], [np.nan], ONES.copy(), ValueError, r"weights\[0\] must be finite"),
        ([ONES], [1e39], ONES.copy(), ValueError, r"weights\[0\] must be finite"),
        ([ONES], [1], ONES, ValueError, r"gradients\[0\] overlaps out"),
    ],
)
def test_wrong_arguments_are_named(
    gradients: list[Block], weights: list[float], out: Block, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _native.reduce(gradients, weights, out)


def test_partial_overlap_and_misalignment_are_refused() -> None:
    memory = np.zeros(20, np.float32)
    with pytest.raises(ValueError, match=r"gradients\[0\] overlaps out"):
        _native.reduce([memory[4:12]], [1.0], memory[:8])
    _native.reduce([memory[8:16]], [1.0], memory[:8])
    shifted = np.frombuffer(bytearray(33), np.float32, count=8, offset=1)
    with pytest.raises(ValueError, match="block must be contiguous and aligned"):
        _native.norm_and_finite(shifted)
