"""Running means inside of environments are found by what they have, not by the name of their class."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from fake_environments import Counting
from gymnasium.wrappers import NormalizeObservation, NormalizeReward
from gymnasium.wrappers.vector import NormalizeObservation as VectorNormalizeObservation

from hive.envs.statistics import RunningStatistics, Watched


class Keeps(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds to the attribute `name` of `holder` in every step."""

    def __init__(self, environment: Any, holder: Any, name: str, place: str = "stats") -> None:
        super().__init__(environment)
        setattr(self, place, holder)
        self.kept = [holder or self, name]

    def step(self, action: Any) -> Any:
        holder, name = self.kept
        setattr(holder, name, getattr(holder, name) + np.float64(1.0))
        return super().step(action)


class Welford:
    """As the running statistics of OpenAI's and RLlib's filters."""

    def __init__(self) -> None:
        self._M, self._S, self._n = np.zeros(2), np.zeros(2), 0

    @property
    def mean(self) -> Any:
        return self._M

    @property
    def std(self) -> Any:
        return self._S


def changed(environment: Any) -> list[RunningStatistics]:
    watched = Watched(SimpleNamespace(environments=[environment]))
    environment.reset()
    environment.step(environment.action_space.sample())
    return watched.changed()


class OwnArrays(Keeps):
    def __init__(self, environment: Any) -> None:
        self.obs_mean, self.obs_var = np.zeros(2), np.ones(2)
        super().__init__(environment, None, "obs_mean")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (lambda: Counting(), []),
        (lambda: NormalizeObservation(Counting()), [("NormalizeObservation", "observations")]),
        (lambda: NormalizeReward(Counting()), [("NormalizeReward", "rewards")]),
        (lambda: Keeps(NormalizeReward(Counting()), None, "unused"), "rewards"),
        (lambda: Keeps(Counting(), Welford(), "_M"), [("Keeps", "")]),
        (lambda: Keeps(Counting(), Welford(), "_M", "obs_filter"), [("Keeps", "observations")]),
        (lambda: Keeps(Counting(), SimpleNamespace(mean=0.0, var=1.0, count=0), "mean", "ret_rms"), "rewards"),
        (lambda: Keeps(Counting(), SimpleNamespace(mean=0.0, var=1.0), "other"), []),
        (lambda: OwnArrays(Counting()), [("OwnArrays", "observations")]),
    ],
)
def test_what_is_found(environment: Any, expected: Any) -> None:
    built = environment()
    built.unused = built.other = 0.0
    for holder in vars(built).values():
        if isinstance(holder, SimpleNamespace):
            holder.other = 0.0
    found = changed(built)
    assert [one.of for one in found] == [expected] if isinstance(expected, str) else found == expected


def test_a_wrapper_that_has_stopped_to_update_is_not_named() -> None:
    environment = NormalizeObservation(Counting())
    environment.update_running_mean = False
    assert changed(environment) == []


def test_a_wrapper_around_a_vectorized_class() -> None:
    vector = VectorNormalizeObservation(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point"))
    assert changed(vector) == [("NormalizeObservation", "observations")]


def test_compiled_and_custom_vectors_have_none() -> None:
    assert Watched(object()).changed() == []
