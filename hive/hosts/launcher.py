"""The actor `launcher`: has a cluster engine start an agent on each host, and keeps it running (`hosts.launcher`).

    cluster engine (Ray)                        launcher                       host-left (HostActor)
      places an agent process on a node  ────>  its public key, made there ─>  listens, accepts this key only
      starts the agent             <─ join ───  address, the head's key <────  answers
      reports that it or its node is lost ───>  the reason ─────────────────>  gives the host up at once

The engine places processes and restarts them. It carries the few hundred bytes of a join, and nothing else: the agent
talks to the head by hive's own link, as after `hive join`. Secret keys stay where they were made, in memory.

The launcher has a process of its own, because a connection to a cluster may block for a minute or end its process. The
run does not depend on it: without its launcher, it has the hosts that still run. When the launcher exits, the engine
ends the agents that it has placed, and the next incarnation has them placed again.

`Cluster` is what the launcher needs of an engine. hive.hosts.ray_launcher implements it for Ray.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hive.errors import ActorFailed, HiveError, HostLost, RemoteError, UsageError
from hive.hosts.files import JoinFile
from hive.printable import printable
from hive.runtime import Actor, Handle
from hive.runtime.memory.status import WAIT_IN

LOOK_S = 1.0  # interval at which the launcher compares what the head listens at with what the agent connects to
RETRY_S = 1.0  # first pause before the engine is asked again; it doubles up to
RETRY_MAX_S = 30.0
LASTED_S = 60.0  # an agent that ran for this time starts again without a longer pause
ROOM_S = 5.0  # time that an engine may take to place an agent before the event log says what is missing
STOP_S = 6.0  # limit of the wait for an agent that was stopped
DRAIN_S = 2.0  # time that agents have to end with the run; later ones end with their engine's process
TEXT_SHOWN = 300  # maximum characters of a text of the engine in an event


@dataclass(frozen=True)
class Placed:
    """An agent process that the engine has started on a host. `public`: the public key of the pair that it has made."""

    public: str
    machine: str  # name of the machine, for people


class Cluster(Protocol):
    """A cluster engine. Methods that wait for it must not block the event loop."""

    async def connect(self) -> str:
        """Connect, and return the address by which the engine knows this machine. Raises HiveError."""

    async def begin(self, cores: Mapping[str, int]) -> None:
        """Ask for one agent process per host, each on another machine with this number of free cores."""

    async def room(self) -> bool:
        """Whether the engine has found a machine for every host."""

    async def placed(self, host: str) -> Placed:
        """Have the host's agent process make a key pair; waits until it is placed. Raises HostLost."""

    async def run(self, host: str, join: JoinFile) -> str:
        """Run the agent until it ends, and return its last line. `join.secret` is "". Raises HostLost."""

    async def stop(self, host: str) -> None:
        """End the agent, but not its process: `run` returns."""

    async def close(self) -> None:
        """End all agent processes, and disconnect."""


