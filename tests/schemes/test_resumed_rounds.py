"""A run resumed with rounds of another shape makes as many updates of its further steps as a new run of that shape.

Every key that shapes a round, up and down, with algorithms of every kind: no update is made of a memory to which no
step is added, no collector waits for weights of rounds that are missing, and schedules continue at the same step.
"""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from small_trainer import LIMIT_S, config_of

from hive.config import Config
from hive.errors import ConfigError
from hive.records import RunDirectory, list_checkpoints, write_resume_point
from hive.records.checkpoints.together import others_of
from hive.runtime.supervise.outcome import Outcome
from hive.schemes import build
from hive.testing import run_inline
from hive.training import Blueprint
from hive.training.run_start import schedule_start

DONE, MORE = 640, 640
DQN: dict[str, Any] = {
    "run__scheme": '"dqn"',
    "algorithm__updates_per_step": '"1/2"',
    "algorithm__learning_starts": 64,
    "algorithm__batch_size": 8,
    "algorithm__replay_capacity": 2_000,
    "algorithm__exploration_steps": 2_000,
}
TWO = {"collection__workers": 2, "gradients__workers": 2}
PIPELINED = {"collection__communication": '"pipelined"', "gradients__communication": '"pipelined"', **TWO}
SMALL_PPO = {"run__scheme": '"ppo"', "algorithm__epochs": 2, "algorithm__minibatches": 2, **TWO}
RUNS: dict[str, dict[str, Any]] = {
    "dqn": DQN,
    "dqn without rows": {**DQN, "checkpoint__replay": "false"},
    "dqn pipelined": {**DQN, **PIPELINED},
    "dqn asynchronous": {**DQN, **TWO, "collection__communication": '"asynchronous"'},
    "nstep-q": {"run__scheme": '"nstep-q"', "algorithm__exploration_steps": 2_000, **TWO},
    "ppo": SMALL_PPO,
    "ppo pipelined": {**SMALL_PPO, **PIPELINED},
    "two": {**DQN, "env__id": "small_agents:Together", "policies__one": '"same"', "policies__two": '"other"'},
}
KEYS: dict[str, tuple[Any, ...]] = {
    "collection__communication": ('"pipelined"',),
    "algorithm__n_step": (3,),
    "algorithm__replay_capacity": (400, 4_000),
    "collection__rollout": (4, 32),
    "collection__envs": (1, 4),
    "collection__workers": (1, 4),
    "collection__broadcast_interval": (3,),
    "gradients__bootstrap_rounds": (2,),
    "gradients__workers": (0, 1),
    "algorithm__updates_per_step": ('"1/16"', '"2"'),
    "algorithm__learning_starts": (0, 300),
    "algorithm__epochs": (1, 5),
    "algorithm__minibatches": (1, 4),
    "algorithm__batch_size": (4, 16),
    "policies__two": ('{agents="other", algorithm={updates_per_step="1/16"}}',),
}
REPLAY_SHAPE = (
    "collection__envs",
    "collection__workers",
)  # rows of a memory belong to them: `hive resume` refuses both


def configured(run: dict[str, Any], steps: int, **changed: Any) -> Config | None:
    """The config of a run; None if its algorithm has no such key, or refuses the value."""
    values = {"checkpoint__every": "{}", **run, **changed}
    try:
        return config_of(values.pop("env__id", "small_environments:Drift"), run__steps=steps, **values)
    except ConfigError:
        return None


def changes_of(name: str) -> list[tuple[str, Any]]:
    """The changes that a resumed run of this kind can have."""
    run = RUNS[name]
    pairs = [(key, value) for key, values in KEYS.items() for value in values]
    kept = [pair for pair in pairs if not (name.startswith(("dqn", "two")) and pair[0] in REPLAY_SHAPE)]
    kept = [pair for pair in kept if pair[0] != "policies__two" or name == "two"]
    return [(key, value) for key, value in kept if configured(run, DONE + MORE, **{key: value}) is not None]


def run_to_end(config: Config | None, directory: RunDirectory) -> tuple[Outcome, list[Blueprint]]:
    """Run until the end; return the outcome, and the blueprint of each policy."""
    assert config is not None
    topology = build(config, directory.path)
    outcome: Outcome = run_inline(topology, seconds=LIMIT_S)
    assert (outcome.state, outcome.error) == ("finished", "")
    return outcome, [group.parameters["blueprint"] for group in topology.groups.values() if group.cls.role == "learner"]


def updates_in(directory: RunDirectory) -> list[int]:
    """The updates of each policy at the end of its run."""
    newest = [list_checkpoints(folder.checkpoints)[-1] for folder in (directory, *others_of(directory))]
    return [int(one.state["updates"]) for one in newest]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDirectory]:
    """The directory of a run of each kind."""
    made = {}
    for name, run in RUNS.items():
        made[name] = RunDirectory.create(tmp_path_factory.mktemp("runs"), "run")
        run_to_end(configured(run, DONE), made[name])
    return made


def copied(run: RunDirectory, path: Path) -> RunDirectory:
    """A copy of a run that continues from its newest checkpoint."""
    shutil.copytree(run.path, path)
    directory = RunDirectory(path)
    for one in (directory, *others_of(directory)):
        write_resume_point(one, list_checkpoints(one.checkpoints)[-1].update, why="another shape")
    return directory


@pytest.mark.rotates
@pytest.mark.parametrize(("name", "key", "value"), [(n, *change) for n in RUNS for change in changes_of(n)])
def test_a_resumed_run_goes_on_in_rounds_of_another_shape(
    tmp_path: Path, trained: dict[str, RunDirectory], name: str, key: str, value: Any
) -> None:
    directory = copied(trained[name], tmp_path / "copy")
    before = updates_in(directory)
    outcome, blueprints = run_to_end(configured(RUNS[name], DONE + MORE, **{key: value}), directory)
    # An asynchronous run leaves the updates of its last rounds unmade; one that was saved within a round goes on there.
    open_rounds = 2 + (blueprints[0].config.collection.max_lag + 1 if "asynchronous" in name else 0)
    for blueprint, first, last in zip(blueprints, before, updates_in(directory), strict=True):
        each = blueprint.gradients_per_round / blueprint.config.gradients.bootstrap_rounds
        held = blueprint.config.value("algorithm.learning_starts") if name == "dqn without rows" else 0  # again
        expected = (MORE - held) / blueprint.round_steps * each
        assert abs(last - first - expected) <= open_rounds * each
        assert abs(schedule_start(blueprint)) <= open_rounds
    assert 0 <= outcome.results["env_steps"] - DONE - MORE < open_rounds * blueprints[0].round_steps


def test_native_rounds_wait_for_the_rows_that_the_first_update_needs(
    tmp_path: Path, trained: dict[str, RunDirectory]
) -> None:
    """As updates one by one do: with a memory that is empty after a resume, both have the same bytes."""
    digests = {}
    for native in ("true", "false"):
        directory = copied(trained["dqn without rows"], tmp_path / native)
        more = {"gradients__native_rounds": native, "algorithm__learning_starts": 200}
        outcome, _ = run_to_end(configured(RUNS["dqn without rows"], DONE + MORE, **more), directory)
        digests[native] = outcome.digest
    assert digests["true"] == digests["false"]


def test_every_key_is_tried() -> None:
    tried = {key for name in RUNS for key, _ in changes_of(name)}
    assert tried == KEYS.keys()
    assert all(len(changes_of(name)) > 5 for name in RUNS)
    assert len(list(product(RUNS, KEYS))) > 60
