"""Helpers of a collector: they change no byte, name what fails, and are gone when their collector is."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from fake_environments import Counting, Walk
from gymnasium import spaces
from numpy.typing import NDArray

from hive.envs import EnvContext, FinalObservations, HelpedVector, Helping, StepRow, VectorEnvironment
from hive.envs.processes.helped_vector import helped_vector
from hive.envs.spaces.actions import action_spec
from hive.envs.spaces.observation import observation_spec
from hive.envs.vectors.python_vector import PythonVector
from hive.errors import EnvironmentFailed
from hive.runtime.process.user_code.companion import Companion
from hive.runtime.process.user_code.throwaway import children

ENVS, STEPS = 7, 40
Make = Callable[[], gymnasium.Env[Any, Any]]


class Parts(Walk):
    """A dictionary, and a value of `info`; half of its episodes are truncated."""

    observation_space = spaces.Dict({"a": spaces.Box(-9, 9, (3,), np.float32), "b": spaces.Discrete(4)})
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def observation(self) -> Any:
        return {"a": self.np_random.normal(size=3).astype(np.float32).clip(-9, 9), "b": self.np_random.integers(4)}

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward + float(action.sum()), terminated, truncated, {"luck": self.np_random.random()}


class Draws(Counting):
    """Rewards a number of a global generator, from step `begin` on; `of` is the place where it draws."""

    def __init__(self, library: str = "numpy", of: str = "step", begin: int = 0) -> None:
        super().__init__(terminates=9)
        self.library, self.of, self.begin = library, of, begin
        if of == "init":
            self.draw()

    def draw(self) -> float:
        draws = {"numpy": np.random.random, "python": random.random, "torch": lambda: float(torch.rand(()))}
        return float(draws[self.library]())  # type: ignore[no-untyped-call]

    def reset(self, **options: Any) -> Any:
        if self.of == "reset":
            self.draw()
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, self.draw() if self.of == "step" and self.at > self.begin else reward, *rest


class Slow(Counting):
    """A step keeps a core busy for a millisecond."""

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + 1e-3
        while time.perf_counter() < end:
            pass
        return super().step(action)


class SlowDraws(Slow):
    """Rewards a number of a global generator, slowly."""

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, random.random(), *rest


class Adds(Counting):
    """Observes the sum of all numbers that it was given."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    total = other = 0

    def add(self, number: int) -> None:
        self.total += number

    def observation(self) -> Any:
        return np.full(1, self.total, np.float32)


class Fails(Counting):
    """Raises in the third step after a reset with the seed of environment 1."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.fails = seed == 101
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        if self.at == 2 and self.fails:
            raise ValueError("it fell over")
        return super().step(action)


class FailsLater(Counting):
    """Raises in its first step, with the seed 102 at once, with 101 after a word."""

    word = -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.seed = seed
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        if self.seed == 100:
            return super().step(action)
        if self.seed == 101:
            os.read(self.word, 1)
        raise ValueError(f"environment {self.seed} fell over")


class Refuses(Counting):
    """Refuses to be reset within its episode, but not in this process."""

    own = os.getpid()

    def reset(self, **given: Any) -> Any:
        if self.at and os.getpid() != self.own:
            raise RuntimeError("not over")
        return super().reset(**given)


class Forks(Fails):
    """Has forked a process, which outlives the error."""

    orphan = multiprocessing.Value("i", 0)

    def step(self, action: Any) -> Any:
        if self.at == 2 and self.fails and (pid := os.fork()) == 0:
            signal.pause()
        elif self.at == 2 and self.fails:
            self.orphan.value = pid
        return super().step(action)


class Taken(Slow):
    """Takes what the process that makes it has numbered, as a port: there is one of each."""

    taken = multiprocessing.Array("i", 8)
    made = 0

    def __init__(self) -> None:
        super().__init__()
        number, Taken.made = Taken.made, Taken.made + 1
        if self.taken[number]:
            raise OSError("address already in use")
        self.taken[number] = 1

    def close(self) -> None:
        Taken.made = 0
        self.taken[:] = [0] * len(self.taken)


class Torch(Slow):
    """Observes outputs of a network of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 2)

    def observation(self) -> Any:
        with torch.no_grad() if self.at == 0 else contextlib.nullcontext():  # a reset has gradients, a step has none
            return self.layer(torch.ones(1)).numpy()


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """Vectors that the test has made. No process may be left."""
    before, made = children(), list[Any]()
    yield made
    for vector in made:
        vector.close()
    assert children() == before


