"""The scheme `single`: one training process, and the same bytes as `a2c` with the same keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from small_trainer import LIMIT_S, config_of

from hive.config import load_config
from hive.records import RunDirectory
from hive.schemes import build
from hive.testing import run_inline

ENV = "small_environments:Drift"


def digest(folder: Path, **values: Any) -> str:
    directory = RunDirectory.create(folder, "test")
    config = config_of(ENV, run__steps=256, algorithm__learning_rate=0.05, **values)
    outcome = run_inline(build(config, directory.path), seconds=LIMIT_S)
    assert outcome.state == "finished"
    return outcome.digest


def test_everything_is_one_process_beside_the_recorder(tmp_path: Path) -> None:
    config = load_config("run.toml", text=f'[run]\nscheme = "single"\n[env]\nid = "{ENV}"\n')
    plan = build(config, tmp_path).plan()
    found = {name: [plan.actors[n].name for n in numbers] for name, numbers in plan.processes.items()}
    assert found == {"learner-0": ["collector-0", "gradient-worker-0", "learner-0"], "recorder": ["recorder"]}
    assert (config.collection.max_lag, config.gradients.max_lag) == (0, 0)


def test_it_is_a2c_in_one_process(tmp_path: Path) -> None:
    assert digest(tmp_path, run__scheme='"single"') == digest(tmp_path)


def test_it_only_sets_defaults(tmp_path: Path) -> None:
    """Two collectors of their own, pipelined, are what the file asks for."""
    asked = {"collection__workers": 2, "collection__communication": '"pipelined"'}
    config = config_of(ENV, run__scheme='"single"', **asked)
    assert [a.process for a in build(config, tmp_path).plan().actors][:3] == [
        "collector-0",
        "collector-1",
        "learner-0",
    ]
    assert digest(tmp_path, run__scheme='"single"', **asked) == digest(tmp_path, **asked)
