"""SIGTERM and SIGINT to all processes of a run at once, as Slurm and docker send them: nothing is lost or left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from hive.records import list_checkpoints
from hive.runtime.process.stop_signals import TERMINATED

if TYPE_CHECKING:
    from conftest import House

BOTH = (signal.SIGTERM, signal.SIGINT)
RUNS = 5  # of each signal; with 50, the test takes five minutes
MOST_TURNS = 400  # of the random moments: a second or so


def send(house: House, number: int) -> None:
    """Send the signal once to every process of the house: command, supervisor, fork server and actors."""
    for pid in house.processes():
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def end(house: House, up: subprocess.Popen[str], number: int) -> str:
    send(house, number)
    _, err = up.communicate(timeout=house.limit_s)
    return err


def saved_by_a_signal(house: House, number: signal.Signals, turns: int) -> None:
    """Send a signal to all processes after so many turns; check that the run is saved, and that it can be resumed."""
    up = house.start("up", house.cartpole(more="[gradients]\nworkers = 1\n" * (turns % 2)))
    house.until(lambda: (house.home / "cart-1" / "run.json").exists())
    house.until(lambda: "learner-0" in house.ps("cart-1"))
    house.until(lambda: house.ps("cart-1")["learner-0"]["counters"].get("updates", 0) >= turns)
    err = end(house, up, number)
    assert up.returncode == (TERMINATED if number == signal.SIGTERM else 0), err
    summary = house.summary("cart-1")
    assert (summary["state"], summary["stop_reason"]) == ("stopped", "Ctrl-C" if number == signal.SIGINT else "SIGTERM")
    (*_, newest) = list_checkpoints(house.home / "cart-1" / "checkpoints", verify=True)
    assert newest.update == summary["updates"]
    done = house.hive("resume", "cart-1", "--set", f"run.steps={summary['env_steps'] + 1}")
    assert (done.returncode, house.summary("cart-1")["state"]) == (0, "finished"), done.stderr


def test_a_signal_to_all_processes_saves_the_run(house: House) -> None:
    saved_by_a_signal(house, signal.SIGTERM, 7)


@pytest.mark.full("a run and its resume each")
@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("seed", range(RUNS))
def test_a_signal_to_all_processes_at_any_moment_saves_the_run(house: House, number: signal.Signals, seed: int) -> None:
    saved_by_a_signal(house, number, random.Random(seed).randint(1, MOST_TURNS))


STAGES: dict[str, Callable[[House], bool]] = {
    "supervisor": lambda house: len(house.processes()) >= 2,
    "fork server": lambda house: len(house.processes()) >= 3,
    "directory": lambda house: (house.home / "cart-1").exists(),
    "facts": lambda house: (house.home / "cart-1" / "run.json").exists(),
    "actors": lambda house: len(house.processes()) >= 5,
}


@pytest.mark.parametrize(
    ("stage", "number"),
    [
        pytest.param(
            stage,
            number,
            marks=[] if (stage, number) in full else [pytest.mark.full("one stage shows the same", rotates=True)],
        )
        for full in [{("directory", signal.SIGTERM)}]
        for stage in STAGES
        for number in BOTH
    ],
)
def test_a_signal_to_all_processes_before_the_first_update_leaves_nothing(
    house: House, stage: str, number: signal.Signals
) -> None:
    up = house.start("up", house.cartpole())
    house.until(lambda: STAGES[stage](house), poll_s=0.001)
    err = end(house, up, number)
    # 0: the run had begun, and was stopped on request, without anything to save.
    assert up.returncode in (0, TERMINATED, 128 + number), err
    assert "Traceback" not in err
    for run in house.home.glob("cart-*") if house.home.exists() else ():
        assert (run / "summary.json").exists(), f"{run} is half made"


@pytest.mark.full("the everyday case is that of all processes", rotates=True)
@pytest.mark.parametrize("number", BOTH)
def test_two_ways_are_one_request_and_a_second_signal_ends_the_run_at_once(
    house: House, number: signal.Signals
) -> None:
    config = '[run]\nname = "hang"\n[env]\nid = "breaking_environments:Hangs"\n[collection]\nenvs = 2\nrollout = 64\n'
    up = house.start("up", house.config(config))
    house.until(lambda: (house.home / "hang-1" / "run.json").exists())
    house.until(lambda: house.ps("hang-1").get("collector-0", {}).get("activity") == "env")
    send(house, number)
    house.until(lambda: any(event["kind"] == "draining" for event in house.events("hang-1")))
    assert "collector-0" in house.ps("hang-1")  # it still drains: the actor that hangs was not killed
    err = end(house, up, number)
    assert up.returncode == 130, err
    assert house.summary("hang-1")["state"] == "stopped"
