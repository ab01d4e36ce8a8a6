"""Adopted rounds: the documented mean, byte by byte, for every codec; views and not copies; reports; refusals."""

from __future__ import annotations

import copy
import gc
import pickle
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
    GradientNotFinite,
    MapOfTensors,
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
    mean: Floats = adopting(slots, factors, **options).mean_reduce().block.floats
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
    """The formula of hive.gradients.adopted, one rounding after the other."""
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
    assert mean.block.floats.tobytes() == expected.tobytes()
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
    assert accumulator.mean_reduce().block.floats.tobytes() == reduced([good], codec=codec).tobytes()
    assert accumulator.unused_counts == {"gradient": 2}


@every_codec
def test_a_factor_of_zero_is_not_read_either(codec: Codec) -> None:
    good = slot(random_gradient(1), 4, codec)
    accumulator = GradAccumulator.for_slots(ELEMENTS, 2, codec)
    accumulator.adopt(garbage(good), 4, 0.0)
    accumulator.adopt(good, 4)
    assert np.array_equal(accumulator.mean_reduce().block.floats, 0.5 * reduced([good], codec=codec))


@every_codec
def test_no_samples_at_all_give_zeros(codec: Codec) -> None:
    lost = garbage(slot(random_gradient(1), 4, codec))
    accumulator = GradAccumulator.for_slots(ELEMENTS, 2, codec, non_finite="raise")
    for _ in range(2):
        accumulator.adopt(lost, 0)
    out = accumulator.zeros()
    out["gradient"].fill_(7.0)
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


def test_the_sum_is_that_of_samples_times_gradient() -> None:
    slots = [slot(random_gradient(1), 4), slot(random_gradient(2), 12)]
    total = adopting(slots, [1.0, 0.5]).sum_reduce()
    first, second = (one["gradient"] for one in slots)
    assert np.array_equal(total.block.floats, np.float32(4) * first + np.float32(6) * second)


# --- views


@every_codec
def test_an_adopted_round_is_a_view_until_it_is_released(codec: Codec) -> None:
    one, other = (slot(random_gradient(seed), 4, codec) for seed in (1, 2))
    accumulator = adopting([one], codec=codec)
    for name in one.keys() - {"header"}:
        one[name][...] = other[name]
    assert accumulator.mean_reduce().block.floats.tobytes() == reduced([other], codec=codec).tobytes()
    assert len(accumulator) == 1
    accumulator.clear()
    assert len(accumulator) == 0
    with pytest.raises(ValueError, match="no gradients have been accumulated"):
        accumulator.mean_reduce()


@every_codec
def test_slots_stay_alive_while_they_are_adopted_and_no_longer(codec: Codec) -> None:
    one = slot(random_gradient(1), 4, codec)
    expected = reduced([one], codec=codec)
    alive = [weakref.ref(array) for name, array in one.items() if name in codec.fields(ELEMENTS)]
    accumulator = adopting([one], codec=codec)
    del one
    gc.collect()
    assert accumulator.mean_reduce().block.floats.tobytes() == expected.tobytes()
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
    block, address = out.block.floats, out["gradient"].data_ptr()
    for turn in range(3):
        values = random_gradient(turn)
        accumulator.adopt(slot(values, 4), 4)
        assert accumulator.mean_reduce(out=out) is out
        accumulator.clear()
        assert out.block.floats is block
        assert (block.ctypes.data, out["gradient"].data_ptr()) == (address, address)
        assert block.tobytes() == values.tobytes()


def test_results_are_tensors_of_the_network() -> None:
    network = nn.Linear(5, 3)
    described = [(name, tuple(parameter.shape)) for name, parameter in network.named_parameters()]
    values = random_gradient(1, 32)  # each parameter begins at a multiple of 64 bytes
    accumulator = adopting([slot(values, 4, parameters=2)], elements=32, parameters=described)
    mean = accumulator.mean_reduce(into=network)
    assert {name: tuple(tensor.shape) for name, tensor in mean.items()} == dict(described)
    assert mean["weight"].flatten().tolist() == values[:15].tolist()
    assert mean["bias"].tolist() == values[16:19].tolist()
    assert network.weight.grad is mean["weight"]
    with pytest.raises(ValueError, match="the parameters fill 32 elements, the gradient of a slot has 48"):
        GradAccumulator.for_slots(48, 1, parameters=described)


