"""What the table of forked processes does with processes that actors leave; live/test_death.py tests the rest."""

from __future__ import annotations

import os
import subprocess
import sys

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
    assert done.stdout == "killed 4 processes that actors had started and left running\n\n"
