"""What an environment does that hive accepts but its author did not intend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from fake_environments import Counting
from gymnasium import spaces
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

from hive.envs import Recipe, examination
from hive.envs.examination import Examination, examine
from hive.envs.vectors import vector
from hive.envs.vectors.python_vector import PythonVector
from hive.envs.vectors.rows import StepRow
from hive.errors import EnvironmentFailed


class Says(Counting):
    """Always observes `said`."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, said: Any, **options: Any) -> None:
        super().__init__(**options)
        self.said = said

    def observation(self) -> Any:
        return self.said


def examined(
    monkeypatch: pytest.MonkeyPatch, environment: gymnasium.Env[Any, Any], steps: int = 10, **options: Any
) -> Examination:
    monkeypatch.setattr(vector, "make_environment", lambda *given: environment)
    monkeypatch.setattr(vector, "takes_native", lambda *given, **options: False)
    monkeypatch.setattr(examination, "limit_advice", lambda *given: "limit them")
    return examine(Recipe("mine:Env"), steps=steps, limit_s=60.0, **options)


def told(done: Examination) -> list[str]:
    """Return the warnings, without their names, and the notes."""
    warnings = [f"{one.text}; {one.advice}".removesuffix("; ") for one in done.warnings("mine:Env")]
    return [*warnings, *done.notes("mine:Env")]


GOOD = np.array([1.0, -1.0], np.float32)


def test_a_careful_environment_has_no_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Says(GOOD, terminates=4)
    done = examined(monkeypatch, environment)
    assert (done.steps, done.episodes, told(done)) == (10, 2, [])
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
        (np.array([0.0, 1.00001], np.float32), "observations are outside of their space: observation[1] was 1.00001"),
    ],
)
def test_observations_that_were_not_intended(monkeypatch: pytest.MonkeyPatch, said: Any, warning: str) -> None:
    (found,) = told(examined(monkeypatch, Says(said, terminates=4)))
    assert found.startswith(f"`mine:Env`: 13 of 13 {warning}")


def test_rounding_is_not_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = told(examined(monkeypatch, Says(np.array([1.0 + 1e-12, 0.0]), terminates=4)))
    assert "float64" in found
    assert told(examined(monkeypatch, Says(np.array([-1.0000001, 1.0000002], np.float32), terminates=4))) == []


def test_each_kind_is_one_warning_with_its_first_case(monkeypatch: pytest.MonkeyPatch) -> None:
    class Grows(Says):
        def observation(self) -> Any:
            return np.array([0.0, self.at], np.float32)

    (found,) = told(examined(monkeypatch, Grows(None, terminates=4)))
    assert found.startswith("`mine:Env`: 7 of 13 ")  # steps 2, 3, 4 of the first two episodes, and step 2 of the third
    assert "observation[1] was 2, " in found


@pytest.mark.parametrize(("truncates", "steps", "warned"), [(0, 100, True), (10, 10, False), (99, 99, False)])
def test_an_environment_without_an_end(
    monkeypatch: pytest.MonkeyPatch, truncates: int, steps: int, warned: bool
) -> None:
    """An end is awaited for ten times the steps, because episodes of thousands of steps are usual."""
    done = examined(monkeypatch, Says(GOOD, truncates=truncates))
    assert done.steps == steps
    assert any("no episode ended in 100 steps of" in text for text in told(done)) is warned


def test_an_end_that_there_was_no_time_for_is_said_to_be_unknown() -> None:
    (text,) = told(Examination(steps=3, hurried=True, limit_advice="limit them"))
    assert "in 3 steps of random actions, all that there was time for; if none ever does, " in text


@pytest.mark.parametrize(("limit", "warned"), [(10, True), (11, False)])
def test_an_end_that_is_declared_need_not_be_seen(limit: int, warned: bool) -> None:
    assert bool(told(Examination(steps=10, declared_limit=limit))) is warned


def test_an_exception_is_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(Says):
        def step(self, action: Any) -> Any:
            if self.at == 3:
                raise RuntimeError("the wheels came off")
            return super().step(action)

    done = examined(monkeypatch, Breaks(GOOD))
    assert told(done) == []
    assert done.steps == 3
    assert str(done.failure).startswith("mine:Env raised RuntimeError: the wheels came off ")
    assert str(done.failure).endswith(" in step (env 0, step 4 of this collector)")


