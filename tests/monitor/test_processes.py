"""What /proc says, from a folder that looks like it; and once from the real one."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hive.monitor.processes import PAGE_BYTES, TICKS, ProcessLook


def write(proc: Path, pid: int, ticks: int, *, state: str = "S", start: int = 50, pages: int = 3) -> None:
    fields = ["0"] * 52
    fields[0], fields[11], fields[12], fields[19], fields[21] = state, str(ticks), "1", str(start), str(pages)
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(f"{pid} (hive:a b) c) {' '.join(fields)}\n")


def test_cores_used_are_a_difference(tmp_path: Path) -> None:
    look = ProcessLook(tmp_path)
    write(tmp_path, 7, 100)
    first = look.facts([7, 0, 8], 10.0)
    assert first.keys() == {7}
    assert (first[7].state, first[7].cpu, first[7].memory_bytes) == ("S", None, 3 * PAGE_BYTES)
    write(tmp_path, 7, 100 + TICKS, state="T")
    second = look.facts([7], 12.0)
    assert (second[7].state, second[7].cpu) == ("T", 0.5)


def test_a_pid_that_came_again_is_another_process(tmp_path: Path) -> None:
    look = ProcessLook(tmp_path)
    write(tmp_path, 7, 1000)
    look.facts([7], 1.0)
    write(tmp_path, 7, 5, start=99)
    assert look.facts([7], 2.0)[7].cpu is None
    write(tmp_path, 7, 5 + TICKS // 2, start=99)
    assert look.facts([7], 3.0)[7].cpu == 0.5


def test_who_is_gone_is_forgotten(tmp_path: Path) -> None:
    look = ProcessLook(tmp_path)
    write(tmp_path, 7, 1)
    look.facts([7], 1.0)
    assert look.facts([], 2.0) == {}
    assert look.before == {}


def test_busy_cores_are_those_that_we_may_use(tmp_path: Path) -> None:
    look = ProcessLook(tmp_path)
    look.cores = {0, 2}
    idle = "cpu{} 0 0 0 {} 0 0 0 0 0 0\n"
    (tmp_path / "stat").write_text("cpu 9 9 9 9 9 9 9 9\n" + "".join(idle.format(n, 0) for n in range(3)))
    assert look.cores_busy() is None
    lines = "cpu0 50 0 0 50 0 0 0 0\ncpu1 100 0 0 0 0 0 0 0\ncpu2 0 0 100 0 0 0 0 0\nintr 1 2\n"
    (tmp_path / "stat").write_text(lines)
    assert look.cores_busy() == 1.5
    assert look.cores_busy() is None  # no time has gone by


def test_without_a_proc_nothing_is_known(tmp_path: Path) -> None:
    assert ProcessLook(tmp_path / "none").cores_busy() is None


def test_this_process_is_really_there() -> None:
    look = ProcessLook()
    begun = time.monotonic()
    look.facts([os.getpid()], 0.0)
    while time.process_time() < 0 or time.monotonic() - begun < 0.02:
        pass
    facts = look.facts([os.getpid()], time.monotonic() - begun)[os.getpid()]
    assert facts.state == "R"
    assert facts.cpu is not None
    assert facts.memory_bytes > 1 << 20
