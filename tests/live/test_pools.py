"""Environments whose constructor starts threads, processes or libraries with threads, in a run."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import House

RUN = """
[run]
scheme = "a2c"
name = "pools"
steps = {steps}
[env]
id = "pooled_environments:chosen"
processes = {processes}
options = {options}
each = [{each}]
[collection]
envs = {envs}
workers = {workers}
rollout = 10
"""
TEAM = """
int successor(int number) {
  int total = 1;
#pragma omp parallel for reduction(+ : total) num_threads(2)
  for (int place = 0; place < 1000; ++place) total += place < number;
  return total;
}
"""  # a team of threads of OpenMP
STEPS = 400


def table(options: dict[str, object]) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in options.items()) + " }"


def kinds(folder: Path) -> list[dict[str, object]]:
    """Options of all kinds that this machine has; half of them close nothing."""
    found: list[dict[str, object]] = [
        {"kind": "threads", "closes": False},
        {"kind": "processes", "method": "spawn"},
        {"kind": "executor", "method": "fork", "closes": False},
        {"kind": "torch"},
        {"kind": "printer", "closes": False},
        {"kind": "server", "closes": False},
        {"kind": "handlers"},
        {"kind": "loop"},
    ]
    found += [{"kind": name} for name in ("numba", "jax") if importlib.util.find_spec(name)]
    if compiler := shutil.which("gcc"):
        library = folder / "team.so"
        command = [compiler, "-shared", "-fPIC", "-fopenmp", "-xc", "-", "-o", str(library)]
        subprocess.run(command, input=TEAM, text=True, check=True)
        found.append({"kind": "openmp", "library": str(library)})
    return found


@pytest.mark.full("a run with a dozen processes of its own")
def test_every_kind_trains_in_a_process_of_its_own_and_leaves_nothing(house: House) -> None:
    each = [f"{{ index = {index}, options = {table(options)} }}" for index, options in enumerate(kinds(house.folder))]
    config = house.config(
        RUN.format(
            steps=len(each) * 40,
            processes='"each"',
            options=table({"kind": "threads"}),
            each=", ".join(each),
            envs=len(each),
            workers=1,
        )
    )
    done = house.hive("up", config)
    assert done.returncode == 0, done.stderr
    summary = house.ended("pools-1")
    assert summary["exact"] is True, summary
    assert not [event for event in house.events("pools-1") if event["kind"] == "warning"]


@pytest.mark.full("a run for each")
@pytest.mark.parametrize("options", [{"kind": "executor", "closes": False}, {"kind": "torch"}, {"kind": "server"}])
def test_and_in_the_processes_of_two_collectors(options: dict[str, object], house: House) -> None:
    text = RUN.format(steps=STEPS, processes=0, options=table(options), each="", envs=2, workers=2)
    done = house.hive("up", house.config(text))
    assert done.returncode == 0, done.stderr
    assert house.ended("pools-1")["state"] == "finished"
