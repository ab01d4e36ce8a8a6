"""A run that is saved in the middle of a round, as by `hive save`, `down` or `scale`, continues from there.

That is no resume barrier, so it is not bit-identical with a run that was not stopped. It must only continue.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from small_runs import modes
from small_trainer import LIMIT_S, config_of

from hive.records import Checkpoint, RunDirectory, list_checkpoints, write_json
from hive.runtime.supervise.outcome import Outcome
from hive.runtime.supervise.supervisor import Supervisor
from hive.schemes import build
from hive.testing import run_inline
from hive.training import Blueprint

STEPS = 640
SCHEMES: dict[str, dict[str, Any]] = {
    "ppo": {},
    "ppo synchronous": modes("synchronous", "synchronous", 1, 1),
    "ppo pipelined, 2 x 2": modes("pipelined", "pipelined", 2, 2),
    "ppo decentralized, 2 x 2": {**modes("pipelined", "pipelined", 2, 2), "gradients__decentralized": "true"},
    "ppo asynchronous, synchronous": modes("asynchronous", "synchronous", 2, 2),
    "dd-ppo": {},
    "rapid": {},
    "a2c normalised": {**modes("pipelined", "synchronous", 2, 2), "algorithm__normalize_advantages": "true"},
}


def saved_within_a_round(per_round: int, directory: RunDirectory, supervisor: Supervisor) -> None:
    """Has the run saved, again and again, until one of the checkpoints lies within a round; then ends it."""

    def look() -> None:
        if any(within(found, per_round) for found in list_checkpoints(directory.checkpoints)):
            supervisor.request("saved within a round")
        else:
            supervisor.call("save")
            asyncio.get_running_loop().call_later(0.005, look)

    asyncio.get_running_loop().call_later(0.005, look)


def within(checkpoint: Checkpoint, per_round: int) -> bool:
    return checkpoint.update % per_round != 0


@pytest.mark.rotates
@pytest.mark.parametrize("name", SCHEMES)
def test_a_resumed_run_continues(tmp_path: Path, name: str) -> None:
    options = {"run__scheme": f'"{name.split()[0]}"', "checkpoint__every": "{}", "checkpoint__keep": 1000}
    few = {} if name.startswith("a2c") else {"algorithm__epochs": 2, "algorithm__minibatches": 2}

    def config_for(steps: int) -> Any:
        return config_of("small_environments:Drift", run__steps=steps, **options, **few, **SCHEMES[name])

    config = config_for(100_000_000)
    directory, per_round = RunDirectory.create(tmp_path, "test"), Blueprint(config).gradients_per_round
    assert per_round > 1
    run_inline(
        build(config, directory.path),
        seconds=LIMIT_S,
        watch=lambda supervisor: saved_within_a_round(per_round, directory, supervisor),
    )
    checkpoint = next(found for found in list_checkpoints(directory.checkpoints) if within(found, per_round))
    write_json(directory.resume_file, {"update": checkpoint.update, "exact": False})

    before = int(checkpoint.state["env_steps"])
    outcome: Outcome = run_inline(build(config_for(before + STEPS), directory.path), seconds=LIMIT_S)
    assert (outcome.state, outcome.reason) == ("finished", f"{before + STEPS:,} steps")
    assert outcome.results["env_steps"] >= before + STEPS
    assert outcome.results["updates"] > checkpoint.state["updates"]


@pytest.mark.rotates
@pytest.mark.parametrize("name", ["a2c", "ppo", "rapid"])
def test_an_overdue_save_leaves_the_run_bit_identical(tmp_path: Path, name: str) -> None:
    """The recorder holds a turn as for any other save, and no actor resets."""
    ends = {}
    for autosave_s in (0.0, 1e-9):
        few = {} if name == "a2c" else {"algorithm__epochs": 2, "algorithm__minibatches": 2}
        options = {"run__scheme": f'"{name}"', "run__steps": STEPS, **few, "collection__communication": '"pipelined"'}
        always = {
            "checkpoint__every": "{updates=1000}",
            "checkpoint__keep": 1000,
            "gradients__communication": '"pipelined"',
        }
        config = config_of("small_environments:Drift", **options, **always, checkpoint__autosave_s=autosave_s)
        directory = RunDirectory.create(tmp_path, "test")
        outcome = run_inline(build(config, directory.path), seconds=LIMIT_S)
        found = list_checkpoints(directory.checkpoints)
        assert not any(checkpoint.scheduled for checkpoint in found)
        ends[autosave_s] = outcome.digest, len(found), {checkpoint.update for checkpoint in found}
    (plain, once, _), (saved, times, updates) = ends.values()
    assert plain == saved
    assert (once, times > 1) == (1, True)  # the one at the end, and others
    per_round = Blueprint(config).gradients_per_round
    assert not any(update % per_round for update in updates - {max(updates)})