class Launcher(Actor):
    """Keeps an agent running on each host. `wanted`: the cores of each. `hosts`: their HostActors, in this order."""

    numbered = False

    def __init__(
        self, cluster: Cluster, wanted: dict[str, int], hosts: list[Handle], run: str, silence_s: float
    ) -> None:
        self.cluster = cluster
        self.cores = wanted
        self.hosts = dict(zip(wanted, hosts, strict=True))
        self.join = JoinFile(run=run, host="", address="", head="", public="", secret="", silence_s=silence_s)
        self.waiting = self.status.phase("watch hosts", WAIT_IN)
        self.connecting = self.status.phase("wait cluster", WAIT_IN)
        self.placed = self.status.counter("placed")
        self.lost = self.status.counter("lost")
        self.address = ""
        self.ending = False
        self.running: dict[str, asyncio.Future[str]] = {}

    async def setup(self) -> None:
        if self.incarnation == 0:  # later the run goes on without a cluster, until it is back
            self.status.enter(self.connecting)
            try:
                self.address = await self.cluster.connect()
            except HiveError as error:
                error.permanent = True
                raise

    async def run(self) -> None:
        self.status.enter(self.connecting)
        await self._connect()
        await self.cluster.begin(self.cores)
        self.status.enter(self.waiting)
        tasks = [asyncio.ensure_future(self._keep(name)) for name in self.cores]
        tasks.append(asyncio.ensure_future(self._say_what_is_missing()))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _connect(self) -> None:
        pause_s, said = RETRY_S, ""
        while not self.address:
            try:
                self.address = await self.cluster.connect()
                self.note("connected", "the launcher is connected to the cluster again")
            except HiveError as error:
                text = f"no connection to the cluster, so hosts that are lost stay away: {error}"
                if text != said:
                    self.note("unconnected", text)
                said = text
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def _say_what_is_missing(self) -> None:
        """Log once that hosts wait for room, and once that they have it."""
        await asyncio.sleep(ROOM_S)
        said = False
        while True:
            room = await self.cluster.room()
            if room and said:
                self.note("room", "the cluster has room for all hosts again")
            elif not room and not said:
                wanted = ", ".join(f"{name} with {count} cores" for name, count in self.cores.items())
                self.note("no room", f"the cluster has no room for all hosts now; each needs its own machine: {wanted}")
            said = not room
            await asyncio.sleep(ROOM_S)

    # --- one host

    async def _keep(self, host: str) -> None:
        """Have an agent placed, run it, and begin again when it has ended."""
        loop, pause_s = asyncio.get_running_loop(), RETRY_S
        while not self.ending:
            try:
                placed = await self.cluster.placed(host)
            except HostLost:  # the engine is placing it
                await asyncio.sleep(RETRY_S)
                continue
            self.note("placed", f"the cluster has placed host {host} on {printable(placed.machine, TEXT_SHOWN)}")
            self.status.add(self.placed, 1)
            began_s = loop.time()
            try:
                why = await self._run(host, placed)
                self.note("ended", f"the agent of host {host} has ended: {printable(why, TEXT_SHOWN)}")
            except HostLost as error:
                why = printable(str(error), TEXT_SHOWN)
                self.status.add(self.lost, 1)
                self.note("lost", f"host {host} is lost, and is placed again when the cluster has room: {why}")
                await self._call(host, "lost", placed.public, why)
            pause_s = RETRY_S if loop.time() - began_s > LASTED_S else min(2 * pause_s, RETRY_MAX_S)
            await asyncio.sleep(pause_s)

    async def _run(self, host: str, placed: Placed) -> str:
        """Run the agent until it ends, or the head's end of its link has other keys. Raises HostLost."""
        while (link := await self._admitted(host, placed.public)) is None:
            await asyncio.sleep(LOOK_S)
        address, head = link
        join = JoinFile(self.join.run, host, address, head, placed.public, "", self.join.silence_s)
        running = self.running[host] = asyncio.ensure_future(self.cluster.run(host, join))
        try:
            while True:
                done, _ = await asyncio.wait({running}, timeout=LOOK_S)
                if done:
                    return running.result()
                if await self._admitted(host, placed.public) not in (None, link):
                    await self.cluster.stop(host)
                    done, _ = await asyncio.wait({running}, timeout=STOP_S)
                    if done:
                        running.result()  # raises HostLost if the agent was lost
                    return "its process on the head was restarted"
        finally:
            running.cancel()

    async def _admitted(self, host: str, public: str) -> tuple[str, str] | None:
        """Have the head accept this key; return its address and its key, None while its process restarts."""
        answer = await self._call(host, "admit", public, self.address)
        return (str(answer[0]), str(answer[1])) if isinstance(answer, list | tuple) else None

    async def _call(self, host: str, method: str, *arguments: str) -> object:
        """Call an endpoint of the HostActor. Returns None if its process restarts. Raises UsageError if it cannot."""
        try:
            return await self.hosts[host].call(method, *arguments)
        except (ActorFailed, TimeoutError):
            return None
        except RemoteError as error:
            failure = UsageError(f"the head cannot listen for host {host}: {error}", hint=error.hint)
            failure.permanent = True
            raise failure from None

    # --- the end

    async def drain(self) -> None:
        """End after the agents, which the head tells that the run has ended."""
        self.ending = True
        running = [future for future in self.running.values() if not future.done()]
        if running:
            await asyncio.wait(running, timeout=DRAIN_S)
        self.actor_context.cancel()

    async def teardown(self) -> None:
        await self.cluster.close()