def test_parameters_without_a_gradient_are_counted_by_the_masks() -> None:
    described = [("weight", (3, 5)), ("bias", (3,))]
    slots = [slot(random_gradient(seed, 32), 4, parameters=2) for seed in range(3)]
    slots[0]["mask"][1] = slots[2]["mask"][1] = 0
    accumulator = adopting(slots, elements=32, parameters=described)
    assert accumulator.unused_counts == {"bias": 2}
    for one in slots:
        one["mask"][1] = 0
    network = nn.Linear(5, 3)
    accumulator.mean_reduce(into=network)
    assert network.weight.grad is not None
    assert network.bias.grad is None


@every_codec
@pytest.mark.parametrize("copied", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy])
def test_a_copy_has_separate_slots(codec: Codec, copied: Callable[[GradAccumulator], GradAccumulator]) -> None:
    slots = [slot(random_gradient(seed), 4 + seed, codec) for seed in range(2)]
    accumulator = adopting(slots, [1.0, 0.5], codec=codec)
    expected = accumulator.mean_reduce().block.floats.tobytes()
    other = copied(accumulator)
    for name in codec.fields(ELEMENTS):
        slots[0][name][...] = 0
    assert other.mean_reduce().block.floats.tobytes() == expected
    other.clear()
    other.adopt(slots[1], 4)
    assert len(other) == 1


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
    strict = adopting(slots, codec=codec, non_finite="raise")
    with pytest.raises(GradientNotFinite, match="`gradient` is not finite"):
        strict.mean_reduce()


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


def accumulated() -> GradAccumulator:
    accumulator = GradAccumulator.for_slots(ELEMENTS, 2)
    accumulator.accumulate(MapOfTensors({"gradient": torch.ones(ELEMENTS)}))
    return accumulator


ONE = slot(random_gradient(1), 4)
LONG = {"values": np.zeros(ELEMENTS + 1, np.float32), "indices": np.zeros(ELEMENTS + 1, np.uint32)}


@pytest.mark.parametrize(
    ("attempt", "error", "message"),
    [
        (lambda: GradAccumulator(None, 2).adopt(ONE, 4), ValueError, "construct it with GradAccumulator.for_slots"),
        (lambda: accumulated().adopt(ONE, 4), ValueError, r"rounds of accumulate\(\) are held"),
        (lambda: adopting([ONE, ONE]).accumulate({}), ValueError, "adopted rounds are held"),
        (lambda: adopting([ONE]).adopt(ONE, 4), OverflowError, r"all 1 rounds are held.* the next adopt\(\)"),
        (lambda: adopting([ONE])[0], TypeError, "adopted rounds lie in slots"),
        (lambda: list(adopting([ONE])), TypeError, "adopted rounds lie in slots"),
        (lambda: adopting([ONE], strict=True).adopt(ONE, 4, float("nan")), OverflowError, "all 1 rounds"),
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
        (lambda: adopting([], non_finite="skip"), ValueError, "non_finite must be one of raise, report"),
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
    assert len(accumulator) == 1
    assert accumulator.mean_reduce().block.floats.tobytes() == ONE["gradient"].tobytes()


def test_a_strict_accumulator_wants_all_rounds() -> None:
    accumulator = GradAccumulator.for_slots(ELEMENTS, 2, strict=True)
    accumulator.adopt(ONE, 4)
    assert not accumulator.step_due()
    with pytest.raises(ValueError, match="1 of 2 rounds are held"):
        accumulator.mean_reduce()
    accumulator.adopt(ONE, 4)
    assert accumulator.step_due()
    accumulator.mean_reduce()


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
        native.reduce_adopted(memory.view(np.float32), True)
    with pytest.raises(ValueError, match="out must have 200 elements, got 199"):
        native.reduce_adopted(np.zeros(199, np.float32), True)


def test_an_accumulator_of_slots_also_accumulates() -> None:
    accumulator = accumulated()
    assert accumulator.mean_reduce()["gradient"].tolist() == [1.0] * ELEMENTS
    accumulator.clear()
    accumulator.adopt(ONE, 4)
    assert accumulator.mean_reduce().block.floats.tobytes() == ONE["gradient"].tobytes()
