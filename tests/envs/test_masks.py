"""Action masks from info and from a dictionary of observations: one form, and every fault named."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from hive.envs.recipe import Recipe
from hive.envs.spaces.masks import Masked, info_has_mask
from hive.envs.spaces.observation import observation_spec
from hive.envs.statistics import Watched
from hive.envs.vectors.checks import Checks
from hive.envs.vectors.python_vector import PythonVector
from hive.envs.vectors.rows import FinalObservations, StepRow
from hive.errors import EnvironmentFailed


class Doors(gymnasium.Env[Any, Any]):
    """Observes its step. `masks` are given one after another, in info or as a part of the observation."""

    def __init__(self, masks: list[Any], *, key: str = "", action_space: Any = None) -> None:
        self.masks, self.key, self.count = masks, key, 0
        self.action_space = action_space or spaces.Discrete(3)
        seen = spaces.Box(0, 99, (1,), np.float32)
        self.observation_space = spaces.Dict({"seen": seen, key: spaces.Box(0, 1, (3,), np.int8)}) if key else seen

    def given(self) -> tuple[Any, dict[str, Any]]:
        mask = self.masks[self.count]
        self.count += 1
        seen = np.array([self.count], np.float32)
        if self.key:
            return {"seen": seen, self.key: mask}, {}
        return seen, {} if mask is None else {"action_mask": mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.given()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, info = self.given()
        return observation, 0.0, self.count == len(self.masks), False, info


def stored(environment: Masked, observation: Any) -> tuple[list[float], list[int]]:
    spec = observation_spec("Doors", environment.observation_space)
    rows = np.zeros((1, *spec.shape), np.uint8)
    Checks("Doors", spec).observations([observation], rows)
    assert spec.mask is not None
    (part,) = spec.parts
    return part.view(rows)[0].tolist(), spec.mask.view(rows)[0].tolist()


@pytest.mark.parametrize("key", ["", "allowed"])
def test_both_sources_are_stored_alike(key: str) -> None:
    environment = Masked(Doors([np.array([1, 0, 1]), [False, True, False]], key=key), key or "info", "Doors")
    assert stored(environment, environment.reset()[0]) == ([1.0], [1, 0, 1])
    assert stored(environment, environment.step(0)[0]) == ([2.0], [0, 1, 0])


def test_no_mask_is_needed_when_no_action_follows() -> None:
    environment = Masked(Doors([np.ones(3), None]), "info", "Doors")
    environment.reset()
    observation, _, terminated, _, _ = environment.step(0)
    assert terminated
    assert stored(environment, observation)[1] == [1, 1, 1]


@pytest.mark.parametrize("key", ["", "allowed"])
@pytest.mark.parametrize("last", [None, [0, 0, 0], [0, 1, 0]])
def test_the_mask_of_a_last_observation_is_nobodys_unless_it_allows_something(key: str, last: Any) -> None:
    environment = Masked(Doors([np.ones(3, np.int8), last], key=key), key or "info", "Doors")
    spec = observation_spec("Doors", environment.observation_space)
    environment.reset()
    finals = FinalObservations(np.zeros((1, *spec.shape), spec.dtype))
    Checks("Doors", spec).final(0, environment.step(0)[0], finals)
    assert spec.mask is not None
    assert spec.mask.view(finals.observations)[0].tolist() == (last if last and any(last) else [1, 1, 1])


@pytest.mark.parametrize(
    ("key", "masks", "used", "what"),
    [
        ("action_mask", [np.ones(3)] * 2, "", "`action_mask` of the observations is read as numbers"),
        ("", [np.ones(3)] * 2, "", 'info\\["action_mask"\\] is not read'),
        ("action_mask", [np.ones(3)] * 2, "action_mask", ""),
        ("other", [np.ones(3)] * 2, "", ""),
        ("", [np.ones(5)] * 2, "", ""),
    ],
)
def test_a_mask_that_no_key_names_is_found(key: str, masks: list[Any], used: str, what: str) -> None:
    environment: Any = Doors(masks, key=key)
    vector = PythonVector("Doors", [Masked(environment, used, "Doors") if used else environment])
    watched = Watched(vector)
    vector.reset([1], np.zeros((1, *vector.observation.shape), vector.observation.dtype))
    found = watched.unused_mask
    assert (found is None) == (not what)
    assert found is None or re.match(what, found[0])


def test_the_mask_of_combinations_is_told_how_to_be_used() -> None:
    environment = Doors([np.ones((3, 2))] * 2, key="action_mask", action_space=spaces.MultiDiscrete([3, 2]))
    environment.observation_space["action_mask"] = spaces.MultiBinary((3, 2))  # type: ignore[index]
    found = Watched(PythonVector("Doors", [environment])).unused_mask
    assert found is not None
    assert "3 + 2 elements" in found[1]
    assert "has 6" in found[1]
    assert re.search('then set env.action_mask = "action_mask"$', found[1])


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        ([0, 0, 0], "returned an action mask that allows no action"),
        ([1, 1], r"returned an action mask of int64 \[2\], expected 3 zeros and ones"),
        ([0.0, -1e9, 0.0], r"returned an action mask with -1000000000.0 in it, expected 1 for allowed"),
        ("all", r"returned an action mask of <U3 \[\], expected 3 zeros and ones"),
        (None, 'returned an info without "action_mask", and env.action_mask is "info"'),
    ],
)
def test_bad_masks_are_named(mask: Any, text: str) -> None:
    environment = Masked(Doors([np.ones(3), mask, None]), "info", "Doors")
    environment.reset()
    with pytest.raises(EnvironmentFailed, match=text):
        stored(environment, environment.step(0)[0])


@pytest.mark.parametrize("method", ["reset", "step"])
def test_results_of_the_old_package_gym_are_named(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary of two parts is not taken for the pair of reset."""
    environment: Any = Doors([np.ones(3)] * 3, key="allowed")
    old = environment.given
    kept = 1 if method == "reset" else 4
    given = getattr(environment, method)
    monkeypatch.setattr(environment, method, lambda *a, **k: given(*a, **k)[:kept] if kept > 1 else old()[0])
    vector = PythonVector("Doors", [Masked(environment, "allowed", "Doors")])
    row = StepRow.allocate(vector.observation, 1)

    def play() -> None:
        vector.reset([1], row.observations)
        vector.step(np.zeros(1, np.int64), row)

    with pytest.raises(EnvironmentFailed, match=f"from {method}, expected") as caught:
        play()
    assert "old package gym" in caught.value.hint