def vector_of(given: Helping, count: int) -> VectorEnvironment:
    return helped_vector(given, [EnvContext(number) for number in range(count)])


def helping(make: Make, helpers: int, info: tuple[str, ...] = (), chosen: bool = False) -> Helping:
    def vector(first: int, count: int) -> VectorEnvironment:
        return PythonVector("test", [make() for _ in range(count)], info, first, construct=lambda _: make())

    one = make()
    one.close()
    observation = observation_spec("test", one.observation_space)
    return Helping(
        lambda first, count, options, seeds: vector(first, count),
        lambda: None,
        helpers,
        chosen,
        observation,
        action_spec("test", one.action_space),
        len(info),
    )


def played(vector: VectorEnvironment, given: Helping, steps: int = STEPS) -> dict[str, NDArray[Any]]:
    """What `steps` steps write, by name, with the observations of the reset."""
    seeds, shape = list(range(100, 100 + vector.count)), (steps, vector.count)
    found: dict[str, NDArray[Any]] = {
        "observations": np.zeros((steps + 1, vector.count, *given.observation.shape), given.observation.dtype),
        "finals": np.zeros((steps * vector.count, *given.observation.shape), given.observation.dtype),
        "infos": np.zeros((*shape, given.infos), np.float32),
        **{name: np.zeros(shape, np.float32) for name in ("rewards", "episode_returns")},
        **{name: np.zeros(shape, np.uint8) for name in ("terminated", "truncated", "valid")},
        **{name: np.zeros(shape, np.int32) for name in ("episode_lengths", "final_index")},
    }
    finals = FinalObservations(found["finals"])
    vector.reset(seeds, found["observations"][0])
    generator = np.random.default_rng(3)
    for step in range(steps):
        shape = vector.count, *given.action.shape
        actions = generator.integers(2, size=shape) if given.action.dtype == "int64" else generator.normal(size=shape)
        columns = {name: array[step] for name, array in found.items() if name not in ("observations", "finals")}
        row = StepRow(observations=found["observations"][step + 1], finals=finals, **columns)
        vector.step(actions.astype(given.action.dtype), row)
    found["count"] = np.array(finals.count)
    return found


@pytest.mark.rotates
@pytest.mark.parametrize("helpers", [1, 2, 50])
def test_helpers_change_no_byte(opened: list[Any], helpers: int) -> None:
    alone, helped = (helping(lambda: Parts(truncates=5), number, ("luck",)) for number in (0, helpers))
    for given in (alone, helped):
        opened.append(vector_of(given, ENVS))
    assert [type(vector) for vector in opened] == [PythonVector, HelpedVector]
    expected, found = (played(vector, given) for vector, given in zip(opened, (alone, helped), strict=True))
    assert expected["count"] > 10, "episodes were truncated"
    assert np.isfinite(expected["infos"]).any()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, name)


def test_a_reset_that_a_helper_refuses_is_known(opened: list[Any]) -> None:
    given = helping(Refuses, 1)
    opened.append(vector := vector_of(given, 2))
    assert isinstance(vector, HelpedVector)
    for text in ("", "RuntimeError: not over"):
        played(vector, given, 3)
        assert vector.refused.startswith(text)
        assert bool(vector.refused) == bool(text)


def test_an_error_of_a_helper_is_that_of_the_environment(opened: list[Any]) -> None:
    errors = []
    for helpers in (0, 2):
        given = helping(Fails, helpers)
        opened.append(vector := vector_of(given, 3))
        with pytest.raises(EnvironmentFailed) as caught:
            played(vector, given)
        errors.append((str(caught.value), caught.value.permanent, caught.value.hint))
    assert errors[0] == errors[1]
    assert "raised ValueError: it fell over" in errors[0][0]
    assert "(env 1, step 3 of this collector)" in errors[0][0]


