"""The two carriers of rounds do the same: passes, checks, refusals; and the layout of native blocks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hive import _native
from hive.compat.rlpack.rounds import GradientField, NativeRounds, Rounds, TorchRounds, rounds_for

CPU = torch.device("cpu")
SHAPES = {"a": (3,), "b": (2, 20), "c": ()}


def fields(dtype: torch.dtype = torch.float32) -> list[GradientField]:
    return [GradientField(name, torch.Size(shape), dtype, CPU) for name, shape in SHAPES.items()]


def gradients(seed: int) -> list[Tensor | None]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES.values()]


@pytest.fixture(params=["native", "torch"])
def rounds(request: pytest.FixtureRequest) -> Rounds:
    return NativeRounds(_native.GradAccumulator(), fields()) if request.param == "native" else TorchRounds(fields())


def test_rounds_are_gathered_summed_and_divided(rounds: Rounds) -> None:
    blocks = [rounds.new_block() for _ in range(2)]
    given = [gradients(0), [None, *gradients(1)[1:]]]
    for gradient, block in zip(given, blocks, strict=True):
        assert rounds.gather(gradient, block) == -1
    out, sums = rounds.new_block(), rounds.new_sums()
    found = rounds.reduce(blocks, [1.0, 2.0], 3.0, out)
    rounds.add(given[0], 1.0, sums, onto=False)
    rounds.add(given[1], 2.0, sums, onto=True)
    second = rounds.new_block()
    assert rounds.finish(sums, 3.0, second) == found
    filled = [[torch.zeros(3) if g is None else g for g in one] for one in given]
    expected = [(x + 2 * y) / 3 for x, y in zip(*filled, strict=True)]
    for tensors in (out.tensors, second.tensors):
        assert all(torch.equal(tensor, value) for tensor, value in zip(tensors, expected, strict=True))
    assert found.norm == pytest.approx(torch.cat([e.flatten() for e in expected]).double().norm().item())
    assert (found.finite, found.bad_field) == (True, -1)


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_the_first_bad_field_is_found(rounds: Rounds, bad: float) -> None:
    given = gradients(0)
    for tensor in given[1:]:
        assert tensor is not None
        tensor.view(-1)[-1] = bad
    block = rounds.new_block()
    assert rounds.first_bad(given) == rounds.gather(given, block) == 1
    found = rounds.reduce([block], [1.0], 1.0, rounds.new_block())
    assert (found.finite, found.bad_field, found.bad_round) == (False, 1, 0)
    good = rounds.new_block()
    assert rounds.reduce([block, good, block], [0.0, 1.0, 1.0], 1.0, rounds.new_block()).bad_round == 2
    assert rounds.reduce([block], [0.0], 1.0, rounds.new_block()).finite


def test_other_shapes_are_refused(rounds: Rounds) -> None:
    wrong: list[Tensor | None] = [torch.zeros(3), torch.zeros(20, 2), torch.zeros(())]
    with pytest.raises(ValueError, match=r"the gradient of `b` is float32 \[20, 2\] on cpu"):
        rounds.first_bad(wrong)


def test_native_fields_begin_at_multiples_of_64_and_the_padding_is_zero() -> None:
    native = _native.GradAccumulator()
    rounds = NativeRounds(native, fields())
    assert native.offsets == [0, 64, 256]
    assert (native.bytes, native.sum_bytes) == (320, 320)
    block = rounds.new_block()
    rounds.gather(gradients(0), block)
    assert not block.array[12:64].any()
    assert not block.array[260:].any()
    assert block.memory.data_ptr() % 64 == 0


def test_dtype_and_device_select_the_class_of_rounds() -> None:
    def kind(dtype: torch.dtype, device: torch.device = CPU) -> type:
        return type(rounds_for(_native.GradAccumulator(), [GradientField("w", torch.Size([1]), dtype, device)]))

    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        assert kind(dtype) is NativeRounds
    assert kind(torch.complex64) is kind(torch.float32, torch.device("cuda")) is TorchRounds
    with pytest.raises(TypeError, match="`w` is int64, gradients must be floats"):
        kind(torch.int64)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gradients_on_a_gpu_are_reduced_there() -> None:
    given = [None if g is None else g.cuda() for g in gradients(0)]
    there = [GradientField(f.name, f.shape, f.dtype, torch.device("cuda", 0)) for f in fields()]
    rounds = rounds_for(_native.GradAccumulator(), there)
    block, out = rounds.new_block(), rounds.new_block()
    assert rounds.gather(given, block) == -1
    assert rounds.reduce([block], [2.0], 2.0, out).finite
    assert all(g is not None and torch.equal(t, g) for t, g in zip(out.tensors, given, strict=True))
