"""_native.GradAccumulator through the binding: layout of mixed types, conversions, blame, errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from hive import _native


def aligned(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def laid_out(types: list[str], counts: list[int]) -> _native.GradAccumulator:
    native = _native.GradAccumulator()
    native.lay_out(types, counts)
    return native


def test_types_lie_together_in_the_order_of_their_first() -> None:
    native = laid_out(["float16", "float64", "float16", "bfloat16"], [40, 3, 1, 1])
    assert native.offsets == [0, 192, 128, 256]
    assert native.bytes == 128 + 64 + 64 + 64
    assert native.sum_bytes == 4 * 96 + 64 + 4 * 32


@pytest.mark.parametrize(("name", "dtype"), [("bfloat16", torch.bfloat16), ("float16", torch.float16)])
def test_every_sixteen_bit_number_widens_and_narrows_as_torch_does(name: str, dtype: torch.dtype) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    every = every[torch.isfinite(every)].contiguous()
    native = laid_out([name], [len(every)])
    sums, out = aligned(native.sum_bytes), aligned(native.bytes)
    for weight in (1.0, 1 / 3, 1e-3, 70000.0):
        native.add([every.data_ptr()], weight, sums, False)
        widened = torch.from_numpy(sums.view(np.float32)[: len(every)].copy())
        assert torch.equal(widened, every.float() * weight)
        native.finish(sums, 1.0, out)
        narrowed = torch.from_numpy(out).view(dtype)[: len(every)]
        assert torch.equal(narrowed.view(torch.int16), widened.to(dtype).view(torch.int16))
        block = aligned(native.bytes)
        native.gather([every.data_ptr()], block)
        reduced = aligned(native.bytes)
        native.reduce([block], [weight], 1.0, reduced)
        assert reduced.tobytes() == out.tobytes()


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("index", [0, 15, 16, 1023, 2006])
def test_bad_elements_are_found_wherever_they_are(name: str, index: int) -> None:
    native = laid_out([name, name], [5, 2007])
    first, second = (torch.ones(n, dtype=getattr(torch, name)) for n in (5, 2007))
    second[index] = float("nan")
    addresses = [first.data_ptr(), second.data_ptr()]
    blocks = [aligned(native.bytes) for _ in range(2)]
    assert native.gather([addresses[0], 0], blocks[0]) == -1
    assert native.gather(addresses, blocks[1]) == native.first_bad(addresses) == 1
    found = native.reduce(blocks, [1.0, 1.0], 2.0, aligned(native.bytes))
    assert (found.finite, found.bad_input, found.bad_index) == (False, 1, 1)


NATIVE = laid_out(["float32"], [3])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: laid_out(["int8"], [1]), ValueError, "types are float32.* got int8"),
        (lambda: laid_out(["float32"], []), ValueError, "types and counts must be as many"),
        (lambda: NATIVE.gather([0, 0], aligned(64)), ValueError, "there are 1 fields, got 2 addresses"),
        (lambda: NATIVE.gather([0], aligned(63)), ValueError, "block must have 64 bytes, got 63"),
        (lambda: NATIVE.gather([0], aligned(65)[1:]), ValueError, "block must be aligned to 8 bytes"),
        (lambda: NATIVE.add([0], 1.0, aligned(65)[1:], True), ValueError, "sums must be aligned"),
        (lambda: NATIVE.reduce([aligned(64)], [], 1.0, aligned(64)), ValueError, "blocks and weights must be as many"),
        (lambda: NATIVE.reduce([np.zeros(16)], [1.0], 1.0, aligned(64)), TypeError, r"blocks\[0\] must be uint8"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_result_overlaps_no_block() -> None:
    block = aligned(64)
    with pytest.raises(ValueError, match=r"blocks\[0\] overlaps out"):
        NATIVE.reduce([block], [1.0], 1.0, block)
