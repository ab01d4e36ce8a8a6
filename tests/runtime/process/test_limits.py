"""Shortages of memory and descriptors are reported before the start, with the needed and the available amount."""

from __future__ import annotations

import dataclasses
import math
import resource

import pytest

from hive.errors import MemoryShort, PlatformError
from hive.free_memory import MEMORY_SHARE, FreeMemory
from hive.runtime.carriers.carrier import PlanSegment
from hive.runtime.process import limits
from hive.runtime.process.limits import (
    PER_PROCESS,
    PER_SEGMENT,
    SPARE,
    check_limits,
    check_memory,
    memory_parts,
    raise_descriptor_limit,
)
from hive.runtime.topology.plan import Plan, PlanActor


def plan_of(processes: int = 1, segments: int = 1, slot_bytes: int = 64, private: int = 0) -> Plan:
    actors = tuple(PlanActor(f"a-{n}", "a", n, f"a-{n}", True, False, private_bytes=private) for n in range(processes))
    slabs = tuple(PlanSegment(f"out:a-{n}", "slab", 2, slot_bytes, 0, 0, "") for n in range(segments))
    return Plan(actors, (), slabs, "", (), "", 0)


def test_a_small_run_fits() -> None:
    check_limits(plan_of())
    check_memory(plan_of())


def test_more_memory_than_the_machine_has() -> None:
    with pytest.raises(
        MemoryShort, match=r"needs 2\.00 PiB of memory, and .*B are free; .* `out:a-0`, 2 slots"
    ) as caught:
        check_memory(plan_of(slot_bytes=1 << 50))
    assert "hive check" in caught.value.hint


def test_a_share_of_the_free_memory_may_be_used_and_private_memory_counts() -> None:
    needed = plan_of().bytes
    check_memory(plan_of(), FreeMemory(math.ceil(needed / MEMORY_SHARE)))
    with pytest.raises(MemoryShort):
        check_memory(plan_of(), FreeMemory(math.floor(needed / MEMORY_SHARE)))
    with pytest.raises(MemoryShort, match=r"2\.00 GiB of networks and gradients in 2 processes"):
        check_memory(plan_of(processes=2, private=1 << 30), FreeMemory(1 << 30, "/job"))


def test_what_is_not_expected_to_be_written_does_not_count() -> None:
    sparse = dataclasses.replace(PlanSegment("rows", "buffer", 1, 1 << 40, 1, 0, ""), sparse_bytes=(1 << 40) - 100)
    in_file = dataclasses.replace(sparse, name="kept", sparse_bytes=0, folder="/data")
    plan = Plan((), (), (sparse, in_file), "", (), "", 0)
    check_memory(plan, FreeMemory(1 << 20))
    assert (plan.bytes, plan.sparse_bytes, memory_parts(plan)) == (100, (1 << 40) - 100, {"rows": 100})


@pytest.mark.parametrize(("limit", "fits"), [(0, True), (-1, False)])
def test_more_descriptors_than_a_process_may_have(monkeypatch: pytest.MonkeyPatch, limit: int, fits: bool) -> None:
    needed = 7 * PER_SEGMENT + 3 * PER_PROCESS + SPARE
    monkeypatch.setattr(resource, "getrlimit", lambda which: (needed + limit, needed + limit))
    if fits:
        check_limits(plan_of(processes=3, segments=7))
        return
    with pytest.raises(PlatformError, match=rf"needs {needed} open files, and a process may have {needed - 1}"):
        check_limits(plan_of(processes=3, segments=7))


def test_without_a_limit_everything_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    check_limits(plan_of(processes=900))


@pytest.mark.parametrize("error", [None, ValueError("not allowed"), OSError("not allowed")])
def test_the_limit_is_raised_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    asked: list[tuple[int, int]] = []

    def setrlimit(which: int, to: tuple[int, int]) -> None:
        assert which == resource.RLIMIT_NOFILE
        asked.append(to)
        if error is not None:
            raise error

    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    monkeypatch.setattr(limits.resource, "setrlimit", setrlimit)
    raise_descriptor_limit()
    assert asked == [(4096, 4096)]