def test_every_choice_needs_an_allowed_action() -> None:
    environment = Masked(Doors([[1, 0, 0, 0, 0]], action_space=spaces.MultiDiscrete([2, 3])), "info", "Doors")
    with pytest.raises(EnvironmentFailed, match="an action mask that allows no action at position 1"):
        stored(environment, environment.reset()[0])


@pytest.mark.parametrize(
    ("environment", "source", "text"),
    [
        (Doors([], action_space=spaces.Box(-1, 1, (3,))), "info", "`Doors` takes Box actions, and only discrete ones"),
        (Doors([]), "allowed", r"the observations of `Doors` have no `allowed` \(they have no dictionary\)"),
        (Doors([], key="mask"), "allowed", r"have no `allowed` \(they have `mask`, `seen`\)"),
        (Doors([], key="mask"), "seen", r"`seen` of `Doors` has the shape \(1,\), and there are 3 actions"),
    ],
)
def test_sources_that_cannot_be_are_refused(environment: Doors, source: str, text: str) -> None:
    with pytest.raises(EnvironmentFailed, match=text):
        Masked(environment, source, "Doors")


class Refuses(Doors):
    """Raises in its reset."""

    def reset(self, **options: Any) -> Any:
        raise ValueError("no")


@pytest.mark.parametrize(("mask", "expected"), [([1, 0, 1], True), ([1, 0], False), (None, False)])
def test_a_mask_in_info_is_found(monkeypatch: pytest.MonkeyPatch, mask: Any, expected: bool) -> None:
    monkeypatch.setattr("hive.envs.spaces.masks.make_any", lambda recipe: Doors([mask]))
    assert info_has_mask(Recipe("CartPole-v1")) is expected


def test_an_environment_that_cannot_be_reset_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hive.envs.spaces.masks.make_any", lambda recipe: Refuses([None]))
    assert not info_has_mask(Recipe("CartPole-v1"))
