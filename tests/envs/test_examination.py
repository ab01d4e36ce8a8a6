"""What an environment does that hive accepts but its author did not intend."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from fake_environments import Counting
from gymnasium import spaces

from hive.envs import examination
from hive.envs.examination import Examination, examine


class Says(Counting):
    """Always observes `said`."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, said: Any, **options: Any) -> None:
        super().__init__(**options)
        self.said = said

    def observation(self) -> Any:
        return self.said


def examined(monkeypatch: pytest.MonkeyPatch, environment: gymnasium.Env[Any, Any], steps: int = 10) -> Examination:
    monkeypatch.setattr(examination, "make_environment", lambda *given: environment)
    return examine("mine:Env", {}, steps=steps, limit_s=60.0)


GOOD = np.array([1.0, -1.0], np.float32)


def test_a_careful_environment_has_no_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Says(GOOD, terminates=4)
    done = examined(monkeypatch, environment)
    assert (done.steps, done.episodes, done.warnings("mine:Env")) == (10, 2, [])
    assert environment.closed


@pytest.mark.parametrize(
    ("said", "warning"),
    [
        (
            [0.0, 0.5],
            "observations are of type list, and are converted in every step; return np.array(..., np.float32)",
        ),
        ((0, 1), "observations are of type tuple, "),
        (
            GOOD.astype(np.float64),
            "observations are float64, not float32 as their space, and are converted in every step; "
            "return them with .astype(np.float32)",
        ),
        (GOOD.astype(np.int64), "observations are int64, not float32 "),
        (
            np.array([0.0, 1.5], np.float32),
            "observations are outside of their space: observation[1] was 1.5, expected -1 to 1; correct observation_s",
        ),
        (np.array([-2.0, 1.5], np.float32), "observations are outside of their space: observation[0] was -2, "),
    ],
)
def test_observations_that_were_not_intended(monkeypatch: pytest.MonkeyPatch, said: Any, warning: str) -> None:
    (found,) = examined(monkeypatch, Says(said, terminates=4)).warnings("mine:Env")
    assert found.startswith(f"`mine:Env`: 13 of 13 {warning}")


def test_rounding_to_the_dtype_of_the_space_is_not_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = examined(monkeypatch, Says(np.array([1.0 + 1e-12, 0.0]), terminates=4)).warnings("mine:Env")
    assert "float64" in found


def test_each_kind_is_one_warning_with_its_first_case(monkeypatch: pytest.MonkeyPatch) -> None:
    class Grows(Says):
        def observation(self) -> Any:
            return np.array([0.0, self.at], np.float32)

    (found,) = examined(monkeypatch, Grows(None, terminates=4)).warnings("mine:Env")
    assert found.startswith("`mine:Env`: 7 of 13 ")  # steps 2, 3, 4 of the first two episodes, and step 2 of the third
    assert "observation[1] was 2, " in found


@pytest.mark.parametrize(("truncates", "warned"), [(0, True), (10, False), (11, True)])
def test_an_environment_without_an_end(monkeypatch: pytest.MonkeyPatch, truncates: int, warned: bool) -> None:
    found = examined(monkeypatch, Says(GOOD, truncates=truncates)).warnings("mine:Env")
    assert any("no episode ended in 10 steps of random actions" in text for text in found) is warned


@pytest.mark.parametrize(("limit", "warned"), [(10, True), (11, False)])
def test_an_end_that_is_declared_need_not_be_seen(limit: int, warned: bool) -> None:
    assert bool(Examination(steps=10, declared_limit=limit).warnings("mine:Env")) is warned


def test_an_exception_is_part_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(Says):
        def step(self, action: Any) -> Any:
            if self.at == 3:
                raise RuntimeError("the wheels came off")
            return super().step(action)

    done = examined(monkeypatch, Breaks(GOOD))
    (found,) = done.warnings("mine:Env")
    assert done.steps == 3
    assert found.startswith("`mine:Env`: it raised RuntimeError: the wheels came off ")
    assert found.endswith(" after 3 steps of random actions")


def test_discrete_observations_have_nothing_to_warn_of(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts(Says):
        observation_space = spaces.Discrete(3)

    assert examined(monkeypatch, Counts(2, terminates=4)).warnings("mine:Env") == []


@pytest.mark.parametrize("wrong", [np.nan, -np.inf])
def test_numbers_that_are_not_finite(monkeypatch: pytest.MonkeyPatch, wrong: float) -> None:
    class Divides(Says):
        def step(self, action: Any) -> Any:
            observation, _, *ends = super().step(action)
            return observation, wrong if self.at == 2 else 1.0, *ends

    observed, rewarded = examined(monkeypatch, Divides(np.array([0, wrong], np.float32), terminates=4)).warnings("Mine")
    assert observed.startswith(f"`Mine`: 13 of 13 observations are not finite: observation[1] was {wrong}, ")
    assert rewarded.startswith(f"`Mine`: 3 of 10 rewards are not finite: the first was {wrong}, which ends a run")


def test_rewards_returns_lengths_and_times_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    done = examined(monkeypatch, Says(GOOD, terminates=4))
    assert done.rewards == [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0]
    assert (done.returns, done.lengths, done.resets) == ([10.0, 10.0], [4, 4], 3)
    assert done.step_s > 0 < done.reset_s


def test_the_time_is_limited() -> None:
    assert examine("CartPole-v1", {}, steps=10**9, limit_s=0.0).steps == 0


TWO = spaces.Dict({"door": spaces.Discrete(3), "seen": Says.observation_space})


@pytest.mark.parametrize(
    ("space", "said", "fault"),
    [
        (TWO, {"seen": GOOD}, "an observation without its part `door`"),
        (TWO, {"door": 1}, "an observation without its part `seen`"),
        (TWO, {"door": 7, "seen": GOOD}, "the observation part `door` 7, expected an integer from 0 to 2"),
        (Says.observation_space, GOOD[:1], "an observation of shape (1,), expected (2,)"),
    ],
)
def test_what_ends_a_run_is_reported(monkeypatch: pytest.MonkeyPatch, space: Any, said: Any, fault: str) -> None:
    environment = Says(said, terminates=4)
    environment.observation_space = space
    (warning,) = examined(monkeypatch, environment).warnings("mine:Env")
    assert warning == f"`mine:Env`: 13 of 13 observations end a run: the first was {fault}"
