"""The accumulator of a run: the documented mean, byte by byte, for every codec; views, not copies; reports; errors."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from hive import _native
from hive.gradients import (
    COMPRESSIONS,
    PLAIN,
    SAMPLES,
    Codec,
    GradAccumulator,
    ReductionReport,
    clear,
    codec_for,
    gradient_layout,
)

ELEMENTS = 200
CODECS = [codec_for(name, 0.2) for name in COMPRESSIONS]
every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float32]


def random_gradient(seed: int, size: int = ELEMENTS) -> Floats:
    return np.random.default_rng(seed).standard_normal(size, np.float32)


def slot(values: Floats, samples: int, codec: Codec = PLAIN, parameters: int = 3) -> Arrays:
    """A gradient slot with garbage from an earlier use."""
    layout = gradient_layout(len(values), parameters, 2, 12, codec)
    arrays = layout.views(np.full(layout.bytes, 0xFF, np.uint8))
    clear(arrays, version=0)
    arrays["header"][SAMPLES] = samples
    arrays["mask"][:] = 1
    codec.encode(values, arrays, codec.residual(len(values)))
    return arrays


def garbage(like: Arrays) -> Arrays:
    """A slot of which any byte that is read does harm."""
    return {name: np.full(array.nbytes, 0xFF, np.uint8).view(array.dtype) for name, array in like.items()}


def adopting(slots: Sequence[Arrays], factors: Sequence[float] | None = None, **options: Any) -> GradAccumulator:
    accumulator = GradAccumulator.for_slots(options.pop("elements", ELEMENTS), max(len(slots), 1), **options)
    for one, factor in zip(slots, factors or [1.0] * len(slots), strict=True):
        accumulator.adopt(one, int(one["header"][SAMPLES]), factor)
    return accumulator


def reduced(slots: Sequence[Arrays], factors: Sequence[float] | None = None, **options: Any) -> Floats:
    mean: Floats = adopting(slots, factors, **options).mean_reduce().array
    return mean


def decoded(one: Arrays, codec: Codec) -> tuple[Floats, Any]:
    """The values of a slot in float32, and where they belong."""
    if codec.name == "top-k":
        return one["values"], one["indices"]
    if codec.name == "bf16":
        return (one["gradient"].astype(np.uint32) << 16).view(np.float32), slice(None)
    if codec.name == "fp16":
        return one["gradient"].view(np.float16).astype(np.float32), slice(None)
    return one["gradient"], slice(None)


def documented_mean(slots: Sequence[Arrays], factors: Sequence[float], codec: Codec, size: int) -> Floats:
    """The formula of hive.gradients.accumulator, one rounding after the other."""
    samples = [int(one["header"][SAMPLES]) for one in slots]
    total = np.zeros(size, np.float32)
    first = True
    for one, n, factor in zip(slots, samples, factors, strict=True):
        weight = n / sum(samples) * factor if n else 0.0
        if not weight:
            continue
        if codec.name == "fp16":
            weight /= float(one["coding"][0])
        values, where = decoded(one, codec)
        term = np.float32(weight) * values
        if first and codec.name != "top-k":
            total[:] = term
        else:
            total[where] += term
        first = False
    return total


# --- the mean


@every_codec
@pytest.mark.parametrize("size", [1, 15, 16, 1003, 4099])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 9, 17])
def test_the_mean_has_the_bytes_of_the_documented_formula(codec: Codec, size: int, count: int) -> None:
    samples = [(7 * k) % 11 if k else 5 for k in range(count)]  # every eleventh is zero
    factors = [1.0 / (1 + k % 3) for k in range(count)]
    slots = [slot(random_gradient(k, size), n, codec) for k, n in enumerate(samples)]
    accumulator = adopting(slots, factors, codec=codec, elements=size)
    mean = accumulator.mean_reduce()
    expected = documented_mean(slots, factors, codec, size)
    assert mean.array.tobytes() == expected.tobytes()
    report = accumulator.report
    assert report is not None
    assert (report.rounds, report.samples, report.weight) == (count, sum(samples), float(sum(samples)))
    assert (report.norm, report.finite) == _native.norm_and_finite(expected)
    assert (report.parameter, report.bad_round) == ("", -1)


@every_codec
def test_a_round_of_zero_samples_is_never_read(codec: Codec) -> None:
    good = slot(random_gradient(1), 4, codec)
    lost = garbage(good)
    accumulator = GradAccumulator.for_slots(ELEMENTS, 3, codec)
    for one, samples in ((lost, 0), (good, 4), (lost, 0)):
        accumulator.adopt(one, samples)
    assert accumulator.mean_reduce().array.tobytes() == reduced([good], codec=codec).tobytes()


@every_codec
def test_a_factor_of_zero_is_not_read_either(codec: Codec) -> None:
    good = slot(random_gradient(1), 4, codec)
    accumulator = GradAccumulator.for_slots(ELEMENTS, 2, codec)
    accumulator.adopt(garbage(good), 4, 0.0)
    accumulator.adopt(good, 4)
    assert np.array_equal(accumulator.mean_reduce().array, 0.5 * reduced([good], codec=codec))


@every_codec
def test_no_samples_at_all_give_zeros(codec: Codec) -> None:
    lost = garbage(slot(random_gradient(1), 4, codec))
    accumulator = GradAccumulator.for_slots(ELEMENTS, 2, codec)
    for _ in range(2):
        accumulator.adopt(lost, 0)
    out = accumulator.zeros()
    out.array[:] = 7.0
    assert not accumulator.mean_reduce(out=out)["gradient"].any()
    assert accumulator.report is not None
    assert (accumulator.report.norm, accumulator.report.finite, accumulator.report.samples) == (0.0, True, 0)


def test_weights_are_rounded_once_and_computed_from_left_to_right() -> None:
    """Any other order of 15 / 26 * factor has another float32: the product lies between two of them."""
    factor = 1.7333334366480513
    slots = [slot(np.ones(ELEMENTS, np.float32), 15), slot(np.zeros(ELEMENTS, np.float32), 11)]
    expected = np.float32(15 / 26 * factor)
    assert expected not in (np.float32(15 * (1 / 26) * factor), np.float32(15 * factor / 26))
    assert reduced(slots, [factor, 1.0]).tolist() == [expected] * ELEMENTS


def test_one_gradient_comes_out_as_it_is() -> None:
    values = random_gradient(1)
    assert reduced([slot(values, 17)]).tobytes() == values.tobytes()


def test_factors_make_single_gradients_count_less() -> None:
    """Factors apply after the mean: the weight taken from a stale round is not added to the others."""
    slots = [slot(random_gradient(1), 4), slot(random_gradient(2), 12)]
    first, second = (one["gradient"].astype(np.float64) for one in slots)
    np.testing.assert_allclose(reduced(slots, [1.0, 0.5]), 0.25 * first + 0.375 * second, rtol=1e-5, atol=1e-6)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=6), st.integers(0, 1000))
@settings(deadline=None)
def test_the_mean_is_weighted_by_samples(samples: list[int], seed: int) -> None:
    slots = [slot(random_gradient(seed + k), n) for k, n in enumerate(samples)]
    expected = np.zeros(ELEMENTS)
    for n, one in zip(samples, slots, strict=True):
        expected += n / max(sum(samples), 1) * one["gradient"].astype(np.float64)
    np.testing.assert_allclose(reduced(slots), expected, rtol=1e-5, atol=1e-6)


# --- views


@every_codec
def test_an_adopted_round_is_a_view_until_it_is_released(codec: Codec) -> None:
    one, other = (slot(random_gradient(seed), 4, codec) for seed in (1, 2))
    accumulator = adopting([one], codec=codec)
    for name in one.keys() - {"header"}:
        one[name][...] = other[name]
    assert accumulator.mean_reduce().array.tobytes() == reduced([other], codec=codec).tobytes()
    accumulator.clear()
    with pytest.raises(ValueError, match="no gradients have been adopted"):
        accumulator.mean_reduce()


@every_codec
def test_slots_stay_alive_while_they_are_adopted_and_no_longer(codec: Codec) -> None:
    one = slot(random_gradient(1), 4, codec)
    expected = reduced([one], codec=codec)
    alive = [weakref.ref(array) for name, array in one.items() if name in codec.fields(ELEMENTS)]
    accumulator = adopting([one], codec=codec)
    del one
    gc.collect()
    assert accumulator.mean_reduce().array.tobytes() == expected.tobytes()
    accumulator.clear()
    gc.collect()
    assert [array() for array in alive] == [None] * len(alive)


@every_codec
def test_slots_are_only_read(codec: Codec) -> None:
    slots = [slot(random_gradient(seed), seed, codec) for seed in (3, 5)]
    before = [{name: array.tobytes() for name, array in one.items()} for one in slots]
    for one in slots:
        for array in one.values():
            array.flags.writeable = False
    reduced(slots, codec=codec)
    assert [{name: array.tobytes() for name, array in one.items()} for one in slots] == before


def test_a_turn_writes_to_the_memory_that_it_is_given() -> None:
    accumulator = GradAccumulator.for_slots(ELEMENTS, 2)
    out = accumulator.zeros()
    address = out.array.ctypes.data
    assert address % 64 == 0
    for turn in range(3):
        values = random_gradient(turn)
        accumulator.adopt(slot(values, 4), 4)
        assert accumulator.mean_reduce(out=out) is out
        accumulator.clear()
        assert (out.array.ctypes.data, out["gradient"].data_ptr()) == (address, address)
        assert out.array.tobytes() == values.tobytes()


def test_results_are_separate_memory_without_out() -> None:
    accumulator = adopting([slot(random_gradient(1), 4)])
    first, second = accumulator.mean_reduce(), accumulator.mean_reduce()
    first.array[:] = 0.0
    assert second.array.tobytes() == random_gradient(1).tobytes()


def test_a_single_slot_with_its_norm_is_the_mean_and_is_not_read() -> None:
    """The norm is not that of the values, so a second pass would show."""
    accumulator = GradAccumulator.for_slots(ELEMENTS, 2)
    one, out = slot(random_gradient(1), 4), accumulator.zeros()
    accumulator.adopt(one, 4, norm=123.0)
    mean = accumulator.mean_reduce(out=out)
    assert np.shares_memory(mean.array, one["gradient"])
    assert not out.array.any()
    assert accumulator.report == ReductionReport(1, 2, 4.0, 123.0, True, "", -1, 4)


@pytest.mark.parametrize(
    ("codec", "samples", "factor", "norm"),
    [
        (codec_for("bf16"), 4, 1.0, 123.0),
        (PLAIN, 0, 1.0, 123.0),
        (PLAIN, 4, 0.5, 123.0),
        (PLAIN, 4, 1.0, 0.0),
        (PLAIN, 4, 1.0, float("nan")),
    ],
)
def test_other_single_slots_are_reduced(codec: Codec, samples: int, factor: float, norm: float) -> None:
    values = random_gradient(1)
    accumulator = GradAccumulator.for_slots(ELEMENTS, 1, codec)
    accumulator.adopt(slot(values, samples, codec), samples, factor, norm)
    mean = accumulator.mean_reduce(out=(out := accumulator.zeros()))
    assert mean is out
    assert accumulator.report is not None
    assert accumulator.report.norm == _native.norm_and_finite(mean.array)[0]
    np.testing.assert_allclose(mean.array, (samples > 0) * factor * values, rtol=2**-8)


def test_two_slots_with_their_norms_are_reduced() -> None:
    slots = [slot(random_gradient(seed), 4) for seed in range(2)]
    accumulator = GradAccumulator.for_slots(ELEMENTS, 2)
    for one in slots:
        accumulator.adopt(one, 4, norm=123.0)
    assert accumulator.mean_reduce().array.tobytes() == reduced(slots).tobytes()
    accumulator.clear()
    accumulator.adopt(slots[0], 4)
    assert accumulator.mean_reduce().array.tobytes() == slots[0]["gradient"].tobytes()


def test_results_are_tensors_of_the_network() -> None:
    network = nn.Linear(5, 3)
    described = [(name, tuple(parameter.shape)) for name, parameter in network.named_parameters()]
    values = random_gradient(1, 32)  # each parameter begins at a multiple of 64 bytes
    accumulator = adopting([slot(values, 4, parameters=2)], elements=32, parameters=described)
    mean = accumulator.mean_reduce()
    assert {name: tuple(tensor.shape) for name, tensor in mean.items()} == dict(described)
    assert mean["weight"].flatten().tolist() == values[:15].tolist()
    assert mean["bias"].tolist() == values[16:19].tolist()
    assert mean["weight"].data_ptr() == mean.array.ctypes.data
    with pytest.raises(ValueError, match="the parameters fill 32 elements, the gradient of a slot has 48"):
        GradAccumulator.for_slots(48, 1, parameters=described)


# --- what is not finite


def poisoned(codec: Codec, bad: float) -> Arrays:
    """A slot with a bad element at 150, as no encoder makes it."""
    one = slot(random_gradient(9), 4, codec)
    if codec.name == "top-k":
        one["indices"][7], one["values"][7] = 150, bad
    elif codec.in_place:
        one["gradient"][150] = bad
    else:
        dtype = torch.bfloat16 if codec.name == "bf16" else torch.float16
        one["gradient"][150] = torch.tensor([bad], dtype=dtype).view(torch.int16).numpy().view(np.uint16)[0]
    return one


@every_codec
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_bad_round_is_reported_and_nothing_raises(codec: Codec, bad: float) -> None:
    slots = [slot(random_gradient(seed), 4, codec) for seed in range(4)]
    slots[1], slots[3] = poisoned(codec, bad), poisoned(codec, bad)
    accumulator = adopting(slots, codec=codec)
    accumulator.mean_reduce()
    report = accumulator.report
    assert report is not None
    assert not np.isfinite(report.norm)
    assert (report.finite, report.bad_round, report.parameter) == (False, 1, "gradient")


def test_the_parameter_of_the_first_bad_element_is_named() -> None:
    one = slot(random_gradient(1, 208), 4)
    one["gradient"][150] = np.nan
    accumulator = adopting([one], elements=208, parameters=[("a", (100,)), ("b", (96,))])
    accumulator.mean_reduce()
    assert accumulator.report is not None
    assert (accumulator.report.parameter, accumulator.report.bad_round) == ("b", 0)


def test_finite_rounds_with_an_overflowing_sum_name_no_round() -> None:
    large = [slot(np.full(ELEMENTS, 3e38, np.float32), 4) for _ in range(2)]
    accumulator = adopting(large, [2.0, 2.0])
    accumulator.mean_reduce()
    assert accumulator.report is not None
    assert (accumulator.report.finite, accumulator.report.bad_round) == (False, -1)
    assert accumulator.report.parameter == "gradient"


def test_a_round_that_float32_cannot_weigh_is_a_bad_one() -> None:
    slots = [slot(random_gradient(seed), 4, codec_for("fp16")) for seed in range(3)]
    slots[1]["coding"][0] = 0.0
    accumulator = adopting(slots, codec=codec_for("fp16"))
    accumulator.mean_reduce()
    assert accumulator.report is not None
    assert (accumulator.report.finite, accumulator.report.bad_round) == (False, 1)


def test_an_index_beyond_the_end_is_reported_and_touches_nothing() -> None:
    codec = codec_for("top-k", 0.2)
    good, bad = (slot(random_gradient(seed), 1, codec) for seed in (1, 2))
    bad["indices"][3] = ELEMENTS
    accumulator = adopting([good, bad], codec=codec)
    accumulator.mean_reduce()
    assert accumulator.report is not None
    assert (accumulator.report.finite, accumulator.report.bad_round, accumulator.report.parameter) == (False, 1, "")


# --- refusals


ONE = slot(random_gradient(1), 4)
LONG = {"values": np.zeros(ELEMENTS + 1, np.float32), "indices": np.zeros(ELEMENTS + 1, np.uint32)}


@pytest.mark.parametrize(
    ("attempt", "error", "message"),
    [
        (lambda: GradAccumulator(None, 2), TypeError, "scripts use hive.compat.rlpack.GradAccumulator"),  # type: ignore[arg-type]
        (lambda: adopting([ONE]).adopt(ONE, 4), OverflowError, r"all 1 rounds are held.* the next adopt\(\)"),
        (lambda: adopting([], elements=208).adopt(ONE, 4), ValueError, "gradient must have 208 elements, got 200"),
        (lambda: adopting([]).adopt(ONE, -1), ValueError, "samples must be at least 0, got -1"),
        (lambda: adopting([]).adopt(ONE, 4, 1e39), ValueError, "factor must be finite in float32"),
        (
            lambda: adopting([], codec=codec_for("top-k")).adopt(ONE, 4),
            ValueError,
            "no 'values', which the codec `top-k` needs",
        ),
        (lambda: adopting([], codec=codec_for("top-k")).adopt(LONG, 4), ValueError, "values has more elements than"),
        (lambda: adopting([], codec=codec_for("bf16")).adopt(ONE, 4), TypeError, "gradient must be uint16"),
        (lambda: adopting([]).adopt({"gradient": [1.0]}, 4), TypeError, "gradient must be a numpy array"),
    ],
)
def test_invalid_slots_are_refused(attempt: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        attempt()


def test_a_refused_slot_adds_no_round() -> None:
    accumulator = adopting([ONE])
    accumulator.bootstrap_rounds = 2
    with pytest.raises(TypeError):
        accumulator.adopt({"gradient": None}, 4)  # type: ignore[dict-item]
    assert accumulator.mean_reduce().array.tobytes() == ONE["gradient"].tobytes()


@every_codec
def test_a_result_does_not_overwrite_an_adopted_slot(codec: Codec) -> None:
    native = _native.GradAccumulator()
    native.lay_out(["float32"], [ELEMENTS])
    native.lay_out_slots(ELEMENTS, codec.name)
    memory = np.zeros(4 * ELEMENTS, np.uint8)
    count = codec.fields(ELEMENTS).get("values", ("", (0,)))[1][0]
    one: dict[str, Any] = {"gradient": memory[: ELEMENTS * (4 if codec.in_place else 2)], "coding": np.ones(2)}
    one["gradient"] = one["gradient"].view(np.float32 if codec.in_place else np.uint16)
    one["values"], one["indices"] = memory[: 4 * count].view(np.float32), np.zeros(count, np.uint32)
    native.adopt(one, 0, 1.0)
    with pytest.raises(ValueError, match="out overlaps adopted round 0"):
        native.reduce_adopted(memory.view(np.float32))
    with pytest.raises(ValueError, match="out must have 200 elements, got 199"):
        native.reduce_adopted(np.zeros(199, np.float32))


@pytest.mark.parametrize(("rounds", "partial"), [(1, True), (3, True), (4, False)])
def test_partial_is_true_for_fewer_rounds(rounds: int, partial: bool) -> None:
    assert ReductionReport(rounds, 4, float(rounds), 1.0, True, "").partial is partial
