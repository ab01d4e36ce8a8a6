"""Free memory is that of the machine or of the control group with the least left, of both versions."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from hive.errors import MemoryShort
from hive.free_memory import FreeMemory, allocation_limit, free_memory, size_text

GIB = 1 << 30


class Machine:
    """A /proc/self and file systems of control groups in a folder."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.groups = folder / "proc", folder / "cgroup"
        self.proc.mkdir()

    def process(self, groups: str, kind: str, root: str = "/") -> None:
        options = "rw,memory" if kind == "cgroup" else "rw"
        (self.proc / "cgroup").write_text(groups)
        (self.proc / "mountinfo").write_text(
            "22 1 0:20 / /proc rw - proc proc rw\n"
            f"31 22 0:28 {root} {self.groups} rw,nosuid shared:9 - {kind} cgroup {options}\n"
        )

    def group(self, path: str, stat: str = "", **files: int | str) -> None:
        folder = self.groups / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.stat").write_text(stat)
        for name, value in files.items():
            (folder / f"memory.{name}").write_text(f"{value}\n")

    @property
    def free(self) -> FreeMemory:
        return free_memory(self.proc)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    class Available:
        available = 64 * GIB

    monkeypatch.setattr(psutil, "virtual_memory", Available)
    return Machine(tmp_path)


def test_without_groups_it_is_the_memory_of_the_machine(machine: Machine) -> None:
    assert machine.free == FreeMemory(64 * GIB)
    machine.process("0::/user\n", "cgroup2")
    machine.group("user", max="max", current=GIB)
    assert machine.free == FreeMemory(64 * GIB)


def test_version_2_with_the_limit_of_a_parent_and_cache_that_can_be_dropped(machine: Machine) -> None:
    machine.process("0::/slurm/job_1/step_0\n", "cgroup2")
    machine.group("slurm/job_1/step_0", max="max", current=GIB)
    machine.group("slurm/job_1", "anon 5\ninactive_file 1073741824\n", max=8 * GIB, current=3 * GIB)
    machine.group("slurm", max=32 * GIB, current=4 * GIB)
    assert machine.free == FreeMemory(6 * GIB, "/slurm/job_1")
    machine.group("slurm/job_1/step_0", max="max", high=4 * GIB, current=GIB)
    assert machine.free == FreeMemory(3 * GIB, "/slurm/job_1/step_0")


def test_version_1_beside_other_controllers(machine: Machine) -> None:
    machine.process("9:cpu,cpuacct:/other\n4:memory:/a/b\n0::/\n", "cgroup")
    machine.group("a/b", limit_in_bytes=9223372036854771712, usage_in_bytes=GIB)
    machine.group("a", "total_inactive_file 100\n", limit_in_bytes=5 * GIB, usage_in_bytes=GIB)
    assert machine.free == FreeMemory(4 * GIB + 100, "/a")


@pytest.mark.parametrize(("path", "root"), [("/docker/abc", "/docker/abc"), ("/", "/"), ("/../../other", "/")])
def test_a_container_sees_its_group_as_the_root(machine: Machine, path: str, root: str) -> None:
    machine.process(f"0::{path}\n", "cgroup2", root)
    machine.group("", max=2 * GIB, current=GIB)
    assert machine.free == FreeMemory(GIB, "/")
    assert str(machine.free) == "1.00 GiB (limit of the control group /)"


def test_a_group_beyond_its_limit_has_nothing_left(machine: Machine) -> None:
    machine.process("0::/\n", "cgroup2")
    machine.group("", max=GIB, current=2 * GIB)
    assert machine.free.bytes == machine.free.usable == 0


@pytest.mark.parametrize("damaged", ["", "0", "0::/\n:", "\n\n"])
def test_damaged_files_are_as_none(machine: Machine, damaged: str) -> None:
    machine.process("0::/\n", "cgroup2")
    (machine.proc / "cgroup").write_text(damaged)
    assert machine.free.bytes == 64 * GIB
    (machine.proc / "mountinfo").write_text(damaged)
    assert machine.free.bytes == 64 * GIB


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.00 KiB"),
        (24.3 * 1024, "24.3 KiB"),
        (312 << 20, "312 MiB"),
        (3 << 39, "1.50 TiB"),
        (10**24, "888,178,420 PiB"),
    ],
)
def test_sizes_as_text(count: float, text: str) -> None:
    assert size_text(count) == text


def test_an_allocation_beyond_what_is_free_is_a_sentence(machine: Machine) -> None:
    text = "the network of `x:Y` needs more memory than is free, "
    with pytest.raises(MemoryShort, match=text), allocation_limit("the network of `x:Y`"):
        bytearray(1 << 60)
    with pytest.raises(RuntimeError, match="other"), allocation_limit("x"):
        raise RuntimeError("other")
    with allocation_limit("x"):
        bytearray(1 << 20)
