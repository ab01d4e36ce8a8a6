"""Environments of shared libraries: their rows, their errors, and the example. Skipped without a C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_environments import Counting

from hive.envs import Box, Discrete, MultiDiscrete, StepRow, include_folder, make_vector
from hive.envs.make import describe, make_environment
from hive.envs.recipe import Recipe
from hive.envs.vectors.compiled_vector import CompiledVector
from hive.envs.vectors.python_vector import PythonVector
from hive.errors import ConfigError, EnvironmentFailed, EnvironmentMissing

ROOT = Path(__file__).parents[2]
COMPILER = os.environ.get("CC", "cc")
FLAGS = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
FIELDS = [name for name in StepRow.__slots__ if name not in ("finals", "infos")]

pytestmark = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"there is no C compiler `{COMPILER}`: set CC")


def build(source: Path, to: Path, *flags: str) -> Path:
    command = [COMPILER, *FLAGS, *flags, f"-I{include_folder()}", str(source), "-o", str(to)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return to


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(Path(__file__).with_name("environments.c"), tmp_path_factory.mktemp("library") / "environments.so")


@pytest.fixture(scope="module")
def catch(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"{build(ROOT / 'examples' / 'catch.c', tmp_path_factory.mktemp('catch') / 'catch.so')}:Catch"


def played(vector: Any, spec: Any, steps: int, act: Callable[[int], Any]) -> list[bytes]:
    """The bytes of every field of every row, and of all finals."""
    row = StepRow.allocate(spec.observation, vector.count)
    vector.reset(range(5, 5 + vector.count), row.observations)
    seen = [row.observations.tobytes()]
    for t in range(steps):
        row.finals.count = 0
        vector.step(act(t), row)
        seen += [getattr(row, name).tobytes() for name in FIELDS]
        seen.append(row.finals.observations[: row.finals.count].tobytes())
    return seen


@pytest.mark.parametrize("ends", [{"terminates": 3}, {"truncates": 2}, {"terminates": 4, "truncates": 4}, {"limit": 3}])
def test_rows_are_those_of_single_environments(library: Path, ends: dict[str, int]) -> None:
    """The same environment in Python, and single environments of the library, write the same bytes."""
    id, spec = str(library), describe(Recipe(str(library), ends))
    assert spec.max_episode_steps == ends.get("limit")
    fake = {"truncates": ends["limit"]} if "limit" in ends else ends
    rows = []
    for vector in (
        make_vector(id, ends, 3),
        make_vector(id, ends, 3, "python"),
        PythonVector("Counting", [Counting(**fake) for _ in range(3)]),
    ):
        rows.append(played(vector, spec, 9, lambda t: np.zeros(3, np.int64)))
        vector.close()
    assert rows[0] == rows[1] == rows[2]


def test_the_vector_is_compiled_unless_something_needs_single_environments(library: Path) -> None:
    id = str(library)
    assert type(make_vector(id, {}, 2)) is type(make_vector(id, {}, 2, "native")) is CompiledVector
    assert type(make_vector(id, {}, 2, "python")) is PythonVector
    assert type(make_vector(id, {}, 2, wrappers=["FlattenObservation"])) is PythonVector
    with pytest.raises(ConfigError, match="need single environments"):
        make_vector(id, {}, 2, "native", wrappers=["FlattenObservation"])
    with pytest.raises(ConfigError, match="`info`, and the compiled environment"):
        make_vector(id, {}, 2, info=["is_success"])
    with pytest.raises(ConfigError, match="`info`, and the compiled environment"):
        describe(Recipe(id, info=["is_success"]))


def test_bytes_and_actions_of_several_elements(library: Path) -> None:
    id = f"{library}:Echo"
    spec = describe(Recipe(id))
    assert spec.observation.shape == (2, 3)
    assert spec.observation.dtype == "uint8"
    assert spec.action == MultiDiscrete((3, 4))
    assert describe(Recipe(id, {"kind": "box"})).action == Box((2,), (-1.0, -1.0), (2.0, 2.0))
    cases: list[tuple[dict[str, str], Any, list[list[int]]]] = [
        ({}, np.array([[2, 3], [0, 1]]), [[102, 103], [100, 101]]),
        ({"kind": "box"}, np.array([[5.0, -0.5], [-3.0, 1.5]], np.float32), [[120, 95], [90, 115]]),
    ]
    for options, actions, expected in cases:
        for kind in ("native", "python"):
            vector, row = make_vector(id, options, 2, kind), StepRow.allocate(spec.observation, 2)
            vector.reset([7, 2**64 - 1], row.observations)
            assert row.observations[:, 0, 0].tolist() == [7, 255]
            vector.step(actions, row)
            assert row.observations[:, 0, :2].tolist() == expected
    vector = make_vector(id, {}, 2)
    vector.reset([1, 2], row.observations)
    with pytest.raises(EnvironmentFailed, match=r"cannot take the action 4, expected 0 to 3 \(env 1, step 1 "):
        vector.step(np.array([[0, 3], [2, 4]]), row)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fault": "reward"}, r"returned the reward np.float32\(inf\), expected a finite number \(env 1, step 3 of"),
        ({"fault": "nan"}, r"returned an observation with nan in it \(env 1, step 3 of"),
        ({"fault": "nan", "truncates": 3}, r"returned an observation with nan in it \(env 1, step 3 of"),
        ({"fault": "step"}, r"failed in step: no fuel \(step 3 of this collector\)"),
        ({"fault": "silent"}, r"failed in step: without an explanation \(step 3 of this collector\)"),
        ({"fault": "reset", "truncates": 2}, r"failed in reset: no fuel \(env 1, step 2 of this collector\)"),
    ],
)
def test_what_goes_wrong_in_a_step_is_named(library: Path, options: dict[str, Any], text: str) -> None:
    vector, spec = make_vector(str(library), options, 3), describe(Recipe(str(library)))
    with pytest.raises(EnvironmentFailed, match=text) as caught:
        played(vector, spec, 5, lambda t: np.zeros(3, np.int64))
    assert caught.value.permanent == ("returned" in text)
    if "returned" in text:
        assert caught.value.not_finite


def test_a_terminated_episode_may_end_with_nan(library: Path) -> None:
    """As with environments in Python: no one learns from its last observation."""
    vector, spec = make_vector(str(library), {"fault": "nan", "terminates": 3}, 3), describe(Recipe(str(library)))
    played(vector, spec, 5, lambda t: np.zeros(3, np.int64))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"colour": 3}, "which option is that?"),
        ({"limit": "5"}, "which option is that?"),
        ({"dimensions": 9}, "observation_dimensions is 9, expected 0 to 8"),
        ({"dimensions": 2}, r"observation_shape\[1\] is 0, expected sizes whose product is from 1 to 2\^30"),
        ({"choices": 0}, r"action_choices\[0\] is 0, expected at least 1"),
        ({"limit": -1}, "max_episode_steps is negative"),
        ({"fault": "create"}, "no fuel"),
        ({"fault": [1]}, "env.options.fault is of type list, and a compiled environment takes numbers and words"),
    ],
)
def test_wrong_options_and_sizes(library: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(EnvironmentFailed, match=text):
        describe(Recipe(str(library), options))


def test_libraries_that_cannot_be_used(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EnvironmentMissing, match=r"no environment `\./none\.so:A`: there is no file `\./none\.so`"):
        describe(Recipe("./none.so:A"))
    shutil.copy(library, "some.so")
    with pytest.raises(EnvironmentMissing, match=r"`\./some\.so` exports no `Catch`") as missing:
        describe(Recipe("./some.so:Catch"))
    assert missing.value.hint.startswith("define it with HIVE_ENVIRONMENT(Catch)")
    with pytest.raises(
        EnvironmentFailed, match=r"compiled for version 77 of hive/env\.h, and this hive has 1"
    ) as other:
        describe(Recipe("some.so:not_one"))
    assert other.value.permanent
    assert other.value.hint == "compile it with the hive/env.h of this hive"
    Path("text.so").write_text("no library\n")
    with pytest.raises(EnvironmentFailed, match="it cannot be loaded: "):
        describe(Recipe("./text.so:Catch"))


IN_CPP = """
#include <hive/env.h>
namespace {
int describe(const hive_options*, hive_description* found, char*) { found->action_choices[0] = 2; return 0; }
void* create(const hive_options*, int64_t, char*) { return new int; }
int reset(void*, int64_t, const uint64_t*, void* observation, char*) { return *static_cast<float*>(observation) = 0; }
int step(void*, const void*, const hive_rows* to, char*) { return *static_cast<float*>(hive_observation(to, 0)) = 0; }
void destroy(void* state) { delete static_cast<int*>(state); }
}
HIVE_ENVIRONMENT(Still) = {HIVE_ENV_VERSION, sizeof(hive_environment), describe, create, reset, step, destroy};
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler `c++`")
def test_an_environment_in_cpp(tmp_path: Path) -> None:
    """The constant is exported even if other symbols are hidden; an observation may be one number, shape ()."""
    (tmp_path / "still.cpp").write_text(IN_CPP)
    command = ["c++", "-std=c++11", "-pedantic", "-Werror", "-fvisibility=hidden", "-shared", "-fPIC"]
    subprocess.run([*command, f"-I{include_folder()}", "still.cpp", "-o", "still.so"], cwd=tmp_path, check=True)
    id = f"{tmp_path / 'still.so'}:Still"
    assert describe(Recipe(id)).observation.shape == ()
    played(make_vector(id, {}, 1), describe(Recipe(id)), 2, lambda t: np.zeros(1, np.int64))


