"""Quotas of control groups, of both versions, as /proc and the mounted folders show them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hive import cores as module
from hive.cores import LIMIT, cores, cpu_quota, share_of_cores
from hive.errors import UsageError


def groups(folder: Path, cgroup: str, mounts: list[str], files: dict[str, str]) -> Path:
    """Make a /proc with these groups and mounts; `@` stands for the folder below which they are mounted."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text(cgroup)
    lines = [f"30 24 0:26 {mount} rw,nosuid shared:9".replace("@", str(folder)) for mount in mounts]
    kinds = ["cgroup2 cgroup2 rw" if " V2" in mount else "cgroup cgroup rw,cpu,cpuacct" for mount in mounts]
    text = "".join(f"{line.replace(' V2', '')} - {kind}\n" for line, kind in zip(lines, kinds, strict=True))
    (folder / "proc/self/mountinfo").write_text("broken\n" + text)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder / "proc"


V2, V1 = ["/ @/cg V2"], ["/ @/cg/cpu"]
OWN_V1 = "3:cpu,cpuacct:/a/b\n2:memory:/other\n"


@pytest.mark.parametrize(
    ("cgroup", "mounts", "files", "quota"),
    [
        ("0::/a/b\n", V2, {"cg/a/b/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/a/b\n", V2, {"cg/a/b/cpu.max": "max 100000\n", "cg/a/cpu.max": "300000 200000\n"}, 1.5),
        ("0::/a/b\n", V2, {"cg/a/b/cpu.max": "max 100000\n", "cg/a/cpu.max": "max 100000\n"}, None),
        ("0::/a/b\n", V2, {"cg/a/b/cpu.max": "400000 100000\n", "cg/a/cpu.max": "200000 100000\n"}, 2.0),
        ("0::/\n", V2, {"cg/cpu.max": "70000 100000\n"}, 0.7),  # a container with a namespace of its own
        ("0::/x/c7\n", ["/x/c7 @/cg V2"], {"cg/cpu.max": "80000 100000\n"}, 0.8),  # and one without
        ("0::/../..\n", V2, {"cg/cpu.max": "90000 100000\n"}, 0.9),
        (OWN_V1, V1, {"cg/cpu/a/b/cpu.cfs_quota_us": "50000\n", "cg/cpu/a/b/cpu.cfs_period_us": "100000\n"}, 0.5),
        (OWN_V1, V1, {"cg/cpu/a/b/cpu.cfs_quota_us": "-1\n", "cg/cpu/a/b/cpu.cfs_period_us": "100000\n"}, None),
        (OWN_V1, V1, {"cg/cpu/a/cpu.cfs_quota_us": "20000\n", "cg/cpu/a/cpu.cfs_period_us": "10000\n"}, 2.0),
        ("0::/a\n" + OWN_V1, V1 + V2, {"cg/a/cpu.max": "60000 100000\n"}, 0.6),  # both versions
        ("0::/a\n", V2, {"cg/a/cpu.max": "what\n"}, None),
        ("0::/a\n", V2, {"cg/a/cpu.max": "5 0\n"}, None),
        ("0::/a\n", V2, {}, None),
        ("", [], {}, None),
    ],
)
def test_the_lowest_quota_of_the_own_group_and_those_above(
    tmp_path: Path, cgroup: str, mounts: list[str], files: dict[str, str], quota: float | None
) -> None:
    assert cpu_quota(groups(tmp_path, cgroup, mounts, files)) == quota


def test_without_proc_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize(("quota", "expected"), [(None, 4), (0.4, 1), (1.0, 1), (1.5, 2), (2.0, 2), (64.0, 4)])
def test_a_part_of_a_core_is_one_core_and_a_quota_adds_none(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 5})
    monkeypatch.setattr(module, "cpu_quota", lambda: quota)
    assert cores() == expected


def test_a_share_of_the_cores_is_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 4})
    monkeypatch.setattr(module, "cpu_quota", lambda: None)
    monkeypatch.delenv(LIMIT, raising=False)
    with share_of_cores(2):
        assert (cores(), os.environ[LIMIT]) == (2, "2")  # which the runs inherit
        with share_of_cores(9):
            assert cores() == 1
        assert cores() == 2
    assert cores() == 5
    monkeypatch.setenv(LIMIT, "8")
    assert cores() == 5


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_a_limit_of_cores_that_is_no_number(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(LIMIT, text)
    with pytest.raises(UsageError, match=f"HIVE_CORES is `{text}`"):
        cores()
