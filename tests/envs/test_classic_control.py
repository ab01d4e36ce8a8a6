"""The compiled forms of Gymnasium's classic control have the bits of Gymnasium's own classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from hive import _native
from hive.envs import StepRow, describe, make_vector
from hive.envs.make import takes_native
from hive.envs.recipe import Recipe
from hive.envs.vectors import compiled
from hive.envs.vectors.compiled import bit_equal, classic_control
from hive.envs.vectors.compiled_vector import CompiledVector
from hive.envs.vectors.python_vector import PythonVector
from hive.errors import ConfigError, EnvironmentFailed

IDS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")
FIELDS = [name for name in StepRow.__slots__ if name not in ("finals", "infos")]
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("CartPole-v1", {"sutton_barto_reward": True, "max_episode_steps": 30}),
    ("MountainCar-v0", {"goal_velocity": 0.02}),
    ("MountainCarContinuous-v0", {"goal_velocity": 0.03}),
    ("Pendulum-v1", {"g": 9.81}),
]


def acted(id: str, seen: NDArray[np.float32], rng: np.random.Generator) -> NDArray[Any]:
    """Actions [B, ...]: random in even environments, also beyond the bounds of a box; towards the goal in odd ones."""
    odd = np.arange(len(seen)) % 2 == 1
    if id.startswith("CartPole"):
        return np.where(odd, seen[:, 2] + seen[:, 3] > 0, rng.integers(0, 2, len(seen))).astype(np.int64)
    if id in ("MountainCar-v0", "Acrobot-v1"):
        speed = seen[:, 1] if id == "MountainCar-v0" else -seen[:, 4]
        return np.where(odd, np.where(speed < 0, 0, 2), rng.integers(0, 3, len(seen))).astype(np.int64)
    pushed = np.where(odd, np.sign(seen[:, 1]) * rng.random(len(seen)), rng.normal(size=len(seen)) * 2)
    return pushed.astype(np.float32).reshape(-1, 1)


def compare(id: str, options: Mapping[str, Any], envs: int, steps: int) -> tuple[int, int]:
    """Step both vectors and compare every byte of every row; return how many episodes terminated and were truncated."""
    spec = describe(Recipe(id, options))
    python, native = make_vector(id, options, envs, "python"), make_vector(id, options, envs, "native")
    assert (type(python), type(native)) == (PythonVector, CompiledVector)
    mine, its = (StepRow.allocate(spec.observation, envs) for _ in range(2))
    rng = np.random.default_rng(4)
    ended = np.zeros(2, np.int64)
    for t in range(steps):
        if t % (steps // 2 + 1) == 0:  # from the start, and in the middle of episodes
            seeds = [0, 1, 2**32, 2**63 + 9, *rng.integers(0, 2**63, envs).tolist()][:envs]
            python.reset(seeds, mine.observations)
            native.reset(seeds, its.observations)
            assert mine.observations.tobytes() == its.observations.tobytes()
        actions = acted(id, mine.observations, rng)
        mine.finals.count = its.finals.count = 0
        python.step(actions, mine)
        native.step(actions, its)
        for name in FIELDS:
            assert getattr(mine, name).tobytes() == getattr(its, name).tobytes(), f"{name} in step {t}"
        count = mine.finals.count
        assert count == its.finals.count
        assert mine.finals.observations[:count].tobytes() == its.finals.observations[:count].tobytes()
        ended += [np.count_nonzero(mine.terminated), np.count_nonzero(mine.truncated)]
    return int(ended[0]), int(ended[1])


@pytest.mark.parametrize("id", IDS)
def test_rows_have_the_bytes_of_gymnasium(id: str) -> None:
    terminated, truncated = compare(id, {"max_episode_steps": 140}, 4, 300)
    assert truncated
    assert terminated or id in ("Acrobot-v1", "Pendulum-v1")


@pytest.mark.parametrize(("id", "options"), OPTIONS, ids=[id for id, _ in OPTIONS])
def test_options_have_the_effect_of_gymnasium(id: str, options: dict[str, Any]) -> None:
    compare(id, options, 4, 200)


@pytest.mark.full(reason="a million steps of Gymnasium take a minute", rotates=True)
@pytest.mark.parametrize("id", IDS)
def test_a_million_steps_have_the_bytes_of_gymnasium(id: str) -> None:
    terminated, truncated = compare(id, {}, 64, 15_700)
    assert truncated > 100
    assert terminated > 100 or id == "Pendulum-v1"


@pytest.mark.full(reason="ten million angles")
def test_sines_are_those_of_numpy_and_python() -> None:
    rng = np.random.default_rng(6)
    for largest in (0.13, 0.22, 1.0, 3.2, 100.0):
        angles = rng.uniform(-largest, largest, 2_000_000)
        sines, cosines = np.empty_like(angles), np.empty_like(angles)
        _native.sines_cosines(angles, sines, cosines)
        assert np.array_equal(np.sin(angles), sines)
        assert np.array_equal(np.cos(angles), cosines)


def test_auto_selects_the_compiled_form_if_nothing_depends_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(type(make_vector(id, {}, 2)) is CompiledVector for id in IDS)
    cases: list[dict[str, Any]] = [
        {"kind": "python"},
        {"wrappers": ["FlattenObservation"]},
        {"info": ["is_success"]},
        {"options": {"render_mode": "rgb_array"}},
        {"options": {"sutton_barto_reward": 1.5}},
    ]
    for case in cases:
        assert type(make_vector("CartPole-v1", **{"options": {}, "count": 2} | case)) is PythonVector, case
    monkeypatch.setattr(compiled, "bit_equal", lambda found: False)
    assert type(make_vector("CartPole-v1", {}, 2)) is PythonVector
    assert type(make_vector("CartPole-v1", {}, 2, "native")) is CompiledVector


def test_native_with_values_of_info_is_refused() -> None:
    with pytest.raises(ConfigError, match="the compiled environment `CartPole-v1` has none"):
        make_vector("CartPole-v1", {}, 2, "native", info=["is_success"])


def test_only_gymnasiums_own_classes_have_a_compiled_form() -> None:
    known = gymnasium.registry["CartPole-v1"]
    assert classic_control(known, {}) is not None
    for change in ({"entry_point": "mine:CartPoleEnv"}, {"kwargs": {"render_mode": "human"}}):
        other = gymnasium.envs.registration.EnvSpec(**{"id": "Mine-v0", "entry_point": known.entry_point} | change)
        assert classic_control(other, {}) is None
    assert classic_control(gymnasium.make, {}) is None
    assert not takes_native(Recipe("CartPole-v1", kind="native"))
    assert takes_native(Recipe("CartPole-v1", {"render_mode": "rgb_array"}, "native"))


def test_other_numbers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another NumPy, another Gymnasium or a patched class may round otherwise."""
    spec = gymnasium.registry["CartPole-v1"]
    assert bit_equal(spec)
    compiled.COMPARED.clear()
    real = gymnasium.envs.classic_control.CartPoleEnv.step

    def moved(self: Any, action: Any) -> Any:
        self.tau = 0.02 + 1e-7
        return real(self, action)

    with monkeypatch.context() as patch:
        patch.setattr(gymnasium.envs.classic_control.CartPoleEnv, "step", moved)
        assert not bit_equal(spec)
    compiled.COMPARED.clear()
    assert bit_equal(spec)
    compiled._equal_functions.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(np, "cos", lambda angles: np.sin(np.asarray(angles) + np.pi / 2))
        assert not compiled._equal_functions()
    compiled._equal_functions.cache_clear()


def test_an_action_that_is_no_choice_is_refused() -> None:
    vector = make_vector("CartPole-v1", {}, 3)
    row = StepRow.allocate(describe(Recipe("CartPole-v1")).observation, 3)
    vector.reset([1, 2, 3], row.observations)
    text = r"CartPole-v1 cannot take the action 2, expected 0 to 1 \(env 1, step 1 of this collector\)"
    with pytest.raises(EnvironmentFailed, match=text):
        vector.step(np.array([0, 2, 1]), row)
    vector.step(np.array([0, 1, 1], np.int32), row)  # int32 is converted to int64
    assert (row.valid == 1).all()
