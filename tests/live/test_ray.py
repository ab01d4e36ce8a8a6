"""Runs whose hosts Ray places, on a cluster of three nodes on this machine (tests/live/ray_cluster.py)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import House

MISSING = [name for name in ("ray", "grpc") if importlib.util.find_spec(name) is None]  # grpc: for the count of bytes

pytestmark = [
    pytest.mark.full(reason="starts Ray clusters"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
KEYS_BYTES = 200  # less than a tenth of a rollout
HOSTS = """
hosts = ["head", "left", "right"]
workers = 3
[hosts]
launcher = "ray"
cores = { left = 1, right = 1 }
[supervision]
restarts = 50
"""


class Nodes:
    """The cluster's process."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).parent / "ray_cluster.py")],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        ready, _, self.address = self._answer().partition(" ")
        assert ready == "ready"

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, command: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self.process.communicate(timeout=60)

    def use(self, house: House) -> None:
        house.env |= {**self.environment, "RAY_ADDRESS": self.address}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    made = Nodes(TOKEN)
    try:
        yield made
    finally:
        made.close()


def agents() -> list[int]:
    """Living agents that an engine has started on this machine."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"hive.hosts.agent_process" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def kinds(house: House, run: str, kind: str) -> int:
    return sum(event["kind"] == kind for event in house.events(run))


def test_hosts_placed_by_ray_reach_the_goal_with_the_weights_of_one_machine(house: House, nodes: Nodes) -> None:
    """A run on one machine, one with two hosts, and one with a host whose node is lost and replaced.

    The last one is not exact, because its collectors there begin new episodes, as after any exit of a collector.
    """
    nodes.use(house)
    weights = {finished(house, "one", "workers = 3\n")["weights_sha256"]}
    before = int(nodes.do("stored"))

    assert finished(house, "ray", HOSTS)["weights_sha256"] in weights
    assert kinds(house, "ray-1", "joined") == 2
    assert int(nodes.do("stored")) - before <= KEYS_BYTES
    assert not list((house.home / "ray-1" / "hosts").glob("*.keys"))

    run = house.start("up", goal(house, HOSTS), "--name", "removed")
    house.until(
        lambda: (house.home / "removed-1" / "events.jsonl").exists() and kinds(house, "removed-1", "joined") == 2
    )
    house.until_steps("removed-1", 5_000)
    assert nodes.do("remove") == "removed"
    house.until(lambda: any("is lost" in event["text"] for event in house.events("removed-1")))
    assert nodes.do("add") == "added"
    assert run.wait(house.limit_s) == 0, run.communicate()
    assert kinds(house, "removed-1", "joined") == 3
    assert house.ended("removed-1")["mean_return_100"] >= 150
    house.until(lambda: not agents())
    assert not list(house.folder.glob("hive-host-*"))


def goal(house: House, more: str) -> Path:
    return house.cartpole(2_000_000, "stop_at_return = 150", more)


def finished(house: House, name: str, more: str) -> dict[str, Any]:
    done = house.hive("up", goal(house, more), "--name", name)
    assert done.returncode == 0, done.stderr
    summary = house.ended(f"{name}-1")
    assert summary["exact"] is True
    assert summary["mean_return_100"] >= 150
    return summary


def test_an_unprotected_cluster_is_refused(house: House) -> None:
    made = Nodes({"RAY_AUTH_MODE": "disabled"})
    try:
        made.use(house)
        done = house.hive("up", house.cartpole(more=HOSTS))
        assert done.returncode != 0
        assert "no token authentication" in done.stderr
        assert "hosts.unprotected_ray = true" in done.stderr
    finally:
        made.close()