def test_a_single_environment_for_scripts(catch: str) -> None:
    environment = make_environment(Recipe(catch, {"rows": 4}))
    first = environment.reset(seed=3)[0]
    assert first.shape == (20,)
    assert environment.action_space.n == 3  # type: ignore[attr-defined]
    results = [environment.step(1) for _ in range(3)]
    assert [result[2] for result in results] == [False, False, True]
    assert results[-1][1] in (-1.0, 1.0)
    assert environment.reset(seed=3)[0].tolist() == first.tolist()
    with pytest.raises(EnvironmentFailed, match="the action 3, expected 0 to 2"):
        environment.step(3)


def test_the_example_is_caught_by_a_paddle_that_follows(catch: str) -> None:
    assert len((ROOT / "examples" / "catch.c").read_text().splitlines()) <= 80
    spec = describe(Recipe(catch))
    assert spec.action == Discrete(3)
    vector, row = make_vector(catch, {}, 64), StepRow.allocate(spec.observation, 64)
    vector.reset(range(64), row.observations)
    for _ in range(27):
        boards = row.observations.reshape(64, 10, 5)
        ball = boards[:, :9].any(axis=1).argmax(axis=1)
        vector.step(np.sign(ball - boards[:, 9].argmax(axis=1)) + 1, row)
    assert (row.terminated == 1).all()
    assert (row.rewards == 1).all()
    assert (row.episode_lengths == 9).all()
    assert len({*ball.tolist()}) == 5
