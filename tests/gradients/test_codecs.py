"""Compressed gradients: fewer bytes, a known error, the same reduction; and top-k loses no part of a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as array_of
from numpy.typing import NDArray

from hive.errors import TopologyError
from hive.gradients import (
    COMPRESSIONS,
    ERROR,
    SAMPLES,
    Codec,
    GradAccumulator,
    ReductionReport,
    clear,
    codec_for,
    gradient_layout,
)

Floats = NDArray[np.float32]

SIZE = 1003
SMALLER = [codec_for(name, 0.1) for name in COMPRESSIONS if name != "none"]
every_codec = pytest.mark.parametrize("codec", SMALLER, ids=lambda codec: codec.name)

finite = array_of(
    np.float32, st.integers(1, 70), elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=True)
)


def random(seed: int, size: int = SIZE) -> Floats:
    return np.random.default_rng(seed).standard_normal(size, dtype=np.float32)


def slot(codec: Codec, size: int = SIZE, samples: int = 1) -> dict[str, Any]:
    layout = gradient_layout(size, 1, 1, 1, codec)
    made = layout.views(np.full(layout.bytes, 0xA5, np.uint8))
    clear(made, 0)
    made["header"][SAMPLES] = samples
    return made


def sent(codec: Codec, gradient: Floats, residual: Floats | None = None, samples: int = 1) -> dict[str, Any]:
    out = slot(codec, len(gradient), samples)
    codec.encode(gradient, out, codec.residual(len(gradient)) if residual is None else residual)
    return out


def received(codec: Codec, *slots: dict[str, Any], size: int = SIZE) -> tuple[Floats, ReductionReport]:
    accumulator = GradAccumulator.for_slots(size, len(slots), codec)
    for one in slots:
        accumulator.adopt(one, int(one["header"][SAMPLES]))
    out: Floats = accumulator.mean_reduce().array
    assert accumulator.report is not None
    return out, accumulator.report


# --- sizes


def test_slots_have_the_documented_sizes() -> None:
    plain = gradient_layout(10_000, 1, 1, 1).bytes
    ratios = {}
    for codec in SMALLER:
        made = sent(codec, random(0, 10_000))
        ratios[codec.name] = 40_000 / codec.sent_bytes(made)
        rest = plain - 40_000
        assert gradient_layout(10_000, 1, 1, 1, codec).bytes - rest <= codec.sent_bytes(made) + 3 * 64
    assert ratios == pytest.approx({"bf16": 2.0, "fp16": 2.0, "top-k": 5.0}, rel=0.01)


def test_top_k_sends_at_least_one_and_at_most_all() -> None:
    assert [codec_for("top-k", f).fields(7)["values"][1] for f in (0.001, 0.3, 0.5, 1.0)] == [(1,), (3,), (4,), (7,)]


@pytest.mark.parametrize(("name", "top_k"), [("zip", 0.1), ("top-k", 0.0), ("top-k", 1.5)])
def test_unknown_compressions_are_refused(name: str, top_k: float) -> None:
    with pytest.raises(TopologyError):
        codec_for(name, top_k)


# --- halves


@given(finite)
@settings(deadline=None)
def test_bfloat16_is_that_of_torch(gradient: Floats) -> None:
    made = sent(codec_for("bf16"), gradient)
    expected = torch.from_numpy(gradient).to(torch.bfloat16)
    assert np.array_equal(made["gradient"], expected.view(torch.int16).numpy().view(np.uint16))
    out, _ = received(codec_for("bf16"), made, size=len(gradient))
    assert np.array_equal(out, expected.float().numpy())


@given(finite)
@settings(deadline=None)
def test_float16_neither_overflows_nor_loses_large_values(gradient: Floats) -> None:
    codec = codec_for("fp16")
    made = sent(codec, gradient)
    out, reduction = received(codec, made, size=len(gradient))
    assert reduction.finite
    largest = float(np.abs(gradient).max())
    assert np.abs(out - gradient).max() <= largest * 2.0**-11
    large = np.abs(gradient) > largest * 2.0**-27
    np.testing.assert_allclose(out[large], gradient[large], rtol=2.0**-10)


@pytest.mark.parametrize(("name", "bits"), [("bf16", 9), ("fp16", 12)])
def test_the_error_is_that_of_the_rounding(name: str, bits: int) -> None:
    gradient = random(1)
    made = sent(codec_for(name), gradient)
    out, _ = received(codec_for(name), made)
    wide = gradient.astype(np.float64)
    assert made["coding"][ERROR] == pytest.approx(np.linalg.norm(out - wide) / np.linalg.norm(wide), rel=1e-6)
    assert 0 < made["coding"][ERROR] < 2.0**-bits * 1.2


# --- top-k


@given(finite, st.floats(0.01, 1.0))
@settings(deadline=None)
def test_the_largest_are_sent_and_the_rest_is_kept_bit_by_bit(gradient: Floats, fraction: float) -> None:
    codec = codec_for("top-k", fraction)
    residual = codec.residual(len(gradient))
    made = sent(codec, gradient, residual)
    k = len(made["values"])
    order = np.argsort(-np.abs(gradient), kind="stable")[:k]
    assert made["indices"].tolist() == sorted(order.tolist())
    assert np.array_equal(made["values"], gradient[made["indices"]])
    out, _ = received(codec, made, size=len(gradient))
    assert np.array_equal(out + residual, gradient)
    missing = np.linalg.norm(residual.astype(np.float64)) / max(np.linalg.norm(gradient.astype(np.float64)), 1e-300)
    assert made["coding"][ERROR] == pytest.approx(missing, rel=1e-6)


def test_nothing_is_lost_over_many_gradients() -> None:
    """Sent values and residual add up to the sum of all gradients."""
    codec = codec_for("top-k", 0.05)
    residual = codec.residual(SIZE)
    total, arrived = np.zeros(SIZE), np.zeros(SIZE)
    for seed in range(100):
        gradient = random(seed)
        total += gradient
        arrived += received(codec, sent(codec, gradient, residual))[0]
    np.testing.assert_allclose(arrived + residual, total, atol=1e-4)
    assert np.linalg.norm(residual) < 0.7 * np.linalg.norm(total)


# --- the reduction


@every_codec
def test_the_mean_is_weighted_by_samples_in_order(codec: Codec) -> None:
    slots = [sent(codec, random(seed), samples=seed + 1) for seed in range(3)]
    out, reduction = received(codec, *slots)
    parts = [received(codec, one)[0] for one in slots]
    expected = sum(np.float32((seed + 1) / 6) * part for seed, part in enumerate(parts))
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-7)
    assert reduction.norm == pytest.approx(float(np.linalg.norm(out.astype(np.float64))), rel=2e-6)
    again, _ = received(codec, *slots)
    assert out.tobytes() == again.tobytes()


@every_codec
def test_a_gradient_of_zero_samples_is_not_read(codec: Codec) -> None:
    """Its slot holds garbage from an earlier use."""
    good = sent(codec, random(1), samples=4)
    out, reduction = received(codec, slot(codec, samples=0), good)
    assert reduction.finite
    assert np.array_equal(out, received(codec, good)[0])


@every_codec
def test_one_that_is_not_finite_is_cleared(codec: Codec) -> None:
    made = slot(codec, samples=3)
    codec.clear(made)
    out, reduction = received(codec, made)
    assert reduction.finite
    assert not out.any()


@every_codec
def test_zeros_stay_zeros(codec: Codec) -> None:
    made = sent(codec, np.zeros(SIZE, np.float32))
    out, _ = received(codec, made)
    assert not out.any()
    assert made["coding"][ERROR] == 0.0


# --- learning


def distance_after(steps: int, codec: Codec, *, feedback: bool = True) -> float:
    """How far from the optimum gradient descent ends on two workers' losses, of which each pulls hard the other way
    along one axis and softly the same way along the others."""
    goal = np.array([0.0, 1.0, -1.0, 0.5], np.float32)
    pulls = [np.array([s * 10.0, 0, 0, 0], np.float32) for s in (1, -1)]
    residuals = [codec.residual(4) for _ in pulls]
    x = np.zeros(4, np.float32)
    for _ in range(steps):
        slots = []
        for pull, residual in zip(pulls, residuals, strict=True):
            if not feedback:
                residual[:] = 0.0
            slots.append(sent(codec, (x - goal) + pull, residual))
        x = x - np.float32(0.01) * received(codec, *slots, size=4)[0]
    return float(np.linalg.norm(x - goal))


@every_codec
def test_descent_reaches_the_optimum_with_every_codec(codec: Codec) -> None:
    assert distance_after(1000, codec if codec.name != "top-k" else codec_for("top-k", 0.25)) < 0.3


def test_without_error_feedback_top_k_never_gets_there() -> None:
    """A check of the test above: the small gradients that all workers share are never the largest."""
    assert distance_after(1000, codec_for("top-k", 0.25), feedback=False) == pytest.approx(1.5, abs=0.01)
