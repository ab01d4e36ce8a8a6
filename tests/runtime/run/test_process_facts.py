"""Facts read from a folder that resembles /proc, and once from the real one."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hive.runtime.run.process_facts import PAGE_BYTES, TICKS, ProcessPoller


def write(proc: Path, pid: int, ticks: int, *, state: str = "S", start: int = 50, pages: int = 3) -> None:
    fields = ["0"] * 52
    fields[0], fields[11], fields[12], fields[19], fields[21] = state, str(ticks), "1", str(start), str(pages)
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(f"{pid} (hive:a b) c) {' '.join(fields)}\n")


def test_cores_used_are_a_difference(tmp_path: Path) -> None:
    poller = ProcessPoller(tmp_path)
    write(tmp_path, 7, 100)
    first = poller.facts([7, 0, 8], 10.0)
    assert first.keys() == {7}
    assert (first[7].state, first[7].cpu, first[7].memory_bytes) == ("S", None, 3 * PAGE_BYTES)
    write(tmp_path, 7, 100 + TICKS, state="T")
    second = poller.facts([7], 12.0)
    assert (second[7].state, second[7].cpu) == ("T", 0.5)


def test_a_reused_pid_is_another_process(tmp_path: Path) -> None:
    poller = ProcessPoller(tmp_path)
    write(tmp_path, 7, 1000)
    poller.facts([7], 1.0)
    write(tmp_path, 7, 5, start=99)
    assert poller.facts([7], 2.0)[7].cpu is None
    write(tmp_path, 7, 5 + TICKS // 2, start=99)
    assert poller.facts([7], 3.0)[7].cpu == 0.5


def test_a_process_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    poller = ProcessPoller(tmp_path)
    write(tmp_path, 7, 1)
    poller.facts([7], 1.0)
    assert poller.facts([], 2.0) == {}
    assert poller.before == {}


def test_only_available_cores_are_counted(tmp_path: Path) -> None:
    poller = ProcessPoller(tmp_path)
    poller.affinity, poller.cores = {0, 2}, 2
    idle = "cpu{} 0 0 0 {} 0 0 0 0 0 0\n"
    (tmp_path / "stat").write_text("cpu 9 9 9 9 9 9 9 9\n" + "".join(idle.format(n, 0) for n in range(3)))
    assert poller.cores_busy() is None
    lines = "cpu0 50 0 0 50 0 0 0 0\ncpu1 100 0 0 0 0 0 0 0\ncpu2 0 0 100 0 0 0 0 0\nintr 1 2\n"
    (tmp_path / "stat").write_text(lines)
    assert poller.cores_busy() == 1.5
    assert poller.cores_busy() is None  # no time has gone by
    poller.cores = 1  # a quota, which only the programs of its control group use up
    assert poller.cores_busy() is None


def test_without_a_proc_nothing_is_known(tmp_path: Path) -> None:
    assert ProcessPoller(tmp_path / "none").cores_busy() is None


def test_this_process_is_really_there() -> None:
    poller = ProcessPoller()
    begun = time.monotonic()
    poller.facts([os.getpid()], 0.0)
    while time.process_time() < 0 or time.monotonic() - begun < 0.02:
        pass
    facts = poller.facts([os.getpid()], time.monotonic() - begun)[os.getpid()]
    assert facts.state == "R"
    assert facts.cpu is not None
    assert facts.memory_bytes > 1 << 20
