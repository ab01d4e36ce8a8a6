"""A user's own topology: from a script, from the command line, with its parameters in the config."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hive

if TYPE_CHECKING:
    from conftest import House

AGAIN = pytest.mark.full(reason="another text on the same path", rotates=True)
SCRIPT = Path(__file__).parent / "own_topology.py"


def test_a_script_runs_its_own_topology(house: House) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT], env=house.env, cwd=house.folder, capture_output=True, text=True, timeout=house.limit_s
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "the sum is 45",
        "the sum is 4950",
        "the sum is 45",
        "`no_topology` returned int",
    ]
    names = sorted(path.name for path in house.home.iterdir() if path.name != "latest")
    assert names[:3] == ["here-1", "own_topology-1", "own_topology-2"]
    for name in names[:3]:
        summary = house.ended(name)
        assert (summary["state"], summary["exact"]) == ("finished", summary["exact"])
        numbers = summary["channels"]["numbers"]
        assert numbers["produced"] == numbers["consumed"] in (10, 100)


def test_a_script_without_a_guard_trains_its_own_classes(house: House) -> None:
    """The run needs neither the script nor the place where it was made."""
    script = house.folder / "elsewhere" / "script.py"
    script.parent.mkdir()
    script.write_text(SCRIPT.with_name("own_environment.py").read_text())
    command = [sys.executable, "elsewhere/script.py"]
    done = subprocess.run(
        command, env=house.env, cwd=house.folder, capture_output=True, text=True, timeout=house.limit_s
    )
    assert done.stdout.splitlines() == ["4032 True", "6016"], done.stderr
    script.unlink()
    (house.home / "coin-1").rename(house.home / "moved")
    played = house.hive("eval", "moved", "--episodes", "2")
    assert played.returncode == 0, played.stderr
    observations = np.zeros((2, 3), np.float32)
    assert hive.load(str(house.home / "moved"), own_code=True)(observations).shape == (2,)


@pytest.mark.full(reason="five runs; tests/cli/test_scripting.py covers the same calls inline", rotates=True)
def test_a_running_loop_runs_topologies(house: House) -> None:
    script = SCRIPT.with_name("running_loop.py")
    done = subprocess.run(
        [sys.executable, script], env=house.env, cwd=house.folder, capture_output=True, text=True, timeout=house.limit_s
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["the sum is 45", "the sum is 4950 the sum is 45", "the sum is 45", "cancelled"]
    assert (house.home / "running_loop-1" / "session.py").is_file()
    summary = house.summary("endless-1")
    assert (summary["state"], summary["stop_reason"]) == ("stopped", "cancellation")


@pytest.mark.full(reason="a script runs the same file in the everyday tier", rotates=True)
def test_the_command_line_runs_a_file(house: House) -> None:
    config = house.config("[custom.counter]\namount = 7\n[custom.sum]\namount = 7\n")
    done = house.hive("up", config, "--topology", f"{SCRIPT}:topology")
    assert done.returncode == 0, done.stderr
    assert "finished: the sum is 21" in done.stderr
    alone = house.hive("up", "--topology", SCRIPT)
    assert alone.returncode == 0, alone.stderr
    assert house.summary("own_topology-2")["stop_reason"] == "the sum is 45"


def test_who_awaits_something_of_its_own_is_not_taken_for_stuck(house: House) -> None:
    config = house.config("[supervision]\nphase_limit_s = 0.5\n")
    done = house.hive("up", config, "--topology", f"{SCRIPT}:idle", "--name", "idle")
    assert done.returncode == 0, done.stderr
    assert "finished: the number is 7" in done.stderr
    assert not [event for event in house.events("idle-1") if event["kind"] == "died"]


@pytest.mark.full(reason="runtime/topology/test_resources.py sets them without a run", rotates=True)
def test_an_actor_has_the_cores_and_threads_that_it_was_given(house: House) -> None:
    done = house.hive("up", "--topology", f"{SCRIPT}:placed")
    assert done.returncode == 0, done.stderr
    assert f"finished: cuda:1 on {max(os.sched_getaffinity(0))} with 1" in done.stderr


@pytest.mark.parametrize(
    ("place", "code", "text"),
    [
        ("nowhere.py", 2, "error: there is no file `"),
        pytest.param(f"{SCRIPT}:topologi", 2, "error: `{script}` has no `topologi`", marks=AGAIN),
        pytest.param(f"{SCRIPT}:no_topology", 2, "returned int\n\nhint: return a hive.Topology", marks=AGAIN),
        (f"{SCRIPT}:raises", 2, "error: the topology cannot be built: {script}:{line} raised KeyError: 'mine'"),
    ],
)
def test_a_topology_that_cannot_be_had(house: House, place: str, code: int, text: str) -> None:
    done = house.hive("up", "--topology", place)
    assert (done.returncode, done.stdout) == (code, "")
    line = 1 + SCRIPT.read_text().splitlines().index('    raise KeyError("mine")')
    assert text.format(script=SCRIPT, line=line) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_in_custom_is_told_with_its_line(house: House) -> None:
    config = house.config("[custom.counter]\namuont = 7\n")
    done = house.hive("up", config, "--topology", SCRIPT)
    assert done.returncode == 2
    assert ":2: custom.counter.amuont: `Counter` takes no `amuont`" in done.stderr
    assert "did you mean `amount`?" in done.stderr
    assert not list(house.home.glob("run-*"))