def test_of_two_errors_the_one_of_the_first_environment_is_raised(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    FailsLater.word, end = os.pipe()
    given = helping(FailsLater, 2)
    opened.append(vector := vector_of(given, 3))
    assert isinstance(vector, HelpedVector)
    second, looks = vector.helpers[1], list[bool]()

    def once_the_second_has_failed() -> None:
        looks.append(second._word.answered(0.0, False) is not None)
        if sum(looks) == 2:  # it was looked at meanwhile
            os.write(end, b"x")

    monkeypatch.setattr(vector, "_slice", once_the_second_has_failed)
    with pytest.raises(EnvironmentFailed, match="environment 101 fell over"):
        played(vector, given)
    for fd in (FailsLater.word, end):
        os.close(fd)


@pytest.mark.parametrize("helpers", [0, 1])
def test_a_step_before_the_first_reset_is_an_error(opened: list[Any], helpers: int) -> None:
    given = helping(lambda: gymnasium.wrappers.OrderEnforcing(Counting()), helpers)
    opened.append(vector := vector_of(given, 2))
    with pytest.raises((EnvironmentFailed, RuntimeError), match="before"):
        vector.step(np.zeros(2, np.int64), StepRow.allocate(given.observation, 2))


def test_a_helper_that_is_killed_is_an_error_that_names_it(opened: list[Any]) -> None:
    given = helping(Walk, 2)
    opened.append(vector := vector_of(given, 3))
    assert isinstance(vector, HelpedVector)
    played(vector, given)
    os.kill(vector.helpers[1].pids()[0], signal.SIGKILL)
    with pytest.raises(EnvironmentFailed, match=r"helper of environments 2 to 2 .* killed by SIGKILL"):
        played(vector, given)


class Crashes(Counting):
    """Reads address 0 in step 3, in a helper."""

    def step(self, action: Any) -> Any:
        if self.at == 2 and os.getpid() != TESTS:
            ctypes.string_at(0)  # the line that the error names
        return super().step(action)


TESTS = os.getpid()


def test_a_helper_that_crashes_is_an_error_that_names_the_line(opened: list[Any]) -> None:
    given = helping(Crashes, 1)
    opened.append(vector := vector_of(given, 2))
    lines = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "ctypes.string_at(0)  #" in text)
    with pytest.raises(EnvironmentFailed, match=rf"killed by SIGSEGV \(\S*test_helped_vector.py:{line}\)"):
        played(vector, given)


@pytest.mark.rotates
@pytest.mark.parametrize("of", ["init", "reset", "step"])
@pytest.mark.parametrize("library", ["numpy", "python", "torch"])
def test_draws_from_global_generators_are_seen(opened: list[Any], library: str, of: str) -> None:
    given = helping(lambda: Draws(library, of), 1)
    opened.append(vector := vector_of(given, 2))
    assert isinstance(vector, HelpedVector)
    assert vector.drew == (of == "init")
    played(vector, given, 4)
    assert vector.look() == (of == "step")
    assert vector.drew
    assert not vector.look(), "not again, unless it draws again"


def test_an_environment_that_draws_from_its_own_generator_has_not_drawn(opened: list[Any]) -> None:
    given = helping(Walk, 1)
    opened.append(vector := vector_of(given, 2))
    assert isinstance(vector, HelpedVector)
    played(vector, given)
    assert not vector.look()
    assert not vector.drew


def test_hive_chooses_helpers_only_for_environments_that_are_slow(opened: list[Any]) -> None:
    for make in (Walk, Slow):
        opened.append(vector_of(helping(make, 1, chosen=True), 2))
    assert [type(vector) for vector in opened] == [PythonVector, HelpedVector]


def test_a_vector_that_leaves_its_helpers_has_all_environments_itself(opened: list[Any]) -> None:
    given = helping(lambda: Parts(truncates=5), 2, ("luck",))
    opened.append(vector := vector_of(given, ENVS))
    assert isinstance(vector, HelpedVector)
    before = played(vector, given)
    opened.append(alone := vector.leave_helpers())
    assert isinstance(alone, PythonVector)
    assert len(alone.environments) == ENVS
    after = played(alone, given)
    assert all(np.array_equal(before[name], after[name], equal_nan=True) for name in before)


