"""Gradient slots: their layout, cleared slots, and the episodes in them."""

from __future__ import annotations

from typing import Any

import numpy as np
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
    gradient_layout,
    put_episodes,
)
from hive.gradients.blocks import HEADER

ELEMENTS = 200

Arrays = dict[str, NDArray[Any]]


def slot(episodes: int = 12, infos: int = 0) -> Arrays:
    """A cleared slot with garbage from its earlier use."""
    layout = gradient_layout(ELEMENTS, 3, 2, episodes, infos=infos)
    arrays = layout.views(np.full(layout.bytes, 0xFF, np.uint8))
    clear(arrays, version=0)
    return arrays


def test_a_layout_has_the_fields_that_the_module_draws() -> None:
    layout = gradient_layout(64, 5, 4, 30)
    assert {name: (dtype.name, shape) for name, (dtype, shape) in layout.fields.items()} == {
        "header": ("int64", (8,)),
        "moments": ("float64", (3,)),
        "norm": ("float64", (1,)),
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


def test_values_of_info_are_appended_like_the_episodes() -> None:
    arrays = slot(episodes=5, infos=2)
    episodes = [(np.float32([3.0, 1.0]), np.int32([7, 9])), (np.float32([-2.0]), np.int32([4]))]
    put_episodes(arrays, episodes, [np.float32([[1, 2], [3, 4]]), np.float32([[5, np.nan]])])
    assert np.array_equal(arrays["episode_infos"][:3], [[1, 2], [3, 4], [5, np.nan]], equal_nan=True)
    put_episodes(arrays, [], [])
    assert arrays["header"][EPISODES] == 0, "a gradient of no rollouts"


def test_every_step_may_end_an_episode() -> None:
    arrays = slot(episodes=12)
    put_episodes(arrays, [(np.arange(6, dtype=np.float32), np.ones(6, np.int32))] * 2)
    assert arrays["header"][EPISODES] == 12
    assert arrays["episode_returns"].tolist() == [0, 1, 2, 3, 4, 5] * 2
