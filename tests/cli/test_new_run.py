"""What a new run says before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive.launch.new_run import new_run
from hive.records import RunDirectory, read_jsonl, write_checkpoint
from hive.records.owner import give_up
from hive.records.run_warnings import warnings_of

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
    old = RunDirectory.create(tmp_path, "old")
    write_checkpoint(old.checkpoints, 5, tensors={}, parts={}, state={})

    def told(*more: str) -> list[str]:
        run = new_run(None, [*sets, *more], ENV)
        give_up(run)
        return [warning.line for warning in warnings_of(read_jsonl(run.events_file)).values()]

    begins = "random beginning: the run begins with random actions, not with those of run.init_from: "
    assert told("run.init_from=old-1") == ([begins + ways] if ways else [])
    assert told() == []
    assert told("run.init_from=old-1", 'run.accept=["random beginning"]') == []
