"""2 N updates, and N updates, kill -9 of everything, resume, N updates: the same bytes.

Each mode has one run that nobody disturbs, and one whose supervisor is killed at three points, which takes everybody
with it. The points are numbers of updates, drawn once for each mode; where a kill falls between two cuts, or into the
writing of a checkpoint, is left to chance. Nearly all of the time goes into starting, so the first is made in this
process, and the second side by side with that of the next mode.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hive.config import load_config, render
from hive.records import RunDirectory, read_run_facts, write_bytes
from hive.runtime.control import open_control
from hive.runtime.run import run_inline

if TYPE_CHECKING:
    from conftest import House

MODES = {
    "a2c synchronous, 2 x 2, normalised": [
        *("collection.communication=synchronous", "gradients.communication=synchronous"),
        *("collection.workers=2", "gradients.workers=2", "algorithm.normalize_advantages=true"),
    ],
    "a2c pipelined": ["collection.communication=pipelined", "gradients.communication=pipelined"],
    "a2c pipelined, synchronous": ["collection.communication=pipelined", "gradients.communication=synchronous"],
    "ppo synchronous": [
        *("run.scheme=ppo", "algorithm.epochs=2", "algorithm.minibatches=2"),
        *("collection.communication=synchronous", "gradients.communication=synchronous"),
    ],
    "ppo pipelined, 2 x 2, normalised, decentralised": [
        *("run.scheme=ppo", "algorithm.epochs=2", "algorithm.minibatches=2", "gradients.decentralised=true"),
        *("collection.communication=pipelined", "gradients.communication=pipelined"),
        *("collection.workers=2", "gradients.workers=2"),
    ],
    "impala synchronous, decentralised": [
        *("run.scheme=impala", "gradients.decentralised=true"),
        *("collection.communication=synchronous", "gradients.communication=synchronous"),
    ],
    "a2c pipelined, 2 x 2, top-k": [
        *("gradients.compression=top-k", "collection.workers=2", "gradients.workers=2"),
        *("collection.communication=pipelined", "gradients.communication=pipelined"),
    ],
    "impala pipelined": [
        *("run.scheme=impala", "collection.communication=pipelined", "gradients.communication=pipelined")
    ],
}
SETTINGS = (
    *('env.id="CartPole-v1"', "collection.envs=8", "collection.rollout=8"),
    "checkpoint.every={updates=30}",
    "record.every_s=0.01",  # many lines: one that is told twice, or lost, shall not go unseen
)
ROUNDS = 160  # of a run: a second or two, so that the last kill comes before the end
STEPS_OF_A_ROUND = 64  # of one collector
KILLS = 3
KILLED_AFTER = 40  # updates: the first cut comes a little before, and there must be one to go on from
KILLED_BEFORE = 0.75  # of all updates
SAME = ("weights_sha256", "updates", "env_steps", "episodes", "mean_return_100", "exact")
SAME_LINES = ("steps", "episodes", "return/mean_100", "learner/learning_rate", "learner/skipped")
LEAST_LINES = 20  # of one run
POLL_S = 0.002  # between two questions how many updates are done
SIDE_BY_SIDE = 2

Lines = list[dict[str, Any]]
Told = tuple[dict[str, Any], Lines]  # what a run leaves: summary.json and metrics.jsonl
OpenHouse = Callable[[], AbstractContextManager["House"]]
Killed = Callable[[str], "Future[Told]"]


@pytest.fixture(scope="module")
def killed(open_house: OpenHouse) -> Iterator[Killed]:
    """What the killed run of a mode leaves. It is begun together with the next one's."""
    begun: dict[str, Future[Told]] = {}
    names = list(MODES)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:

        def of(mode: str) -> Future[Told]:
            start = names.index(mode)
            for name in names[start : start + SIDE_BY_SIDE]:
                begun[name] = begun.get(name) or pool.submit(run_and_kill, open_house, name)
            return begun[mode]

        yield of


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_run_goes_on_as_if_it_had_not_been(killed: Killed, tmp_path: Path, mode: str) -> None:
    future = killed(mode)
    first, lines = run_undisturbed(tmp_path, mode)
    assert first["exact"] is True
    assert first["updates"] == updates_of(mode)
    second, others = future.result()
    assert {key: second[key] for key in SAME} == {key: first[key] for key in SAME}
    for told in (lines, others):
        assert len(told) >= LEAST_LINES
        assert told[-1]["updates"] == first["updates"]
        for key in ("seconds", "steps", "updates"):
            assert all(one[key] <= two[key] for one, two in itertools.pairwise(told)), key
    # When a line is written the clock decides, so not every update has one in both. A turn that brings moments and no
    # update can have a second line of the same update.
    known = {(line["updates"], line["steps"]): line for line in lines}
    for line in others:
        other = known.get((line["updates"], line["steps"]), line)
        assert {key: line[key] for key in SAME_LINES} == {key: other[key] for key in SAME_LINES}


