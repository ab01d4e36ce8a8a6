"""What the table of forked processes does with processes that actors leave; live/test_death.py tests the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hive.runtime.process.forked import ATTEMPTS, may_build_again
from hive.runtime.process.processes import Exit
from hive.runtime.process.spawning import OUTPUT

KILLED, CRASHED, STARVED = Exit(signal=signal.SIGKILL), Exit(signal=signal.SIGSEGV), Exit(signal=9, note="no memory")


@pytest.mark.parametrize(
    ("exits", "again"),
    [
        ([Exit(code=3)], False),
        ([Exit(code=0)], False),
        ([KILLED, Exit(code=3)], False),
        ([CRASHED], True),
        ([CRASHED, CRASHED], False),
        ([CRASHED, KILLED], True),
        ([STARVED, CRASHED], False),
        ([KILLED] * (ATTEMPTS - 1), True),
        ([KILLED] * ATTEMPTS, False),
    ],
)
def test_builds_are_repeated_after_kills_and_not_after_exits(exits: list[Exit], again: bool) -> None:
    assert may_build_again(exits) is again


# Runs in a process of its own, as it makes this process a subreaper and kills all of its children.
LEAVING = """
import asyncio, os, subprocess, sys
from hive.runtime.process.fork_server import Build
from hive.runtime.process.forked import ForkedProcesses

LEAVES = "sleep 60 & echo $!; setsid sleep 60 & echo $!; setsid sh -c 'sleep 60 & echo $!; wait' &"


async def main():
    processes = ForkedProcesses(Build("m:f", "", os.getpid(), "", ""), lambda kind, text: print(kind, text))
    left = subprocess.Popen(["sh", "-c", LEAVES], stdout=subprocess.PIPE, text=True)
    pids = [int(left.stdout.readline()) for _ in range(3)]
    left.wait()  # as an actor that has exited
    await processes.close()
    print(*(pid for pid in pids if os.path.exists(f"/proc/{pid}")))

asyncio.run(main())
"""


def test_what_environments_leave_in_sessions_of_their_own_is_killed_at_the_end() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", LEAVING],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        timeout=30,
        check=True,
    )
    assert done.stdout == "killed processes that actors had started and left running: 4\n\n"


FACTORY = """
from hive.runtime.actor.actor import Actor
from hive.runtime.topology.topology import Topology

class Idle(Actor):
    async def run(self): ...

def make(argument, allocated=False):
    print(f"allocated: {allocated}", flush=True)
    topology = Topology()
    topology.add(Idle)
    return topology
"""
RENEWED = """
import asyncio, os, signal, sys
from hive.runtime.process.fork_server import Build
from hive.runtime.process.forked import ForkedProcesses

async def main():
    build = Build("factory:make", "", os.getpid(), "", sys.argv[1])
    processes = ForkedProcesses(build, lambda kind, text: None)
    await processes.build_plan()
    killed = processes.server.pid
    os.kill(killed, signal.SIGKILL)
    while processes.server.pid == killed or processes.requesting.locked():
        await asyncio.sleep(0.001)
    await processes.build_plan()
    await processes.close()

asyncio.run(main())
"""


def test_a_fork_server_that_is_replaced_does_not_compare_the_run_with_the_memory_that_it_has_left(
    tmp_path: Path,
) -> None:
    """Only a plan whose memory is allocated next must fit what is free."""
    (tmp_path / "factory.py").write_text(FACTORY)
    subprocess.run([sys.executable, "-P", "-c", RENEWED, str(tmp_path)], cwd=tmp_path, timeout=30, check=True)
    lines = (tmp_path / OUTPUT).read_text().splitlines()
    assert [line for line in lines if line.startswith("allocated")] == [
        "allocated: False",
        "allocated: True",
        "allocated: False",
    ]
