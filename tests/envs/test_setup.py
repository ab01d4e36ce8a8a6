"""run.setup is called once in every process that runs users' code, before their classes are built."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from hive.config import load_config
from hive.config.references import give_setup
from hive.envs import StepRow
from hive.envs.configured import configured_spec, configured_vector
from hive.envs.recipe import Recipe
from hive.envs.spaces.reading_spaces import described_by_child
from hive.errors import TopologyError
from hive.runtime.process.user_code import setup
from hive.runtime.process.user_code.setup import set_up

CALLS = "SETUP_CALLS"  # a file with a line for each call
state: dict[str, float] = {}


def prepare() -> None:
    state["wind"] = 5.0
    with Path(os.environ[CALLS]).open("a") as file:
        file.write(f"{os.getpid()}\n")


def fail() -> None:
    raise KeyError("wind")


class Windy(gymnasium.Env[Any, Any]):
    """Observes what `prepare` has set before its constructor was called."""

    observation_space: Any = spaces.Box(-9, 9, (1,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def __init__(self) -> None:
        self.wind = state.get("wind", 0.0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.full(1, self.wind, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.full(1, self.wind, np.float32), 0.0, False, False, {}


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv(CALLS, str(tmp_path / "calls.txt"))
    monkeypatch.setattr(setup, "_called", set())
    yield tmp_path / "calls.txt"
    give_setup(None)
    state.clear()


def test_the_first_class_of_a_user_in_a_process_calls_it_and_no_later_one(calls: Path) -> None:
    give_setup(f"{__name__}:prepare")
    assert not calls.exists()
    for _ in range(2):
        described_by_child(Recipe(f"{__name__}:Windy"))
        set_up()
    first, own, second = calls.read_text().split()
    assert int(own) == os.getpid()
    assert len({first, own, second}) == 3


@pytest.mark.rotates
@pytest.mark.parametrize("processes", [0, 1])
def test_environments_are_built_after_it(processes: int, calls: Path) -> None:
    env = load_config("run.toml", [f"env.id={__name__}:Windy", f"env.processes={processes}"], text="").env
    give_setup(f"{__name__}:prepare")
    spec = configured_spec(env)
    vector, row = configured_vector(env, 2, spec=spec), StepRow.allocate(spec.observation, 2)
    try:
        vector.reset([0, 1], row.observations)
        assert row.observations.ravel().tolist() == [5.0, 5.0]
    finally:
        vector.close()
    pids = calls.read_text().split()
    assert len(set(pids)) == len(pids)


def test_its_error_has_the_line_and_comes_again() -> None:
    give_setup(f"{__name__}:fail")
    for describe in (set_up, set_up, lambda: described_by_child(Recipe("CartPole-v1"))):
        with pytest.raises(TopologyError, match=r"run\.setup.*KeyError: 'wind' \(.*test_setup\.py:\d+\)"):
            describe()