def updates_of(mode: str) -> int:
    return ROUNDS * (4 if "run.scheme=ppo" in MODES[mode] else 1)


def config_of(mode: str) -> list[str]:
    collectors = 2 if "collection.workers=2" in MODES[mode] else 1
    return [*SETTINGS, *MODES[mode], f"run.steps={ROUNDS * STEPS_OF_A_ROUND * collectors}"]


def run_undisturbed(home: Path, mode: str) -> Told:
    """In this process: it needs no start, and its bytes are the same."""
    directory = RunDirectory.create(home, "whole")
    config = load_config(home / "run.toml", config_of(mode), text="")
    write_bytes(directory.resolved_file, render(config).encode())
    assert run_inline(directory) == 0
    return told_by(directory)


def run_and_kill(open_house: OpenHouse, mode: str) -> Told:
    with open_house() as house:
        sets = [f"--set={key}" for key in config_of(mode)]
        started = house.hive("up", house.config(""), "--name", "part", "-d", *sets)
        assert started.returncode == 0, started.stderr
        possible = range(KILLED_AFTER, int(KILLED_BEFORE * updates_of(mode)))
        points = sorted(random.Random(mode).sample(possible, KILLS))
        for point in points:
            kill(house, point)
            resumed = house.hive("resume", "part-1", "--exact", *["-d"] * (point != points[-1]))
            assert resumed.returncode == 0, resumed.stderr
            assert "resuming part-1 from its last cut" in resumed.stderr
        house.ended("part-1")
        return told_by(RunDirectory(house.home / "part-1"))


def kill(house: House, updates: int) -> None:
    """Kills everybody once so many updates are done, and there is a checkpoint to go on from."""
    directory = RunDirectory(house.home / "part-1")
    with closing(open_control(Path(read_run_facts(directory).socket_folder))) as client:

        def done() -> bool:
            status = client.status()
            counters = {actor["name"]: actor["counters"] for actor in status["actors"]}
            return bool(counters["learner-0"].get("updates", 0) >= updates)

        house.until(done, poll_s=POLL_S)
        house.until(lambda: any(directory.checkpoints.glob("0*/DONE")), poll_s=POLL_S)
    os.kill(read_run_facts(directory).pid, signal.SIGKILL)
    house.until(lambda: not house.processes())
    assert not directory.summary_file.exists(), "it was quicker than the kill"


def told_by(directory: RunDirectory) -> Told:
    lines = [json.loads(line) for line in directory.metrics_file.read_text().splitlines()]
    return json.loads(directory.summary_file.read_text()), lines


def test_a_stopped_run_goes_on_from_where_it_was_left(house: House) -> None:
    assert house.hive("up", house.cartpole(steps=40_000), "-d").returncode == 0
    house.until_steps("cart-1", 2_000)
    assert house.hive("down").returncode == 0
    before = house.summary("cart-1")
    resumed = house.hive("resume", "cart-1")
    assert resumed.returncode == 0, resumed.stderr
    after = house.ended("cart-1")
    assert after["state"] == "finished"
    assert after["exact"] is False
    assert after["updates"] > before["updates"]
    assert after["train_s"] > before["train_s"]
    again = house.hive("up", "--resume", "cart-1")
    assert again.returncode == 2
    assert "error: cart-1 has finished" in again.stderr
