"""The files of environments that processes step: written and read again, absent, damaged and odd."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hive.errors import RecordError
from hive.records import RunDirectory, environments
from hive.records.environments import (
    LEFT_OUT,
    EnvironmentRow,
    environments_of,
    failure_counts,
    forget_environments,
    median_step_s,
    read_environments,
    without_processes,
    worst_step_s,
    write_environments,
)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "cartpole")


def row(index: int, **changes: Any) -> EnvironmentRow:
    return dataclasses.replace(EnvironmentRow(index, 100 + index, 0, "running", 0, 1000, 1e-4, 0.4), **changes)


def test_rows_are_read_as_they_were_written(run: RunDirectory) -> None:
    rows = (row(3, failures=2, incarnation=1, last_failure="killed by SIGSEGV while stepping"), row(4))
    write_environments(run, "collector-0", [row(9)])
    write_environments(run, "collector-0", reversed(rows))
    write_environments(run, "collector-1", [row(5, median_step_s=float("nan"), worst_step_s=None)])
    assert read_environments(run, "collector-0") == rows
    known = environments_of(run)
    assert [*known] == ["collector-0", "collector-1"]
    assert known["collector-1"] == (row(5, median_step_s=None, worst_step_s=None),)
    assert sorted(os.listdir(run.environments)) == ["collector-0.json", "collector-1.json"]


def test_nothing_is_read_where_there_is_nothing(run: RunDirectory) -> None:
    assert (read_environments(run, "collector-0"), environments_of(run)) == ((), {})
    forget_environments(run)
    write_environments(run, "collector-0", [row(0)])
    forget_environments(run)
    assert environments_of(run) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"environments": [{"index": 0, "pid"',
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"environments": {"index": 0}}',
        b'{"environments": 7}',
        b"[]",
    ],
)
def test_a_damaged_file_has_no_rows(run: RunDirectory, content: bytes) -> None:
    run.environments.mkdir()
    (run.environments / "collector-0.json").write_bytes(content)
    assert environments_of(run) == {}


def test_rows_that_do_not_fit_are_left_out(run: RunDirectory) -> None:
    good = dataclasses.asdict(row(1))
    odd: list[Any] = [7, None, {}, good | {"index": -1}, good | {"pid": "1"}, good | {"steps": 1e400}]
    odd += [
        good | {"state": None},
        good | {"failures": True},
        good | {"median_step_s": "fast"},
        good | {"worst_step_s": -1},
    ]
    long = good | {"index": 2, "last_failure": "x" * 10_000, "state": "y" * 10_000, "of a newer version": 1}
    run.environments.mkdir()
    (run.environments / "collector-0.json").write_text(json.dumps({"environments": [*odd, long, good]}))
    first, second = read_environments(run, "collector-0")
    assert first == row(1)
    assert (len(second.last_failure), len(second.state)) == (environments.MOST_TEXT, environments.MOST_STATE)


def test_what_is_no_file_or_too_large_is_not_read(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    run.environments.mkdir()
    os.mkfifo(run.environments / "pipe.json")
    (run.environments / "link.json").symlink_to("/dev/zero")
    (run.environments / "folder.json").mkdir()
    write_environments(run, "many", [row(n) for n in range(5)])
    assert [*environments_of(run)] == ["many"]
    monkeypatch.setattr(environments, "MOST_ENVIRONMENTS", 3)
    assert len(read_environments(run, "many")) == 3
    monkeypatch.setattr(environments, "MOST_BYTES", 100)
    assert environments_of(run) == {}


def test_a_file_that_cannot_be_written_is_an_error(run: RunDirectory) -> None:
    run.environments.write_text("in the way")
    with pytest.raises(RecordError, match="environments"):
        write_environments(run, "collector-0", [row(0)])


def test_failures_are_counted_in_all_and_for_each_that_failed() -> None:
    assert failure_counts([]) == {}
    assert failure_counts([row(0), row(1)]) == {"environments/failures": 0}
    counts = failure_counts([row(0, failures=1), row(1), row(12, failures=3)])
    assert counts == {"environments/failures": 4, "environments/0/failures": 1, "environments/12/failures": 3}


def test_the_median_of_two_is_that_of_the_faster_one() -> None:
    rows = [row(0), row(1, median_step_s=9e-4, worst_step_s=2.0)]
    assert (median_step_s(rows), worst_step_s(rows)) == (1e-4, 2.0)
    unknown = [row(0, median_step_s=None, worst_step_s=None)]
    assert (median_step_s(unknown), worst_step_s(unknown)) == (None, None)


def test_environments_of_an_ended_actor_have_no_processes() -> None:
    rows = without_processes([row(0), row(1, state=LEFT_OUT, pid=0)], "finished")
    assert [(one.state, one.pid) for one in rows] == [("finished", 0), (LEFT_OUT, 0)]