def test_hive_chooses_no_helpers_for_environments_that_draw_while_they_are_measured(opened: list[Any]) -> None:
    opened.append(vector := vector_of(helping(SlowDraws, 1, chosen=True), 2))
    assert isinstance(vector, PythonVector)


def test_hive_does_without_helpers_that_cannot_be_started(opened: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", fork)
    opened.append(vector := vector_of(helping(Slow, 1, chosen=True), 2))
    assert isinstance(vector, PythonVector)
    with pytest.raises(EnvironmentFailed, match="environments 1 to 1 cannot be started: Resource temporarily"):
        vector_of(helping(Slow, 1), 2)


def test_an_error_without_helpers_comes_once(opened: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    given, made = helping(Walk, 1, chosen=True), list[int]()

    def make(first: int, count: int, options: Any, seeds: Any) -> VectorEnvironment:
        made.append(count)
        raise ValueError("no display")

    monkeypatch.setattr(HelpedVector, "is_worth_it", lambda self, options: False)
    with pytest.raises(ValueError, match="no display"):
        vector_of(dataclasses.replace(given, make=make), 2)
    assert made == [2]


def test_every_environment_is_given_a_value_once(opened: list[Any]) -> None:
    given = helping(lambda: Adds(terminates=3), 1)
    opened.append(vector := vector_of(given, 2))
    assert isinstance(vector, HelpedVector)
    for values in ({"add": 1}, {"other": 2}, {"add": 4}):
        vector.set_attributes(values)
        seen = played(vector, given, 8)["observations"][-1]
    assert seen.ravel().tolist() == [5.0, 5.0]


def test_a_helper_that_is_busy_is_not_waited_for(opened: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    opened.append(vector := vector_of(helping(Walk, 2), 3))
    assert isinstance(vector, HelpedVector)
    busy, waits, exited = vector.helpers[0], list[float](), Companion.exited

    def waited(companion: Companion, limit_s: float = 0.0) -> str:
        if companion is busy._process:
            waits.append(limit_s)
        return exited(companion, min(limit_s, 0.1))

    monkeypatch.setattr(Companion, "exited", waited)
    busy.is_busy = True  # as after an order without an answer
    busy._word = BusyWord()  # type: ignore[assignment]
    vector.close()
    assert max(waits) <= 1.0, "it is killed at once"


class BusyWord:
    def answered(self, limit_s: float, spins: bool) -> None:
        """Never."""


def test_an_error_comes_though_a_process_of_the_environment_lives_on(opened: list[Any]) -> None:
    given = helping(Forks, 2)
    opened.append(vector := vector_of(given, 3))
    assert isinstance(vector, HelpedVector)
    with pytest.raises(EnvironmentFailed, match="it fell over"):
        played(vector, given)
    os.kill(Forks.orphan.value, signal.SIGKILL)


def test_what_only_one_process_can_have_is_made_in_one_if_hive_chose_helpers(opened: list[Any]) -> None:
    opened.append(vector := vector_of(helping(Taken, 1, chosen=True), 2))
    assert isinstance(vector, PythonVector)
    opened.append(vector_of(helping(Slow, 1, chosen=True), 2))
    assert isinstance(opened[1], HelpedVector)


def test_steps_of_helpers_record_no_gradients_as_those_of_a_collector(opened: list[Any]) -> None:
    given = helping(Torch, 1)
    opened.append(vector := vector_of(given, 2))
    with torch.inference_mode():
        played(vector, given, 5)


def test_helpers_stay_when_environments_are_made_anew(opened: list[Any]) -> None:
    given = helping(Walk, 2)
    opened.append(vector := vector_of(given, 3))
    assert isinstance(vector, HelpedVector)
    before, pids = played(vector, given), [helper.pids() for helper in vector.helpers]
    vector.make_environments([EnvContext(number) for number in range(3)])
    after = played(vector, given)
    assert [helper.pids() for helper in vector.helpers] == pids
    assert all(np.array_equal(before[name], after[name], equal_nan=True) for name in before)
