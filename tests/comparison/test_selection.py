from __future__ import annotations

from typing import Any

import pytest

from hive.comparison.selection import _keys_text


@pytest.mark.parametrize(
    ("differences", "labels"),
    [
        (
            {"run.scheme": ["a2c", "ppo"], "run.steps": [10**6, 10**5], "run.stop_at_return": [475.0, None]},
            ["scheme=a2c", "scheme=ppo"],
        ),
        ({"a.x": [1, 1, 2], "a.y": [1, 2, 3]}, ["y=1", "y=2", "y=3"]),  # a later key suffices
        (
            {"a.x": [1, 1, 2, 2], "a.z": [5, 5, 6, 6], "a.y": [1, 2, 1, 2]},
            ["x=1, y=1", "x=1, y=2", "x=2, y=1", "x=2, y=2"],
        ),
        ({"a.on": [True, None]}, ["on=true", "on=–"]),
        ({}, ["", ""]),  # configs that cannot be read
    ],
)
def test_a_label_has_the_keys_that_tell_groups_apart(differences: dict[str, list[Any]], labels: list[str]) -> None:
    assert [_keys_text(differences, index) for index in range(len(labels))] == labels
