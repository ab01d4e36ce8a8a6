"""The supervisor's process: its fork server exits with it in all cases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hive.runtime.process.spawning import OUTPUT

LIMIT_S = 60.0  # time limit for starting Python on a busy machine


def test_a_supervisor_that_fails_at_the_start_leaves_no_fork_server(tmp_path: Path) -> None:
    mark = f"{tmp_path.name}-{os.getpid()}"
    run = subprocess.run(
        [sys.executable, "-P", "-m", "hive.runtime.run", str(tmp_path / "no run"), str(tmp_path)],
        env={**os.environ, "MARK": mark},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert run.returncode == 1, run.stderr
    assert (tmp_path / OUTPUT).exists(), "it was started"
    assert _marked(mark) == []


def _marked(mark: str) -> list[str]:
    """Return the running processes with this text in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(entry.name)
        except OSError:
            pass  # it has exited, or belongs to another user
    return found
