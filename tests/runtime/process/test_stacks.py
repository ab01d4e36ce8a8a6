"""Stacks of a process, also of a stuck one; the reader does not wait long for one that cannot answer."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hive.runtime.process.stacks import MAX_BYTES, MAX_CALLS, TASKS, companions, read_stacks, stacks_file, tasks_text
from hive.runtime.process.stacks import _added as added

STUCK = """
import sys, threading
from pathlib import Path
from hive.runtime.process.stacks import listen_for_stacks

def inside_the_simulator():
    print("stuck", flush=True)
    sys.stdin.read()

def beside():
    threading.Event().wait()

listen_for_stacks(Path(sys.argv[1]), sys.argv[2])
threading.Thread(target=beside, daemon=True).start()
inside_the_simulator()
"""

HELPED = """
import sys
from pathlib import Path
from hive.runtime.process.user_code.companion import Companion
from hive.runtime.process.stacks import listen_for_stacks

def inside_the_environment():
    print("stuck", flush=True)
    sys.stdin.read()

listen_for_stacks(Path(sys.argv[1]), sys.argv[2])
Companion(inside_the_environment, "hive:helper-1", "failed").exited(60.0)
"""  # like a collector that waits for its helper
NATIVE = """
import faulthandler, signal, sys

signal.signal(signal.SIGUSR1, signal.SIG_IGN)
faulthandler.register(signal.SIGUSR2, file=open(f"{sys.argv[1]}/{sys.argv[2]}.stacks", "ab", 0))
print("stuck", flush=True)
sys.stdin.read()
"""  # like a process stuck in native code: no handler in Python runs
READING = """
import ctypes, sys
from pathlib import Path
from hive.runtime.process.stacks import listen_for_stacks

listen_for_stacks(Path(sys.argv[1]), sys.argv[2])
print("stuck", flush=True)
byte = ctypes.create_string_buffer(1)
print(ctypes.CDLL(None).read(0, byte, 1), flush=True)
"""  # like an environment in C that waits for its simulator
WAITING = """
import asyncio, sys, types
from pathlib import Path
import uvloop
from hive.runtime.process.stacks import listen_for_stacks

async def the_answer():
    await asyncio.get_running_loop().create_future()

async def ask():
    await the_answer()

def generator():
    yield from asyncio.get_running_loop().create_future()

@types.coroutine
def old_style():
    yield from generator()

async def beside():
    await old_style()

async def main():
    asyncio.current_task().set_name("a-1")
    kept = asyncio.create_task(beside(), name="b-2")  # the loop alone does not keep a task from the garbage collector
    await asyncio.sleep(0)
    listen_for_stacks(Path(sys.argv[1]), sys.argv[2])
    asyncio.get_running_loop().call_soon(lambda: print("stuck", flush=True))
    await ask()

(uvloop.run if sys.argv[3] == "uvloop" else asyncio.run)(main())
"""


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Start a process that is stuck in `inside_the_simulator`, or runs another program; return its pid."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, program: str = STUCK, *words: str) -> int:
        command = [sys.executable, "-P", "-c", program, str(tmp_path), name, *words]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"stuck\n"
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


async def test_every_thread_has_a_stack(stuck: Callable[[str], int], tmp_path: Path) -> None:
    pids = {name: stuck(name) for name in ("collector-0", "learner-0")}
    stacks = await read_stacks(tmp_path, pids)
    assert stacks.keys() == pids.keys()
    for stack in stacks.values():
        assert "in inside_the_simulator" in stack
        assert "in beside" in stack
    again = await read_stacks(tmp_path, {"learner-0": pids["learner-0"]})
    assert again["learner-0"].count("in inside_the_simulator") == 1  # only the new text is read


async def test_a_companion_has_a_stack_before_that_of_its_process(stuck: Callable[..., int], tmp_path: Path) -> None:
    pid = stuck("a", HELPED)
    assert [*companions(pid).values()] == ["helper-1"]
    stack = (await read_stacks(tmp_path, {"a": pid}))["a"]
    assert re.match(r"helper-1 \(pid \d+\):\n", stack)
    companion, _, process = stack.partition("in exited")
    assert "in inside_the_environment" in companion
    assert "in inside_the_environment" not in process


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_tasks_have_the_calls_that_they_await(stuck: Callable[..., int], tmp_path: Path, loop: str) -> None:
    """The stacks of threads show only the event loop."""
    stack = (await read_stacks(tmp_path, {"a": stuck("a", WAITING, loop)}))["a"]
    threads, _, tasks = stack.partition(TASKS)
    assert threads.strip()
    calls = [line.split()[-1] if line.startswith("    ") else line.strip() for line in tasks.strip("\n").splitlines()]
    assert [call for call in calls if call != "run.<locals>.wrapper"] == [
        "a-1",
        "the_answer",
        "ask",
        "main",
        "b-2",
        "generator",
        "old_style",
        "beside",
    ]


async def test_a_stuck_process_writes_only_the_stacks_of_threads(stuck: Callable[..., int], tmp_path: Path) -> None:
    stack = (await read_stacks(tmp_path, {"a": stuck("a", NATIVE)}))["a"]
    assert "in <module>" in stack
    assert TASKS not in stack


async def test_reading_stacks_interrupts_no_system_call_of_native_code(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", READING, str(tmp_path), "a"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"stuck\n"
        for _ in range(3):
            assert "in <module>" in (await read_stacks(tmp_path, {"a": process.pid}))["a"]
        process.stdin.write(b"x")
        process.stdin.flush()
        assert process.stdout.readline() == b"1\n"


def test_without_a_loop_there_are_no_tasks() -> None:
    assert tasks_text() == f"{TASKS} no event loop runs"


async def test_a_chain_of_calls_is_bounded() -> None:
    async def deep(left: int) -> None:
        await (deep(left - 1) if left else asyncio.sleep(1e9))

    task = asyncio.create_task(deep(2 * MAX_CALLS), name="deep")
    await asyncio.sleep(0)
    try:
        assert tasks_text().count("in test_a_chain_of_calls_is_bounded.<locals>.deep") == MAX_CALLS
    finally:
        task.cancel()


async def test_a_stopped_or_exited_process_has_no_stacks_and_does_not_block(
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


def test_a_huge_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    file = stacks_file(tmp_path, "a")
    file.write_bytes(b"x" * (MAX_BYTES + 5))
    assert len(added(file, 0)) == MAX_BYTES
    assert added(file, MAX_BYTES) == "xxxxx"
    assert added(tmp_path / "none", 0) == ""


async def test_no_processes_no_stacks(tmp_path: Path) -> None:
    assert await read_stacks(tmp_path, {}) == {}
