"""Stacks: of a process that is stuck, without its help; and nobody waits long for one that cannot say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hive.runtime.stacks import MOST_BYTES, read_stacks, stacks_file
from hive.runtime.stacks import _added as added

STUCK = """
import sys, threading
from pathlib import Path
from hive.runtime.stacks import listen_for_stacks

def inside_the_simulator():
    print("stuck", flush=True)
    sys.stdin.read()

def beside():
    threading.Event().wait()

listen_for_stacks(Path(sys.argv[1]), sys.argv[2])
threading.Thread(target=beside, daemon=True).start()
inside_the_simulator()
"""


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """Starts a process that is stuck in `inside_the_simulator`; its pid."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> int:
        command = [sys.executable, "-P", "-c", STUCK, str(tmp_path), name]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"stuck\n"
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


async def test_every_thread_says_where_it_is(stuck: Callable[[str], int], tmp_path: Path) -> None:
    pids = {name: stuck(name) for name in ("collector-0", "learner-0")}
    stacks = await read_stacks(tmp_path, pids)
    assert stacks.keys() == pids.keys()
    for stack in stacks.values():
        assert "in inside_the_simulator" in stack
        assert "in beside" in stack
    again = await read_stacks(tmp_path, {"learner-0": pids["learner-0"]})
    assert again["learner-0"].count("in inside_the_simulator") == 1  # what it said before is not told again


async def test_one_that_is_stopped_or_gone_says_nothing_and_keeps_nobody_waiting(
    stuck: Callable[[str], int], tmp_path: Path
) -> None:
    pids = {name: stuck(name) for name in ("a", "b", "c")}
    os.kill(pids["a"], signal.SIGSTOP)
    gone = subprocess.Popen([sys.executable, "-P", "-c", ""])
    gone.wait()
    pids["b"] = gone.pid
    stacks = await read_stacks(tmp_path, pids)
    assert (stacks["a"], stacks["b"]) == ("", "")
    assert "in inside_the_simulator" in stacks["c"]
    os.kill(pids["a"], signal.SIGCONT)


def test_a_file_that_somebody_fills_is_read_up_to_a_limit(tmp_path: Path) -> None:
    file = stacks_file(tmp_path, "a")
    file.write_bytes(b"x" * (MOST_BYTES + 5))
    assert len(added(file, 0)) == MOST_BYTES
    assert added(file, MOST_BYTES) == "xxxxx"
    assert added(tmp_path / "none", 0) == ""


async def test_nobody_asked_is_nothing_said(tmp_path: Path) -> None:
    assert await read_stacks(tmp_path, {}) == {}
