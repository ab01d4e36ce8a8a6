"""Transitions between arrays of the environment and rows of a memory, for every kind of space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from hive.envs import EnvironmentSpec
from hive.envs.spaces.actions import action_spec
from hive.envs.spaces.observation import observation_spec
from hive.errors import RecordError
from hive.policy.transitions import StoredTransitions, fields_of, stored_transitions

COUNT = 12
IMAGE = spaces.Box(0, 255, (6, 5, 3), np.uint8)
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "box": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "box of float64": spaces.Box(-1e3, 1e3, (2, 2), np.float64),
    "image": IMAGE,
    "discrete": spaces.Discrete(4, start=3),
    "discrete, numbered": spaces.Discrete(5000, start=-7),
    "multi-discrete": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "multi-binary": spaces.MultiBinary(4),
    "integers": spaces.Box(-5, 5, (2,), np.int16),
    "dictionary": spaces.Dict(
        {
            "camera": IMAGE,
            "arm": spaces.Dict({"joints": spaces.Box(-1, 1, (3,), np.float64), "mode": spaces.Discrete(3)}),
        }
    ),
    "tuple": spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Discrete(2))),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "discrete with start": spaces.Discrete(3, start=-1),
    "multi-discrete": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[1, 0], [5, 0]]),
    "multi-binary": spaces.MultiBinary((2, 2)),
    "box in hundreds": spaces.Box(100, 300, (2,), np.float64),
    "box of integers": spaces.Box(2, 5, (2,), np.int32),
    "dictionary": spaces.Dict({"move": spaces.Discrete(3, start=1), "force": spaces.Box(-2, 2, (2,))}),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([2, 3]))),
}


def flat(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for key, part in value.items() for k, v in flat(f"{name}.{key}", part).items()}
    if isinstance(value, tuple):
        return {k: v for key, part in enumerate(value) for k, v in flat(f"{name}.{key}", part).items()}
    return {name: value}


def drawn(name: str, space: spaces.Space[Any], seed: int) -> dict[str, Any]:
    space.seed(seed)
    rows = [flat(name, space.sample()) for _ in range(COUNT)]
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


def spec_of(observation: spaces.Space[Any], action: spaces.Space[Any]) -> EnvironmentSpec:
    return EnvironmentSpec("it", observation_spec("it", observation), action_spec("it", action))


def given(observation: spaces.Space[Any], action: spaces.Space[Any]) -> dict[str, Any]:
    return {
        **drawn("observations", observation, 1),
        **drawn("actions", action, 2),
        "rewards": np.arange(COUNT, dtype=np.float32),
        **drawn("next_observations", observation, 3),
        "terminated": (np.arange(COUNT) % 3 == 0).astype(np.uint8),
    }


def stored(fields: dict[str, Any], spec: EnvironmentSpec) -> StoredTransitions:
    found, left_out = stored_transitions(dict(fields), spec.observation, spec.action, "t.npz")
    assert not left_out
    return found


@pytest.mark.parametrize("observation", list(OBSERVATIONS))
def test_observations_come_back_as_they_were(observation: str) -> None:
    space = OBSERVATIONS[observation]
    fields, spec = given(space, spaces.Discrete(2)), spec_of(space, spaces.Discrete(2))
    transitions = stored(fields, spec)
    back = fields_of(transitions, spec.observation, spec.action)
    for name, array in fields.items():
        np.testing.assert_array_equal(back[name], array.astype(np.float32) if array.dtype.kind == "f" else array, name)
    again = stored({**back, "terminated": fields["terminated"]}, spec)
    for name, array in vars(transitions).items():
        np.testing.assert_array_equal(getattr(again, name), array, name)


@pytest.mark.parametrize("action", list(ACTIONS))
def test_actions_come_back_as_they_were(action: str) -> None:
    space = ACTIONS[action]
    fields, spec = given(OBSERVATIONS["box"], space), spec_of(OBSERVATIONS["box"], space)
    back = fields_of(stored(fields, spec), spec.observation, spec.action)
    for name in fields:
        if name.startswith("actions"):
            np.testing.assert_allclose(back[name], fields[name], rtol=1e-7, err_msg=name)
            assert back[name].shape == fields[name].shape


def numbered(**changes: Any) -> dict[str, Any]:
    """Rows of two environments in turn, whose observations are numbers that continue."""
    numbers = np.arange(8) // 2 + 100 * (np.arange(8) % 2)
    return {
        "observations": numbers[:, None].astype(np.float32),
        "next_observations": numbers[:, None].astype(np.float32) + 1,
        "actions": np.zeros(8, np.int64),
        "rewards": np.zeros(8, np.float32),
        "terminated": np.array([0, 0, 1, 0, 0, 0, 0, 0], np.uint8),
        "environments": np.arange(8) % 2,
        **changes,
    }


LINE = spec_of(spaces.Box(-np.inf, np.inf, (1,)), spaces.Discrete(2))


def test_every_sequence_ends_terminated_or_truncated() -> None:
    found = stored(numbered(), LINE)
    assert found.truncated.tolist() == [0, 0, 0, 0, 0, 0, 1, 1]  # the last of each environment
    jump = numbered()
    jump["observations"][5] = 7  # of the second environment, whose row before leads to another one
    assert stored(jump, LINE).truncated.tolist() == [0, 0, 0, 1, 0, 0, 1, 1]
    assert stored(numbered(episodes=np.array([0, 0, 0, 0, 1, 1, 1, 1])), LINE).truncated.tolist() == [0] * 3 + [
        1,
        0,
        0,
        1,
        1,
    ]
    both = numbered(truncated=np.array([0, 0, 1, 0, 0, 0, 0, 0], np.uint8))
    assert stored(both, LINE).truncated.tolist() == [0, 0, 0, 0, 0, 0, 1, 1]  # it terminated


def test_without_next_observations_they_are_those_of_the_next_rows() -> None:
    fields = numbered(truncated=np.array([0, 0, 0, 1, 0, 0, 0, 0], np.uint8))
    expected = stored(fields, LINE)
    del fields["next_observations"]
    found, left_out = stored_transitions(fields, LINE.observation, LINE.action, "t.npz")
    assert left_out == 3  # the truncated step and the last of each environment
    kept = np.array([0, 1, 2, 4, 5])
    live = found.terminated == 0
    np.testing.assert_array_equal(found.observations, expected.observations[kept])
    np.testing.assert_array_equal(found.next_observations[live], expected.next_observations[kept][live])
    assert found.truncated.tolist() == [0, 1, 0, 1, 1]


def test_all_faults_of_other_spaces_are_in_one_error() -> None:
    fields = given(OBSERVATIONS["box"], ACTIONS["box in hundreds"])
    fields["observations"][4, 1] = np.nan
    fields["next_observations"] = fields["next_observations"][:, :2]
    fields["actions"] = fields["actions"] / 100
    with pytest.raises(RecordError) as caught:
        stored(fields, spec_of(OBSERVATIONS["box"], ACTIONS["box in hundreds"]))
    text = str(caught.value)
    assert "`observations`: got nan in an observation" in text
    assert "`next_observations`: got observations of shape [12, 2], expected [3]" in text
    assert "in row 0 (100% of the rows have such), expected the environment's units, 100 to 300" in text


@pytest.mark.parametrize(
    ("observation", "action", "changes", "told"),
    [
        ("box", "discrete with start", {"actions": np.full(COUNT, 2)}, "expected whole numbers from -1 to 1"),
        ("box", "discrete", {"actions": np.full(COUNT, 0.5)}, "expected whole numbers from 0 to 2"),
        (
            "box",
            "multi-binary",
            {"actions": np.zeros((COUNT, 3))},
            "`actions` has the shape [12, 3], expected [N, *[2, 2]]",
        ),
        ("image", "discrete", {"observations": np.zeros((COUNT, 6, 5, 3)) + 0.5}, "whole numbers from 0 to 255"),
        ("box", "discrete", {"observations": np.zeros((COUNT, 4))}, "observations of shape [12, 4], expected [3]"),
        ("box", "box in hundreds", {"actions": np.full((COUNT, 2), np.inf)}, "`actions` has inf, expected finite"),
    ],
)
def test_other_values_are_refused(observation: str, action: str, changes: dict[str, Any], told: str) -> None:
    fields = given(OBSERVATIONS[observation], ACTIONS[action]) | changes
    with pytest.raises(RecordError) as caught:
        stored(fields, spec_of(OBSERVATIONS[observation], ACTIONS[action]))
    assert told in str(caught.value)


def test_other_parts_are_named() -> None:
    fields = given(OBSERVATIONS["dictionary"], ACTIONS["discrete"])
    fields["observations.image"] = fields.pop("observations.camera")
    with pytest.raises(RecordError, match=r"`observations.image` in the place of `observations.arm.joints`, .*camera`"):
        stored(fields, spec_of(OBSERVATIONS["dictionary"], ACTIONS["discrete"]))
