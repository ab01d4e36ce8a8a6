"""The launcher with a cluster and host actors that are small fakes, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from hive.errors import ActorFailed, HostLost, UsageError
from hive.hosts.files import JoinFile
from hive.hosts.launcher import Launcher, Placed
from hive.runtime import Actor, Topology, endpoint
from hive.runtime.wire.messages import Tree
from hive.testing import run_inline

ADDRESS = "10.0.0.1"


class FakeCluster:
    """Places at once, as long as there is room; `ends[host]` are the ends of its agents, in order."""

    def __init__(
        self, ends: dict[str, list[object]] | None = None, refusals: int = 0, first_room_s: float = 0.0
    ) -> None:
        self.ends = ends or {}
        self.refusals = refusals
        self.first_room_s = first_room_s
        self.log: list[str] = []
        self.joins: list[JoinFile] = []
        self.keys = 0
        self.stops: dict[str, asyncio.Event] = {}

    async def connect(self) -> str:
        self.log.append("connect")
        if self.refusals:
            self.refusals -= 1
            raise UsageError("no cluster runs", hint="start one")
        return ADDRESS

    async def begin(self, cores: Mapping[str, int]) -> None:
        self.log.append(f"begin {dict(cores)}")

    async def room(self) -> bool:
        return asyncio.get_running_loop().time() >= self.first_room_s

    async def placed(self, host: str) -> Placed:
        if not await self.room():
            raise HostLost("pending")
        self.keys += 1
        return Placed(f"key {self.keys}", "machine\x1b[31m")

    async def run(self, host: str, join: JoinFile) -> str:
        self.joins.append(join)
        stop = self.stops[host] = asyncio.Event()
        for end in self.ends.get(host, []):
            self.ends[host].remove(end)
            await asyncio.sleep(2.0)
            if isinstance(end, Exception):
                raise end
            return str(end)
        await stop.wait()
        return "stopped"

    async def stop(self, host: str) -> None:
        self.log.append(f"stop {host}")
        self.stops[host].set()

    async def close(self) -> None:
        self.log.append("close")
        for stop in self.stops.values():
            stop.set()


class FakeHost(Actor):
    """`heads`: the public keys of the head, each for this number of seconds; "" while its process restarts."""

    role = "host"

    def __init__(self, log: list[str], heads: list[tuple[float, str]]) -> None:
        self.seen = log
        self.heads = heads

    @endpoint
    async def admit(self, public: str, address: str) -> list[Tree]:
        now = asyncio.get_running_loop().time()
        head = next(head for until, head in self.heads if now < until)
        if not head:
            raise ValueError("cannot bind")
        self.seen.append(f"admit {public} {address}")
        return [f"tcp://{address}:1", head]

    @endpoint
    async def lost(self, public: str, why: str) -> None:
        self.seen.append(f"lost {public}: {why}")


class Noting(Launcher):
    role = "launcher"
    notes: list[str]

    def note(self, kind: str, text: str, **fields: Tree) -> None:
        self.notes.append(f"{kind}: {text}")


def run(
    cluster: FakeCluster, seconds: float, heads: list[tuple[float, str]] | None = None
) -> tuple[list[str], list[str]]:
    """Run a launcher with one host; return what the host actor saw, once each, and the notes."""
    seen: list[str] = []
    Noting.notes = []
    t = Topology()
    host = t.add(FakeHost, log=seen, heads=heads or [(1e9, "head")])
    t.add(Noting, cluster=cluster, wanted={"left": 2}, hosts=[host.handle()], run="r", silence_s=5.0)
    run_inline(t, virtual=True, seconds=seconds)
    return list(dict.fromkeys(seen)), Noting.notes


def test_keys_go_both_ways_and_the_agent_gets_no_secret() -> None:
    cluster = FakeCluster()
    seen, notes = run(cluster, 10.0)
    assert cluster.log == ["connect", "begin {'left': 2}", "close"]
    assert seen == ["admit key 1 10.0.0.1"]
    assert cluster.joins == [JoinFile("r", "left", "tcp://10.0.0.1:1", "head", "key 1", "", 5.0)]
    assert len(notes) == 1
    assert "\x1b" not in notes[0]


def test_a_lost_host_is_given_up_at_once_and_placed_again() -> None:
    seen, notes = run(FakeCluster({"left": [HostLost("the node died")]}), 20.0)
    assert seen == ["admit key 1 10.0.0.1", "lost key 1: the node died", "admit key 2 10.0.0.1"]
    assert [note.partition(":")[0] for note in notes] == ["placed", "lost", "placed"]


def test_an_agent_that_ends_again_and_again_is_started_ever_less_often() -> None:
    cluster = FakeCluster({"left": ["refused"] * 100})
    run(cluster, 300.0)
    assert 8 <= len(cluster.joins) <= 14


def test_the_agent_starts_again_when_the_process_on_the_head_has_new_keys() -> None:
    cluster = FakeCluster()
    run(cluster, 20.0, [(5.0, "head"), (1e9, "new")])
    assert "stop left" in cluster.log
    assert [join.head for join in cluster.joins] == ["head", "new"]
    assert [join.public for join in cluster.joins] == ["key 1", "key 2"]


def test_missing_room_is_logged_once() -> None:
    _, notes = run(FakeCluster(first_room_s=30.0), 60.0)
    assert [note.partition(":")[0] for note in notes] == ["no room", "placed", "room"]
    assert "left with 2 cores" in notes[0]


def test_a_run_without_a_cluster_does_not_begin() -> None:
    with pytest.raises(UsageError, match="no cluster runs") as caught:
        run(FakeCluster(refusals=1), 10.0)
    assert caught.value.permanent


def test_the_head_that_cannot_listen_ends_the_run() -> None:
    with pytest.raises((UsageError, ActorFailed), match="cannot listen for host left") as caught:
        run(FakeCluster(), 10.0, [(1e9, "")])
    assert caught.value.permanent


def test_a_later_launcher_waits_for_the_cluster() -> None:
    cluster = FakeCluster(refusals=3)

    class Later(Noting):
        role = "launcher"

        def __init__(self, cluster: FakeCluster, wanted: dict[str, int], hosts: list[object]) -> None:
            super().__init__(cluster, wanted, hosts, "r", 5.0)  # type: ignore[arg-type]
            self.incarnation = 1

    Noting.notes = []
    t = Topology()
    host = t.add(FakeHost, log=[], heads=[(1e9, "head")])
    t.add(Later, cluster=cluster, wanted={"left": 2}, hosts=[host.handle()])
    run_inline(t, virtual=True, seconds=20.0)
    assert cluster.log.count("connect") == 4
    assert [note.partition(":")[0] for note in Noting.notes] == ["unconnected", "connected", "placed"]
