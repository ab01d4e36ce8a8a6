"""Every example is a config that loads and a topology that stands. (The main one trains to its end in tests/live.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from hive.config import load_config
from hive.schemes import build

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_can_be_planned(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    plan = build(config, tmp_path).plan()
    assert config.run.stop_at_return is not None
    assert f"hive up examples/{path.name}" in path.read_text()
    assert len(plan.actors) == 2 + max(config.collection.workers, 1) + max(config.gradients.workers, 1)


def test_there_are_examples() -> None:
    assert {"cartpole", "acrobot", "cartpole-ppo", "cartpole-impala"} <= {path.stem for path in EXAMPLES}
