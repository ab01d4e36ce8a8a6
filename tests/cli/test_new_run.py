"""What a new run says before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive.cli.parts.new_run import new_run
from hive.records import RunDirectory

ENV = '[env]\nid = "CartPole-v1"\n'


@pytest.mark.parametrize(
    ("sets", "ways"),
    [
        (["run.scheme=sac"], "algorithm.learning_starts = 100; -s algorithm.learning_starts=0 leaves them out"),
        (
            ["run.scheme=dqn", "algorithm.learning_starts=50"],
            "algorithm.exploration_start = 1.0; -s algorithm.exploration_start=0.01 leaves them out",
        ),
        (
            ["run.scheme=dqn"],
            "algorithm.learning_starts = 1,000 and algorithm.exploration_start = 1.0; "
            "-s algorithm.learning_starts=0 -s algorithm.exploration_start=0.01 leaves them out",
        ),
        (["run.scheme=sac", "algorithm.learning_starts=100"], ""),
        (["run.scheme=ppo"], ""),
    ],
)
def test_a_run_from_weights_that_begins_at_random_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sets: list[str], ways: str
) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    RunDirectory.create(tmp_path, "old")
    lines: list[object] = []
    new_run(None, [*sets, "run.init_from=old-1"], ENV, report=lines.append)
    begins = "warning: the run begins with random actions, not with those of run.init_from: "
    assert lines == ([begins + ways] if ways else [])
    lines.clear()
    new_run(None, sets, ENV, report=lines.append)
    assert lines == []
