"""2 N updates, and N updates, kill -9 of everything, resume, N updates: the same bytes.

Each mode has one undisturbed run, made in this process, and one whose supervisor is killed, once or twice, which
takes every process with it. How many rounds a run makes until its kill is drawn once for each mode, and its environment
kills at that step (killing_environment.py), so no run ends before its kills however slow the machine is. Where a kill
falls between two cuts, or into the writing of a checkpoint, is left to chance.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hive.config import load_config, render
from hive.records import RunDirectory, write_bytes
from hive.runtime.run.execute import run_inline

if TYPE_CHECKING:
    from conftest import House

WARMUP = 5  # rounds
MODES = {
    "a2c synchronous, 2 x 2, normalised": [
        *("collection.communication=synchronous", "gradients.communication=synchronous"),
        *("collection.workers=2", "gradients.workers=2", "algorithm.normalize_advantages=true"),
    ],
    "a2c pipelined, 2 x 2, stacks of dictionaries with masks, novelty, a privileged critic": [
        'network.critic_parts=["numbers"]',
        *('env.wrappers=["killing_environment:InParts"]', "env.action_mask=action_mask", "env.frame_stack=3"),
        *("network.novelty_weight=0.5", "collection.workers=2", "gradients.workers=2"),
        *("collection.communication=pipelined", "gradients.communication=synchronous"),
    ],
    "ppo pipelined, 2 x 2, normalised, decentralized, global generators, a callback": [
        'env.wrappers=["killing_environment:Drawing"]',
        *('run.callbacks=["killing_environment:Changes"]', "evaluation.every={steps=1000}", "evaluation.episodes=1"),
        *("run.scheme=ppo", "algorithm.epochs=2", "algorithm.minibatches=2", "gradients.decentralized=true"),
        *("collection.communication=pipelined", "gradients.communication=pipelined"),
        *("collection.workers=2", "gradients.workers=2"),
    ],
    "impala synchronous, frozen layers": [
        'network.frozen=["branches.?.trunk.2.*"]',
        "run.scheme=impala",
        *("collection.communication=synchronous", "gradients.communication=synchronous"),
    ],
    "a2c pipelined, 2 x 2, top-k": [
        *("gradients.compression=top-k", "collection.workers=2", "gradients.workers=2"),
        *("collection.communication=pipelined", "gradients.communication=pipelined"),
    ],
    "pqn pipelined, 2 x 2": [
        *("run.scheme=pqn", "algorithm.epochs=2", "algorithm.minibatches=2", "algorithm.exploration_steps=10_000"),
        *("collection.communication=pipelined", "collection.workers=2", "gradients.workers=2"),
    ],
    "nstep-q synchronous, soft target": [
        *("run.scheme=nstep-q", "algorithm.target_interval=3", "algorithm.target_rate=0.1"),
        *("collection.communication=synchronous", "gradients.communication=synchronous"),
    ],
    "dqn pipelined, 2 x 2, normalised": [
        *("run.scheme=dqn", f"algorithm.learning_starts={128 * WARMUP}", "algorithm.replay_capacity=4096"),
        *("algorithm.batch_size=32", 'algorithm.updates_per_step="1/128"', "algorithm.priority_exponent=0.6"),
        *("network.normalize_observations=true", "network.normalize_rewards=true"),
        *("collection.communication=pipelined", "gradients.communication=pipelined"),
        *("collection.workers=2", "gradients.workers=2", 'run.callbacks=["killing_environment:Changes"]'),
        *("evaluation.every={steps=1000}", "evaluation.episodes=1"),
    ],
    "ppo pipelined, 2 x 2, with a memory": [
        *("run.scheme=ppo", "algorithm.epochs=2", "algorithm.minibatches=2", "run.carrier=zmq"),
        *("network.memory=lstm", "network.memory_size=8", "network.normalize_observations=true"),
        *("collection.communication=pipelined", "collection.workers=2", "gradients.workers=2"),
    ],
}
SETTINGS = (
    "run.scheme=a2c",
    *('env.id="killing_environment:environment"', "collection.envs=8", "collection.rollout=8"),
    "collection.helpers=0",  # the environment counts the steps of its own process until it kills
    "checkpoint.every={updates=30}",
    "record.every_s=0.01",  # many lines: one that is told twice, or lost, shall not go unseen
)
ROUNDS = 80  # of a run
STEPS_OF_A_ROUND = 64  # of one collector
KILLS = 2
KILLED_AFTER = 35  # rounds, at least, before the first kill: there must be a checkpoint to resume from
KILLED_BEFORE = 70  # rounds, all incarnations together
EVERY_DAY = "ppo pipelined, 2 x 2, normalised, decentralized, global generators, a callback"
SAME = ("weights_sha256", "updates", "env_steps", "episodes", "mean_return_100", "exact")
SAME_LINES = ("steps", "episodes", "return/mean_100", "learner/learning_rate", "learner/skipped")
LEAST_LINES = 10  # a run writes at least so many lines of metrics

Lines = list[dict[str, Any]]
Told = tuple[dict[str, Any], Lines]  # what a run leaves: summary.json and metrics.jsonl


@pytest.mark.parametrize(
    ("mode", "kills"),
    [
        (EVERY_DAY, 1),
        *(
            pytest.param(mode, KILLS, marks=pytest.mark.full(reason="more kills and modes", rotates=True))
            for mode in MODES
            if mode != EVERY_DAY
        ),
    ],
)
def test_a_killed_run_goes_on_as_if_it_had_not_been(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, kills: int
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    first, lines = run_undisturbed(tmp_path, mode)
    assert first["exact"] is True
    assert first["updates"] == updates_of(mode)
    second, others = run_and_kill(house, mode, kills)
    assert {key: second[key] for key in SAME} == {key: first[key] for key in SAME}
    lines, others = ([line for line in told if "episodes" in line] for told in (lines, others))  # not of evaluations
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
    if "run.scheme=dqn" in MODES[mode]:  # not in the warm-up, nor on the weights of turns 0 and 1: no statistics
        return ROUNDS - WARMUP - 2
    return ROUNDS * (4 if "algorithm.epochs=2" in MODES[mode] else 1)


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


def run_and_kill(house: House, mode: str, kills: int) -> Told:
    kill_after, kill_now = house.home / "kill_after", house.home / "kill_now"
    house.home.mkdir()
    for rounds in rounds_until_kills(mode, kills):
        kill_after.write_text(str(rounds * STEPS_OF_A_ROUND))
        sets = [f"--set={key}" for key in config_of(mode)]
        if (house.home / "part-1").exists():
            started = house.hive("resume", "part-1", "--exact", "-d")
        else:
            started = house.hive("up", house.config(""), "--name", "part", "-d", *sets)
        assert started.returncode == 0, started.stderr
        kill_now.touch()  # not before, or `hive up` would report a failed start
        house.until(lambda: not house.processes())
        kill_now.unlink()
        assert not (house.home / "part-1" / "summary.json").exists()
    kill_after.unlink()
    resumed = house.hive("resume", "part-1", "--exact")
    assert resumed.returncode == 0, resumed.stderr
    assert "from its last scheduled checkpoint" in resumed.stderr
    house.ended("part-1")
    return told_by(RunDirectory(house.home / "part-1"))


def rounds_until_kills(mode: str, kills: int) -> list[int]:
    """How many rounds each incarnation of the run makes before it is killed."""
    points = sorted(random.Random(mode).sample(range(KILLED_AFTER, KILLED_BEFORE), kills))
    return [after - before for before, after in itertools.pairwise([0, *points])]


def told_by(directory: RunDirectory) -> Told:
    lines = [json.loads(line) for line in directory.metrics_file.read_text().splitlines()]
    return json.loads(directory.summary_file.read_text()), lines


@pytest.mark.full(
    reason="a killed run goes on in the everyday tier, and test_signals.py resumes a stopped one", rotates=True
)
def test_a_stopped_run_goes_on_from_where_it_was_left(house: House) -> None:
    assert house.hive("up", house.cartpole(), "-d").returncode == 0
    house.until_steps("cart-1", 2_000)
    assert house.hive("down").returncode == 0
    before = house.summary("cart-1")
    resumed = house.hive("resume", "cart-1", "-s", f"run.steps={before['env_steps'] + 4_000}")
    assert resumed.returncode == 0, resumed.stderr
    after = house.ended("cart-1")
    assert after["state"] == "finished"
    assert after["exact"] is False
    assert after["updates"] > before["updates"]
    assert after["train_s"] > before["train_s"]
    again = house.hive("up", "--resume", "cart-1")
    assert again.returncode == 2
    assert "error: cart-1 has finished" in again.stderr
