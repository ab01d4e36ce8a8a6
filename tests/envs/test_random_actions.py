"""Random actions are elements of their space, allowed by the mask, and drawn from a generator of hive's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from hive.envs.random_actions import RandomActions
from hive.envs.spaces.actions import action_converter, action_spec, each_action
from hive.envs.spaces.observation import MaskPart


def drawn(space: Any, mask: MaskPart | None = None, observations: Any = None, count: int = 200) -> list[Any]:
    spec = action_spec("Any-v0", space)
    seen = np.zeros((count, 1)) if observations is None else np.repeat(observations, count, 0)
    stored = RandomActions(spec, mask, seed=3)(seen)
    assert (stored.shape, stored.dtype) == ((count, *spec.shape), spec.dtype)
    return [*each_action(action_converter(spec)(stored))]


HALF = spaces.Box(np.array([-np.inf, 2, -np.inf, 0], np.float32), np.array([np.inf, np.inf, -1, 1], np.float32))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=5),
        spaces.MultiDiscrete([[2, 3], [4, 1]]),
        spaces.MultiBinary((2, 2)),
        spaces.Box(-2, 3, (2, 1), np.int8),
        spaces.Box(0.0, 1000.0, (3,), np.float64),
        HALF,
        spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple((HALF, spaces.MultiBinary(1)))),
    ],
    ids=repr,
)
def test_actions_are_elements_of_the_space(space: Any) -> None:
    actions = drawn(space)
    assert all(space.contains(action) for action in actions)
    assert len({repr(action) for action in actions}) > 1


def test_a_mask_forbids_actions() -> None:
    mask = MaskPart(("mask",), (2, 3), 0)
    allowed = np.array([[0, 1, 1, 0, 1]], np.uint8)
    actions = drawn(spaces.MultiDiscrete([2, 3]), mask, allowed)
    assert {tuple(action.tolist()) for action in actions} == {(1, 0), (1, 2)}
