"""How a run that fails before its actors start is concluded. Whole runs are in tests/live."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hive.config import load_config, render
from hive.errors import RecordError
from hive.records import RunDirectory, Summary, run_state
from hive.runtime.run import execute


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run whose supervisor raises an error that no one expects."""
    made = RunDirectory.create(tmp_path, "cart")
    made.resolved_file.write_text(render(load_config("cart.toml", text='[env]\nid = "CartPole-v1"\n')))

    async def forked(*arguments: Any) -> None:
        raise ConnectionResetError("the line is cut")

    monkeypatch.setattr(execute, "_forked", forked)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return made


def test_an_unexpected_error_of_the_supervisor_has_a_failure_a_summary_and_a_report(directory: RunDirectory) -> None:
    assert execute.run_forked(directory, None) == 1  # type: ignore[arg-type]  # the server is not used
    stored = json.loads(directory.failure_file.read_text())
    assert stored["error"] == "the supervisor failed: ConnectionResetError: the line is cut"
    assert "in forked" in stored["traceback"]
    assert stored["hint"] == f"the report is in {directory.crash_file('supervisor', 1)}"
    summary = Summary.read(directory.summary_file)
    assert (summary.state, summary.stop_reason) == ("failed", "it could not start")


def test_a_run_without_room_for_its_sockets_names_the_cause(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**options: Any) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert execute.run_forked(directory, None) == 3  # type: ignore[arg-type]
    stored = json.loads(directory.failure_file.read_text())
    assert stored["error"].startswith("cannot make a folder for sockets in ")
    assert stored["error"].endswith(": No space left on device")
    assert stored["hint"].startswith("set TMPDIR")


def test_a_full_disk_does_not_prevent_the_summary(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise RecordError("no space left")

    monkeypatch.setattr(execute, "write_failure", full)
    assert execute.run_forked(directory, None) == 1  # type: ignore[arg-type]
    assert run_state(directory) == "failed"
