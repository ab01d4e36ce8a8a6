"""Action specs survive JSON, and specs of older checkpoints are read."""

from __future__ import annotations

import json
import math

import pytest

from hive.envs import ActionSpec, Box, Composite, Discrete, MultiBinary, MultiDiscrete
from hive.policy.descriptions import action_in, described_action

BOX = Box((1, 2), (-math.inf, 0.0), (0.1, math.inf), "float64")
GRID = MultiDiscrete((2, 3), (10, 20), (1, 2), "int16")
SPECS: list[ActionSpec] = [
    Discrete(4, 10, "int32"),
    MultiDiscrete((2, 3)),
    GRID,
    MultiDiscrete((2,), (), ()),
    MultiBinary((2, 2)),
    BOX,
    Composite((Composite((BOX, GRID), ("x", "y")), MultiBinary((3,)))),
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_spec_survives_json(spec: ActionSpec) -> None:
    again = action_in(json.loads(json.dumps(described_action(spec), allow_nan=False)))
    assert again == spec
    assert repr(again) == repr(spec)  # with the dtypes of the environment, which == ignores


def test_specs_of_older_checkpoints_are_read() -> None:
    assert action_in({"kind": "discrete", "n": 3, "start": 1}) == Discrete(3, 1)
    assert action_in({"kind": "multi-discrete", "nvec": [2, 3], "start": []}) == MultiDiscrete((2, 3))
    box = action_in({"kind": "box", "shape": [1], "low": ["-inf"], "high": [2]})
    assert box == Box((1,), (-math.inf,), (2.0,))
