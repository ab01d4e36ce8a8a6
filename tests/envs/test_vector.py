"""The kind of vector for an id, and equal rows of both kinds."""

from __future__ import annotations

import builtins
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from fake_environments import Counting

from hive.envs import Recipe, StepRow, describe, make_vector, refused, seed_globals
from hive.envs.vectors.compiled_vector import CompiledVector
from hive.envs.vectors.native_vector import NativeVector
from hive.envs.vectors.python_vector import PythonVector
from hive.errors import ConfigError, EnvironmentFailed, EnvironmentMissing
from hive.runtime.process.user_code import torch_state


@pytest.fixture
def _only_vectorized() -> Iterator[None]:
    gymnasium.register(
        "OnlyVectorised-v0", vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"
    )
    yield
    del gymnasium.registry["OnlyVectorised-v0"]


class Doubles(Counting):
    """Computes with torch, in float64."""

    def __init__(self) -> None:
        super().__init__()
        torch.set_default_dtype(torch.float64)

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float(torch.ones(1).element_size()), *rest


def test_settings_of_torch_hold_for_the_environments_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_state, "_environments", None)
    vector = make_vector("test_vector:Doubles", {}, 2)
    assert torch.get_default_dtype() == torch.float32
    row = StepRow.allocate(describe(Recipe("test_vector:Doubles")).observation, 2)
    vector.reset([1, 2], row.observations)
    vector.step(np.zeros(2, np.int64), row)
    assert row.rewards.tolist() == [8.0, 8.0]
    assert torch.get_default_dtype() == torch.float32
    vector.close()
    monkeypatch.setattr(torch_state, "_environments", None)
    assert type(make_vector("fake_environments:Counting", {}, 2)) is PythonVector


class Contest(Counting):
    """Draws its place when it is constructed, and raises an error of this class at a reset within its episode."""

    def __init__(self, error: str = "RuntimeError") -> None:
        super().__init__()
        self.error, self.place = getattr(builtins, error), random.random()

    def reset(self, **given: Any) -> Any:
        if self.at:
            raise self.error("not over")
        return super().reset(**given)


def begun_twice(error: str) -> tuple[Any, list[Any]]:
    """Two contests that are reset within their episodes; and at each reset their places, with the next global draw."""
    vector: Any = make_vector("test_vector:Contest", {"error": error}, 2)
    row, found = StepRow.allocate(vector.observation, 2), []
    with pytest.raises(EnvironmentFailed, match="OSError: not over") if error == "OSError" else nullcontext():
        for _ in range(2):
            seed_globals(7)
            vector.reset([1, 2], row.observations)
            found.append([*(one.place for one in vector.environments), random.random()])
            vector.step(np.zeros(2, np.int64), row)
    return vector, found


def test_an_environment_that_is_constructed_again_draws_as_at_first_and_takes_no_draw_of_resets() -> None:
    vector, (first, again) = begun_twice("RuntimeError")
    assert first == again
    assert "RuntimeError: not over" in refused(vector)


def test_an_error_of_a_reset_that_is_no_refusal_is_raised() -> None:
    vector, found = begun_twice("OSError")
    assert (len(found), refused(vector)) == (1, "")


@pytest.mark.usefixtures("_only_vectorized")
def test_kinds() -> None:
    assert isinstance(make_vector("CartPole-v1", {}, 3), CompiledVector)
    assert isinstance(make_vector("CartPole-v1", {}, 3, "python"), PythonVector)
    assert isinstance(make_vector("CartPole-v1", {}, 3, "native"), CompiledVector)
    assert isinstance(make_vector("OnlyVectorised-v0", {}, 3), NativeVector)
    assert isinstance(make_vector("fake_environments:Counting", {}, 3), PythonVector)
    assert make_vector("fake_environments:Counting", {"truncates": 3}, 5).count == 5
    with pytest.raises(ConfigError, match="`fake_environments:Counting` has no vectorized class"):
        make_vector("fake_environments:Counting", {}, 3, "native")
    with pytest.raises(EnvironmentMissing, match="no environment `CartPol-v1`"):
        make_vector("CartPol-v1", {}, 3)


@pytest.mark.usefixtures("_only_vectorized")
def test_both_kinds_write_the_same_cartpole() -> None:
    """Same rows; under random actions the same mean length of an episode, which is about 22."""
    lengths = {}
    for kind, id in (("python", "CartPole-v1"), ("native", "OnlyVectorised-v0")):
        spec = describe(Recipe(id, kind=kind))
        assert spec.observation == describe(Recipe("CartPole-v1")).observation
        vector = make_vector(id, {}, 16, kind)
        row = StepRow.allocate(spec.observation, 16)
        vector.reset(range(16), row.observations)
        assert (np.abs(row.observations) <= 0.05).all()
        rng = np.random.default_rng(1)
        seen: list[int] = []
        for _ in range(300):
            row.finals.count = 0
            vector.step(rng.integers(0, 2, 16), row)
            ended = row.terminated == 1
            seen += row.episode_lengths[ended].tolist()
            assert (row.episode_returns == row.episode_lengths).all()
            assert (row.rewards == row.valid).all()
            if kind == "python":
                assert (np.abs(row.observations[ended]) <= 0.05).all()
            else:
                assert (np.abs(row.observations[ended][:, [0, 2]]) > 0.2).any(axis=1).all()
        vector.close()
        lengths[kind] = float(np.mean(seen))
        assert len(seen) > 150
    assert abs(lengths["python"] - lengths["native"]) < 4.0
    assert 18.0 < lengths["python"] < 26.0


def test_gymnasium_is_imported_only_when_an_environment_is_built() -> None:
    program = "import sys, hive.envs; assert not {'gymnasium', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-P", "-c", program], check=True)


ONE = Counting()


class NoBase:
    """Has the interface alone."""

    observation_space, action_space = Counting.observation_space, Counting.action_space
    reset = step = lambda self, *given, **named: None


NO_BASE = NoBase()


class Emulator(Counting):
    """Can be constructed once."""

    alive = 0

    def __init__(self) -> None:
        super().__init__()
        if Emulator.alive:
            raise RuntimeError("an emulator exists")
        Emulator.alive += 1


def _as_module(monkeypatch: pytest.MonkeyPatch, **names: Any) -> None:
    monkeypatch.setitem(sys.modules, "made_here", type("Module", (), names))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ONE, "the same object for environments 0 and 1"),
        (lambda: gymnasium.Wrapper(ONE), "wrappers around the same object"),
        (lambda: NO_BASE, "wrappers around the same object"),
    ],
)
def test_one_object_for_two_environments_is_refused(monkeypatch: pytest.MonkeyPatch, make: Any, said: str) -> None:
    _as_module(monkeypatch, make=staticmethod(make))
    with pytest.raises(EnvironmentFailed, match=f"`made_here:make` returned {said}") as caught:
        make_vector("made_here:make", {}, 2)
    assert caught.value.permanent
    assert "new environment from each call" in caught.value.hint
    make_vector("made_here:make", {}, 1)


def test_the_way_out_of_what_a_process_can_construct_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _as_module(monkeypatch, Emulator=Emulator)
    with pytest.raises(EnvironmentFailed, match="an emulator exists") as caught:
        make_vector("made_here:Emulator", {}, 2)
    assert 'env.processes = "each"' in caught.value.hint
    with pytest.raises(EnvironmentFailed, match="an emulator exists") as caught:
        make_vector("made_here:Emulator", {}, 2)  # the first construction fails, too
    assert "env.processes" not in caught.value.hint
