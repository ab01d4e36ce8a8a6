"""The environment of a supervisor's process."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive.runtime.process import command


def test_processes_of_a_run_import_hive_from_the_source_folder_of_their_parent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "source_folder", lambda: tmp_path)
    monkeypatch.setenv("PYTHONPATH", "mine")
    assert command.supervisor_environment()["PYTHONPATH"] == f"{tmp_path}:mine"
    monkeypatch.delenv("PYTHONPATH")
    assert command.supervisor_environment()["PYTHONPATH"] == str(tmp_path)
    monkeypatch.setattr(command, "source_folder", lambda: None)
    assert "PYTHONPATH" not in command.supervisor_environment()
