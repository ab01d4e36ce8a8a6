"""Gradient slots, and the reduction of several: their mean by samples, blind to what weighs nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hive.gradients import (
    CAUSE,
    CAUSES,
    ENV_STEPS,
    EPISODES,
    POLICY,
    ROLLOUTS,
    SAMPLES,
    SEQUENCE,
    VERSION,
    clear,
    combine,
    gradient_layout,
    put_episodes,
)
from hive.gradients.blocks import HEADER

ELEMENTS = 200

Arrays = dict[str, NDArray[Any]]


def slot(samples: int = 0, values: NDArray[np.float32] | None = None, episodes: int = 12) -> Arrays:
    """A slot full of what was in it before, made a gradient of `samples` samples."""
    layout = gradient_layout(ELEMENTS, 3, 2, episodes)
    arrays = layout.views(np.full(layout.bytes, 0xFF, np.uint8))
    clear(arrays, version=0)
    arrays["header"][SAMPLES] = samples
    if values is not None:
        arrays["gradient"][:] = values
    return arrays


def random_gradient(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(ELEMENTS, np.float32)


def weighted_mean(gradients: list[Arrays]) -> NDArray[np.float64]:
    samples = [int(g["header"][SAMPLES]) for g in gradients]
    parts = [n * g["gradient"].astype(np.float64) for n, g in zip(samples, gradients, strict=True) if n]
    return np.sum(parts, axis=0) / sum(samples)


def test_a_layout_has_the_fields_that_the_module_draws() -> None:
    layout = gradient_layout(64, 5, 4, 30)
    assert {name: (dtype.name, shape) for name, (dtype, shape) in layout.fields.items()} == {
        "header": ("int64", (8,)),
        "moments": ("float64", (3,)),
        "gradient": ("float32", (64,)),
        "mask": ("uint8", (5,)),
        "statistics": ("float64", (4,)),
        "episode_returns": ("float32", (30,)),
        "episode_lengths": ("int32", (30,)),
    }
    assert all(offset % 64 == 0 for offset in layout.offsets.values())
    assert gradient_layout(64, 5, 0, 30).fields["statistics"][1] == (1,)


def test_header_positions() -> None:
    """They lie in shared memory: append only."""
    assert HEADER == ("version", "samples", "episodes", "env_steps", "rollouts", "policy", "sequence", "cause")
    assert list(range(8)) == [VERSION, SAMPLES, EPISODES, ENV_STEPS, ROLLOUTS, POLICY, SEQUENCE, CAUSE]
    assert CAUSES == ("", "observation", "reward", "weight", "loss", "gradient")


def test_a_cleared_slot_stands_for_nothing() -> None:
    arrays = slot()
    arrays["header"][:] = 9
    clear(arrays, version=-1)
    assert arrays["header"].tolist() == [-1, 0, 0, 0, 0, -1, 0, 0]
    assert not arrays["moments"].any()
    assert not arrays["mask"].any()
    assert not arrays["statistics"].any()


def test_episodes_are_appended_in_the_order_given() -> None:
    arrays = slot(episodes=5)
    first = np.float32([3.0, 1.0]), np.int32([7, 9])
    none = np.empty(0, np.float32), np.empty(0, np.int32)
    put_episodes(arrays, [first, none, (np.float32([-2.0]), np.int32([4]))])
    assert arrays["header"][EPISODES] == 3
    assert arrays["episode_returns"][:3].tolist() == [3.0, 1.0, -2.0]
    assert arrays["episode_lengths"][:3].tolist() == [7, 9, 4]


def test_every_step_may_end_an_episode() -> None:
    arrays = slot(episodes=12)
    put_episodes(arrays, [(np.arange(6, dtype=np.float32), np.ones(6, np.int32))] * 2)
    assert arrays["header"][EPISODES] == 12
    assert arrays["episode_returns"].tolist() == [0, 1, 2, 3, 4, 5] * 2


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=6), st.integers(0, 1000))
def test_combine_is_the_mean_by_samples(samples: list[int], seed: int) -> None:
    gradients = [slot(n, random_gradient(seed + i)) for i, n in enumerate(samples)]
    out = np.full(ELEMENTS, 7.0, np.float32)
    total, reduction = combine(gradients, out)
    assert total == sum(samples)
    assert reduction.finite
    if total == 0:
        assert not out.any()
        assert reduction.norm == 0.0
        return
    np.testing.assert_allclose(out, weighted_mean(gradients), rtol=1e-6, atol=1e-6)
    assert reduction.norm == pytest.approx(float(np.linalg.norm(out.astype(np.float64))), rel=1e-6)


def test_factors_make_single_gradients_count_less() -> None:
    """After the mean: what is taken from a stale one is not given to the others."""
    gradients = [slot(4, random_gradient(1)), slot(12, random_gradient(2))]
    out = np.empty(ELEMENTS, np.float32)
    total, _ = combine(gradients, out, [1.0, 0.5])
    first, second = (g["gradient"].astype(np.float64) for g in gradients)
    assert total == 16
    np.testing.assert_allclose(out, 0.25 * first + 0.375 * second, rtol=1e-5, atol=1e-6)


def test_one_gradient_comes_out_as_it_is() -> None:
    values = random_gradient(1)
    out = np.empty(ELEMENTS, np.float32)
    combine([slot(17, values)], out)
    assert np.array_equal(out, values)


def test_a_gradient_of_no_samples_is_not_read() -> None:
    lost = slot(0, np.full(ELEMENTS, np.nan, np.float32))
    values = random_gradient(2)
    out = np.empty(ELEMENTS, np.float32)
    total, reduction = combine([lost, slot(8, values), lost], out)
    assert total == 8
    assert reduction.finite
    assert np.array_equal(out, values)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_the_first_that_is_not_finite_is_named(poison: float) -> None:
    gradients = [slot(4, random_gradient(i)) for i in range(4)]
    gradients[1]["gradient"][150] = gradients[3]["gradient"][0] = poison
    total, reduction = combine(gradients, np.empty(ELEMENTS, np.float32))
    assert (total, reduction.finite, reduction.bad_input, reduction.bad_index) == (16, False, 1, 150)


def test_the_inputs_are_left_alone() -> None:
    gradients = [slot(n, random_gradient(n)) for n in (3, 5)]
    before = [{name: array.copy() for name, array in g.items()} for g in gradients]
    combine(gradients, np.empty(ELEMENTS, np.float32))
    for gradient, copy in zip(gradients, before, strict=True):
        assert all(np.array_equal(gradient[name].view(np.uint8), copy[name].view(np.uint8)) for name in copy)
