"""The clients of the simulator protocol: the one in C, built with sanitizers, and CartPole in both languages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hive.envs import StepRow
from hive.envs.context import EnvContext
from hive.envs.external.program import Program, describe_program
from hive.envs.make import make_environment
from hive.envs.recipe import Recipe
from hive.errors import EnvironmentFailed

CLIENTS = Path(__file__).parents[2] / "examples" / "simulators"
COMPILER = os.environ.get("CC", "cc")
FLAGS = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-g"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
LIMIT_S = 20.0

needs_compiler = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no C compiler `{COMPILER}`: set CC")


def built(source: Path, folder: Path) -> str:
    program = folder / source.stem
    command = [COMPILER, *FLAGS, *SANITIZED, f"-I{CLIENTS}", str(source), "-o", str(program), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(program)


def played(recipe: Recipe, count: int, steps: int) -> list[bytes]:
    """The rows of random actions, and a clean exit."""
    spec = describe_program(recipe, LIMIT_S)
    row = StepRow.allocate(spec.observation, count)
    actions = np.zeros((count, *spec.action.shape), spec.action.dtype)
    program = Program(recipe, row, actions, spec.observation, spec.action)
    program.start([EnvContext(index) for index in range(count)])
    assert program.done(LIMIT_S)
    (pid,) = program.pids()
    program.reset(range(count))
    assert program.done(LIMIT_S)
    draw, rows = np.random.default_rng(1), []
    for _ in range(steps):
        row.finals.count = 0
        actions[...] = draw.integers(0, 2, count)
        program.step()
        assert program.done(LIMIT_S)
        rows.append(row.observations.tobytes() + row.episode_lengths.tobytes() + row.terminated.tobytes())
    program.close()
    program.end(LIMIT_S)
    assert program.tail() == ""
    assert not Path(f"/proc/{pid}").exists()
    return rows


@pytest.mark.full
@needs_compiler
def test_cartpole_in_c(tmp_path: Path) -> None:
    recipe = Recipe("cartpole", command=(built(CLIENTS / "cartpole.c", tmp_path),))
    assert played(recipe, 3, 200) == played(recipe, 3, 200)


def test_cartpole_in_python() -> None:
    recipe = Recipe("cartpole", command=(sys.executable, str(CLIENTS / "cartpole.py")))
    assert played(recipe, 2, 50) == played(recipe, 2, 50)


@pytest.mark.full
@needs_compiler
def test_every_kind_of_space_in_c(tmp_path: Path) -> None:
    command = (built(Path(__file__).with_name("simulator.c"), tmp_path),)
    recipe = Recipe("town", {"name": "town", "speed": 0.5, "deep": [{"a": [1, {"b": None}]}]}, command=command)
    environment: Any = make_environment(recipe, "rgb_array")
    seen, _ = environment.reset(seed=7)
    assert {name: part.tolist() for name, part in seen.items()} == {
        "camera": [[[0, 1, 2], [3, 4, 5]]],
        "odd": 7.5,
        "gear": -1,
        "keys": [1, 0, 1],
    }
    action = {"push": np.array([0.5, 0.25], np.float32), "tiles": np.array([2, 1])}
    assert environment.step(action)[1:] == (21.25, False, False, {"height": 1.0})
    assert environment.step(action)[2:] == (False, True, {"height": 2.0})
    assert environment.render().tolist() == [[[0, 1, 2], [3, 4, 5]]]
    with pytest.raises(EnvironmentFailed, match="failed in step: pushed backwards"):
        environment.step({**action, "push": np.array([-1, 0], np.float32)})
    environment.close()
    with pytest.raises(EnvironmentFailed, match="cannot make an environment"):
        describe_program(Recipe("town", command=command), LIMIT_S)
