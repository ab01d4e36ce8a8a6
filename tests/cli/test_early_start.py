"""A supervisor that starts before its run has a directory leaves no process if no run takes it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hive.launch import early_start

LIMIT_S = 60.0  # time limit for starting and ending processes on a busy machine


@pytest.fixture
def supervisor() -> Iterator[subprocess.Popen[bytes]]:
    early_start.begin(["up", "run.toml"])
    ((process, _),) = early_start._waiting
    yield process
    early_start.abandon()


def _fork_server(supervisor: int) -> int:
    """Return a descriptor of a supervisor's child, once it has one."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children")
    while not (found := children.read_text().split()):
        os.sched_yield()
    return os.pidfd_open(int(found[0]))


def _assert_ends(process: int) -> None:
    try:
        assert select.select([process], [], [], LIMIT_S)[0], "it still runs"
    finally:
        os.close(process)


def test_an_abandoned_supervisor_and_its_fork_server_end(supervisor: subprocess.Popen[bytes]) -> None:
    server = _fork_server(supervisor.pid)
    early_start.abandon()
    assert supervisor.returncode is not None
    _assert_ends(server)


def test_a_supervisor_ends_with_the_command_that_started_it(supervisor: subprocess.Popen[bytes]) -> None:
    server = _fork_server(supervisor.pid)
    ((_, line),) = early_start._waiting
    line.close()  # as the kernel does when the command is killed
    assert supervisor.wait(LIMIT_S) == 0
    _assert_ends(server)


def test_a_supervisor_that_has_exited_takes_no_run(supervisor: subprocess.Popen[bytes], tmp_path: Path) -> None:
    server = _fork_server(supervisor.pid)
    supervisor.kill()
    supervisor.wait()
    _assert_ends(server)
    assert early_start.hand_over(tmp_path, tmp_path, None) is None


@pytest.mark.parametrize("words", [["up", "--help"], ["up", "run.toml", "--inline"], ["check", "run.toml"], []])
def test_other_commands_start_no_supervisor(words: list[str]) -> None:
    early_start.begin(words)
    assert early_start.hand_over(Path(), Path(), None) is None


def test_what_starts_it_imports_neither_numpy_nor_the_records() -> None:
    late = ("numpy", "msgpack", "hive.records", "hive.config")
    code = f"import sys, hive.launch.early_start; print([name for name in {late} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True).stdout == "[]\n"
