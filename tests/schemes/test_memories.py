"""Policies that remember and rows of several parts: runs are bit-identical, with either carrier and when resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import STEPS, Run, check_end, modes, train
from small_trainer import LIMIT_S

import hive
from hive.records import list_checkpoints, remove_folder, write_json
from hive.schemes import build
from hive.testing import run_inline

MEMORY: dict[str, Any] = {
    "network__memory": '"lstm"',
    "network__memory_size": 4,
    "network__normalize_observations": "true",
    "env__options": "{truncates=5}",
}
FEW = {"algorithm__epochs": 2, "algorithm__minibatches": 2}
TWO = modes("pipelined", "pipelined", 2, 2)
STACK = {**MEMORY, "network__memory": '"none"', "env__frame_stack": 3}
ROOMS = {**STACK, "env__id": '"small_environments:Rooms"', "env__action_mask": '"action_mask"'}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo 2 x 2, rooms": ("ppo", {**TWO, **FEW, **ROOMS}),
    "ppo 2 x 2, novelty": ("ppo", {**TWO, **FEW, **ROOMS, "network__novelty_weight": 0.5}),
    "a2c 2 x 2, frames": ("a2c", {**TWO, **STACK}),
    "impala, frames and lstm": ("impala", {**modes("pipelined", "pipelined", 1, 1), "env__frame_stack": 2}),
    "nstep-q, rooms": ("nstep-q", {**modes("synchronous", "synchronous", 2, 2), **ROOMS}),
    "pqn, frames": ("pqn", {**modes("pipelined", "pipelined", 1, 1), **STACK, **FEW}),
    "a2c 1 x 1": ("a2c", modes("synchronous", "synchronous", 1, 1)),
    "a2c 2 x 2, separate": ("a2c", {**TWO, "network__separate_networks": "true"}),
    "ppo 2 x 2": ("ppo", {**TWO, **FEW}),
    "ppo in one process": ("ppo", {**modes("pipelined", "synchronous", 0, 0), **FEW}),
    "impala, gru": ("impala", {**modes("pipelined", "pipelined", 1, 1), "network__memory": '"gru"'}),
}
FULL = pytest.mark.full(reason="other schemes and numbers of workers", rotates=True)
EVERYDAY = ("a2c 2 x 2, separate",)
EVERY = [name if name in EVERYDAY else pytest.param(name, marks=FULL) for name in RUNS]


def recurrent(folder: Path, scheme: str, **values: Any) -> Run:
    return train(folder, scheme, **{"run__steps": 4 * STEPS, **MEMORY, **values})


@pytest.mark.parametrize("name", EVERY)
def test_every_run_is_the_same_run(tmp_path: Path, name: str) -> None:
    """With either carrier, and resumed: at a resume barrier every environment is reset, and every state is zeros."""
    scheme, values = RUNS[name]
    values = {"run__steps": 4 * STEPS, **MEMORY, **values, "checkpoint__every": "{updates=4}", "checkpoint__keep": 1000}
    whole = train(tmp_path, scheme, **values)
    digest = whole.outcome.digest
    assert digest != ""
    assert digest == train(tmp_path, scheme, **values, run__carrier='"zmq"').outcome.digest
    assert digest != train(tmp_path, scheme, run__seed=2, **values).outcome.digest
    checkpoints = whole.directory.checkpoints
    first, *later = [found for found in list_checkpoints(checkpoints) if found.scheduled]
    assert later
    for checkpoint in list_checkpoints(checkpoints):
        if checkpoint.update > first.update:
            remove_folder(checkpoint.path)
    write_json(whole.directory.resume_file, {"update": first.update, "exact": True})
    resumed = run_inline(build(whole.config, whole.directory.path), seconds=LIMIT_S)
    assert resumed.digest == digest


@pytest.mark.full(reason="the states travel in rollouts whatever the mode", rotates=True)
def test_asynchronous_runs_end(tmp_path: Path) -> None:
    run = train(tmp_path, "impala", **{**MEMORY, "env__options": "{}"}, **modes("asynchronous", "asynchronous", 2, 2))
    check_end(run)


def test_its_policy_is_loaded_and_evaluated(tmp_path: Path) -> None:
    run = recurrent(tmp_path, "a2c", **RUNS["a2c 1 x 1"][1], evaluation__every="{updates=12}", evaluation__episodes=2)
    policy = hive.load(str(run.directory.path), "best")
    state = policy.initial_state()
    assert state is not None
    assert state.shape == (8,)
    _, after = policy(np.zeros(3, np.float32), state)
    assert after.any()
