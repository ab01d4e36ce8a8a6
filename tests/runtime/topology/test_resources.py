"""Resources: available ones are assigned, others are refused when the group is added."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from hive.errors import TopologyError
from hive.runtime.actor.actor import Actor
from hive.runtime.topology.resources import Resources, resources_of
from hive.runtime.topology.topology import Topology
from hive.testing import run_inline

THERE = sorted(os.sched_getaffinity(0))
LOADED_LATER = pytest.mark.full(reason="one more import of torch")


class Worker(Actor):
    def __init__(self, seen: list[str]) -> None:
        seen.append(f"{self.name} {self.device}")


def test_the_default_changes_nothing() -> None:
    assert resources_of("workers", None, None, "cpu") == Resources((), 0, "cpu")


def test_available_resources_are_assigned() -> None:
    assert resources_of("workers", [*THERE, THERE[0]], 4, "cuda:3") == Resources(tuple(THERE), 4, "cuda:3")


@pytest.mark.parametrize(
    ("cores", "threads", "device", "text"),
    [
        ([4711], None, "cpu", "`workers` cannot run on cores 4711"),
        ([], None, "cpu", "`workers` cannot run on cores none"),
        ([-1], None, "cpu", "`workers` cannot run on cores -1"),
        (None, 0, "cpu", "`workers` cannot have 0 threads"),
        (None, None, "gpu", "`workers` has an unknown device `gpu`"),
        (None, None, "cuda:x", "`workers` has an unknown device `cuda:x`"),
    ],
)
def test_unavailable_resources_are_refused(
    cores: Sequence[int] | None, threads: int | None, device: str, text: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        Topology().add(Worker, count=2, group="workers", cores=cores, threads=threads, device=device, seen=[])
    assert str(caught.value) == text
    assert caught.value.hint


@pytest.mark.parametrize(("loaded", "threads"), [pytest.param("", 1, marks=LOADED_LATER), ("import torch", 3)])
def test_a_process_applies_its_resources(loaded: str, threads: int) -> None:
    code = f"""
import os
{loaded}
from hive.runtime.topology.resources import Resources
Resources(({THERE[0]},), {threads}).apply()
import torch
print(sorted(os.sched_getaffinity(0)), torch.get_num_threads())
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[{THERE[0]}] {threads}"


def test_actors_know_their_device() -> None:
    seen: list[str] = []
    t = Topology()
    t.add(Worker, seen=seen)
    t.add(Worker, group="far", count=2, device="cuda", seen=seen)
    assert run_inline(t).reason == "all actors are done"
    assert sorted(seen) == ["worker-0 cpu", "worker-1 cuda", "worker-2 cuda"]


def test_groups_in_one_process_must_have_the_same_cores() -> None:
    t = Topology()
    t.add(Worker, group="a", process="both", threads=2, device="cuda", seen=[])
    t.add(Worker, group="b", process="both", threads=2, seen=[])
    t.plan()
    t.add(Worker, group="c", process="both", seen=[])
    with pytest.raises(TopologyError, match="`a` and `c` share process `both` but have different cores or threads"):
        t.plan()