def test_discrete_observations_have_nothing_to_warn_of(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts(Says):
        observation_space = spaces.Discrete(3)

    assert told(examined(monkeypatch, Counts(2, terminates=4))) == []


def test_rewards_returns_lengths_and_times_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    done = examined(monkeypatch, Says(GOOD, terminates=4))
    assert done.rewards == [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0]
    assert (done.returns, done.lengths, done.resets) == ([10.0, 10.0], [4, 4], 3)
    assert done.step_s > 0 < done.reset_s


def test_the_time_is_limited() -> None:
    assert examine(Recipe("CartPole-v1"), steps=10**9, limit_s=0.0).steps == 1, "the first step is outside of the limit"


def test_two_environments_are_not_looked_at_where_one_takes_longer_to_construct(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0

    def slow(*given: Any) -> Any:
        nonlocal now
        now += 2.0
        return Says(GOOD, terminates=4)

    monkeypatch.setattr(examination.time, "perf_counter", lambda: now)
    monkeypatch.setattr(vector, "make_environment", slow)
    monkeypatch.setattr(vector, "takes_native", lambda *given: False)
    monkeypatch.setattr(examination, "limit_advice", lambda *given: "")
    assert examine(Recipe("mine:Env"), 10, 60.0, look_s=1.0).looked is None


def test_the_first_reset_and_step_are_outside_of_means_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of each compiles, as with JAX and numba."""
    now = 0.0

    class Compiles(Says):
        compiled = False

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            nonlocal now
            now += 1.0 if self.compiled else 40.0
            return super().reset(seed=seed, options=options)

        def step(self, action: Any) -> Any:
            nonlocal now
            now += 0.25 if self.compiled else 30.0
            self.compiled = True
            return super().step(action)

    monkeypatch.setattr(examination.time, "perf_counter", lambda: now)
    calls: list[str] = []
    done = examined(monkeypatch, Compiles(GOOD, terminates=4), begin=calls.append)
    assert (done.first_reset_s, done.mean_reset_s, done.first_step_s, done.mean_step_s) == (40.0, 1.0, 30.0, 0.25)
    assert done.first_calls() == "the first reset took 40.0 s and the first step took 30.0 s"
    assert calls == ["construction", "reset", *["step"] * 10, "close"]
    assert examined(monkeypatch, Says(GOOD, terminates=4)).first_calls() == ""


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
def test_what_ends_a_run_is_the_failure(monkeypatch: pytest.MonkeyPatch, space: Any, said: Any, fault: str) -> None:
    environment = Says(said, terminates=4)
    environment.observation_space = space
    done = examined(monkeypatch, environment)
    assert str(done.failure) == f"mine:Env returned {fault} (env 0, step 0 of this collector)"
    assert environment.closed


class Odd(Says):
    """Returns `result` from its second step."""

    def __init__(self, result: Any) -> None:
        super().__init__(GOOD)
        self.result = result

    def step(self, action: Any) -> Any:
        usual = super().step(action)
        return self.result if self.at == 2 else usual


NO_REWARD = [None, "1", np.array([1.0]), np.nan, -np.inf, 1j, [1.0], {}, Exception("no number")]
ODD_RESULTS = [
    *[(GOOD, reward, False, False, {}) for reward in NO_REWARD],
    *[(said, 1.0, False, False, {}) for said in (None, "x", GOOD[:1], np.array([0, np.nan]), {"a": GOOD}, [GOOD, 1])],
    (GOOD, 1.0, False, {}),
    (GOOD, 1.0, False, False),
    (GOOD,),
    None,
    (GOOD, 1.0, np.array([True, False]), False, {}),
    (None, 1.0, True, False, {}),  # no run reads the last observation of a terminated episode
    (None, 1.0, False, True, {}),
    (GOOD, np.float64(1.0), np.True_, 0, None),
    (GOOD, True, 1, None, {}),
    [GOOD, 1.0, False, False, {}],
]


@pytest.mark.parametrize("result", ODD_RESULTS, ids=repr)
def test_an_examination_fails_where_a_collector_fails(monkeypatch: pytest.MonkeyPatch, result: Any) -> None:
    failure = examined(monkeypatch, Odd(result)).failure
    vector = PythonVector("mine:Env", [Odd(result), Says(GOOD)])
    rows = StepRow.allocate(vector.observation, 2)

    def collect() -> str:
        vector.reset([0, 1], rows.observations)
        try:
            for _ in range(3):
                rows.finals.count = 0
                vector.step(np.zeros(2, np.int64), rows)
        except EnvironmentFailed as error:
            return str(error)
        return ""

    assert collect() == str(failure or "")


@pytest.mark.parametrize(
    ("result", "text", "hint"),
    [
        ((GOOD, np.array([1.0]), False, False, {}), "the reward array([1.]), expected a finite num", "float(reward)"),
        ((GOOD, np.zeros(3), False, False, {}), "the reward array([0., 0., 0.]), expected a finite", "into one number"),
        (
            (GOOD, 1.0, False, {}),
            "4 values from step, expected (observation, reward, terminated, tru",
            "the old package",
        ),
        ((GOOD, np.nan, False, False, {}), "the reward nan, expected a finite number", "division by zero"),
    ],
)
def test_the_way_out_of_what_environments_often_do(
    monkeypatch: pytest.MonkeyPatch, result: Any, text: str, hint: str
) -> None:
    failure = examined(monkeypatch, Odd(result)).failure
    assert failure is not None
    assert f"mine:Env returned {text}" in str(failure)
    assert hint in failure.hint


def test_a_reset_without_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(Says):
        def reset(self) -> Any:  # type: ignore[override]
            return GOOD

    failure = examined(monkeypatch, Old(GOOD)).failure
    assert failure is not None
    assert "unexpected keyword argument 'seed'" in str(failure)
    assert "def reset(self, *, seed=None, options=None)" in failure.hint


def test_an_environment_that_cannot_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stays(Says):
        def close(self) -> None:
            raise AttributeError("viewer")

    done = examined(monkeypatch, Stays(GOOD, terminates=4))
    assert done.failure is None
    (warning,) = told(done)
    assert warning.startswith("`mine:Env`: its close raised AttributeError: viewer ")
    PythonVector("mine:Env", [Stays(GOOD)]).close()  # a run goes on


def test_actions_are_independent_of_the_environments_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Guess(Says):
        action_space = spaces.Discrete(9)

        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(action)
            own = (self.np_random.integers(9), self.action_space.sample())  # drawn as Gymnasium seeds both
            return observation, float(action in own), *rest

    done = examined(monkeypatch, Guess(GOOD), steps=900)
    assert np.mean(done.rewards) == pytest.approx(1 - (8 / 9) ** 2, abs=0.04)


def test_a_vectorized_class_is_examined_too(monkeypatch: pytest.MonkeyPatch) -> None:
    done = examine(Recipe("CartPole-v1", kind="native"), steps=100, limit_s=60.0)
    assert (done.steps, done.failure, done.declared_limit) == (100, None, 500)
    assert done.episodes > 2


@pytest.mark.parametrize(
    ("wrapper", "of", "key"),
    [
        (NormalizeObservation, "observations", "network.normalize_observations = true"),
        (NormalizeReward, "rewards", "network.normalize_rewards = true"),
    ],
)
def test_running_statistics_are_named_with_their_key(
    monkeypatch: pytest.MonkeyPatch, wrapper: Any, of: str, key: str
) -> None:
    done = examined(monkeypatch, wrapper(Says(GOOD, terminates=4)))
    texts = [text for text in told(done) if "running mean" in text]
    assert texts[0].startswith(f"`mine:Env`: `{wrapper.__name__}` keeps a running mean of {of} in each environment")
    assert texts[0].endswith(f"; leave it out and set {key}")


@pytest.mark.parametrize(("every", "limit", "warned"), [(896, 1_000, True), (896, 896, False), (0, 1_000, False)])
def test_episodes_that_checkpoints_cut_are_found(every: int, limit: int, warned: bool) -> None:
    found = told(Examination(steps=10, episodes=1, lengths=[700], declared_limit=limit, begun_anew=every))
    assert len(found) == warned
    if found:
        assert "here after 896 steps of each; make it 12 times as large" in found[0]


class Walk(gymnasium.Env[Any, Any]):
    """A walk that `end` ends: called with its place and its time, it returns terminated, truncated.

    shows: what its observations add to the place, of the time.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, end: Callable[[Walk], tuple[bool, bool]], shows: Callable[[int], float]) -> None:
        self.end, self.shows = end, shows

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time, self.data = 0, 0, int(self.np_random.integers(10, 40))
        return self.seen(), {}

    def seen(self) -> Any:
        return np.array([self.place, self.shows(self.time)], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place, self.time = self.place + (1 if action else -1), self.time + 1
        return self.seen(), 1.0, *self.end(self), {}


@pytest.mark.parametrize(
    ("end", "shows", "warned"),
    [
        (lambda one: (False, abs(one.place) >= 4), None, "failures truncated"),
        (lambda one: (False, abs(one.place) >= 4 or one.time == 50), None, "failures truncated"),
        (lambda one: (abs(one.place) >= 4, one.time == 50), None, ""),
        (lambda one: (False, one.time == 50), None, ""),
        (lambda one: (False, one.time == one.data), None, ""),  # where its data end, whatever it does
        (lambda one: (one.time == 50, False), None, "limit terminated"),
        (lambda one: (one.time == 50, one.time == 50), None, "limit terminated"),
        (lambda one: (one.time == 50, False), lambda time: 50.0 - time, ""),  # the task tells how many moves are left
        (lambda one: (one.time == 50, False), lambda time: np.sin(time), ""),
        (lambda one: (one.time == 5, False), None, ""),
        (lambda one: (abs(one.place) >= 4, False), None, ""),
    ],
)
def test_a_flag_that_ends_all_episodes_is_compared_with_other_actions(
    monkeypatch: pytest.MonkeyPatch, end: Any, shows: Any, warned: str
) -> None:
    walk = Walk(end, shows or (lambda time: 0.0))
    done = examined(monkeypatch, walk, steps=400)
    assert [one.kind for one in done.warnings("mine:Env")] == ([warned] if warned else [])
    flags = {"terminated": "limit" in warned, "truncated": "failures" in warned}
    assert all(word in done.ends for word, is_there in flags.items() if is_there)
