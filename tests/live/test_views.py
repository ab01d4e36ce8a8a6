"""Views cost a run nothing, however many come, stay, go or are killed, and leave nothing behind.

Actors know nothing of views: it is the supervisor that reads their pages and tells whoever watches. What it computes is
counted by the kernel, so a busy machine does not disturb it much, and is compared with one percent of a core a view.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hive.records import read_run_facts
from hive.records.directory import RunDirectory
from hive.runtime.run.control import ControlClient, open_control

if TYPE_CHECKING:
    from conftest import House

CONFIG = """
[run]
scheme = "a2c"
name = "patient"
steps = 100_000_000
[env]
id = "patient_environment:Patient"
options = { step_s = 0.002 }
[collection]
envs = 2
rollout = 16
"""
TIMES = 100
VIEWS = 10
LOOKS = 20  # at descriptors: a supervisor has one more for as long as it reads a file of /proc, four times a second
DOCUMENTS = 3  # that each of them is told: a second apart
CORE_OF_A_VIEW = 0.01  # the most that one costs the run; 0.0003 where this was written
TICKS = os.sysconf("SC_CLK_TCK")
SPARE_BYTES = 8 << 20  # that a supervisor's memory may grow for buffers
SCREEN = b"\x1b[?1049h"  # what a terminal UI says first


def cpu_s(pid: int) -> float:
    """What this process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Cost:
    """What a supervisor computes between two documents that a watcher is told."""

    def __init__(self, client: ControlClient, status: dict[str, Any]) -> None:
        self.client = client
        self.supervisor = int(status["pid"])

    def over(self, documents: int) -> float:
        """CPU seconds a second."""
        self.client.next_status()
        before = cpu_s(self.supervisor)
        for _ in range(documents):
            self.client.next_status()
        return (cpu_s(self.supervisor) - before) / documents


@contextmanager
def terminal(house: House, *words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`hive ...` on a terminal of its own, and the other end of that."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "hive", *words],
        env={**house.env, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
        cwd=house.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        text=True,
        start_new_session=True,
    )
    os.close(theirs)
    house.started.append(process)
    try:
        yield process, ours
    finally:
        os.close(ours)


@pytest.mark.full(reason="measures CPU for ten seconds")
def test_views_cost_nothing_and_leave_nothing(house: House) -> None:
    assert house.hive("up", house.config(CONFIG), "-d").returncode == 0
    house.until_steps("patient-1", 200)
    folder = Path(read_run_facts(RunDirectory.open(house.home / "patient-1")).socket_folder)
    with closing(open_control(folder)) as watcher:
        cost = Cost(watcher, watcher.watch())
        alone = cost.over(DOCUMENTS)
        held, memory = min(descriptors(cost.supervisor) for _ in range(LOOKS)), resident(cost.supervisor)

        for _ in range(TIMES):  # come and go
            with closing(open_control(folder)) as client:
                client.watch()
        house.until(lambda: descriptors(cost.supervisor) == held)

        with ExitStack() as stack:  # many at once
            views = [stack.enter_context(closing(open_control(folder))) for _ in range(VIEWS)]
            for view in views:
                view.watch()
            together = cost.over(DOCUMENTS)
            for view in views:
                assert all(view.next_status()["state"] == "running" for _ in range(DOCUMENTS))
        house.until(lambda: descriptors(cost.supervisor) == held)
        assert together - alone < CORE_OF_A_VIEW * VIEWS

        with terminal(house, "monitor", "patient-1") as (monitor, screen):  # one that is killed
            seen = b""
            while b"bound by" not in seen:
                seen += os.read(screen, 1 << 16)
            assert SCREEN in seen
            house.until(lambda: descriptors(cost.supervisor) == held + 1)
            os.kill(monitor.pid, signal.SIGKILL)
            monitor.wait()
        house.until(lambda: descriptors(cost.supervisor) == held)
        assert resident(cost.supervisor) - memory < SPARE_BYTES
    assert house.hive("down").returncode == 0
    assert house.ended("patient-1")["restarts"] == dict.fromkeys(
        ("collector-0", "gradient-worker-0", "learner-0", "recorder"), 0
    )
