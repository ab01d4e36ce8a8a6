"""Whole topologies in one process and loop: real supervisor, nodes, ports and slots, by `run_inline`."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from hive.errors import ActorFailed, EnvironmentFailed, RemoteError, TopologyError, VersionGone
from hive.runtime import Board, Messages, SlotInlet, SlotOutlet, Slots
from hive.runtime.actor.actor import Actor, Handle, endpoint
from hive.runtime.actor.ports import Inlet, Outlet, Publication, Subscription
from hive.runtime.carriers.messages import ChannelFull
from hive.runtime.memory.segments import Layout
from hive.runtime.supervise.accounting import holds
from hive.runtime.supervise.membership import Settings
from hive.runtime.supervise.outcome import Outcome
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.messages import MAX_TEXT_BYTES, Message, Tree, encode
from hive.runtime.wire.protocol import (
    Ack,
    Begin,
    Call,
    Deliver,
    Done,
    Failed,
    Hello,
    Joined,
    Left,
    Member,
    Note,
    Notify,
    Ready,
    Reply,
)
from hive.testing import run_inline

LIMIT_S = 10.0  # only a test that fails takes so long


class Number(Message):
    value: int


class Rollout(Message):
    rewards: np.ndarray
    version: int


class Weights(Message):
    pass


LAYOUT = Layout({"rewards": ("float32", (3, 2)), "version": ("int64", ())})
Work = Callable[[Any], Awaitable[None]]


class Source(Actor):
    """Sends the numbers below `total`; with `stays` it does not end then."""

    out = Outlet(Number)

    def __init__(self, total: int = 10, stays: bool = False) -> None:
        self.total = total
        self.stays = stays

    async def run(self) -> None:
        for value in range(self.total):
            await self.out.send(Number(value))
        while self.stays:
            await asyncio.sleep(1)


class Sink(Actor):
    """Keeps what it receives in `seen`; with `total` of them it ends the run."""

    inn = Inlet(Number)

    def __init__(self, seen: list[int], total: int = 10) -> None:
        self.seen = seen
        self.total = total

    async def run(self) -> None:
        while len(self.seen) < self.total:
            self.seen.append((await self.inn.receive()).value)
        self.end_run("all received")


class Idle(Actor):
    async def run(self) -> None:
        await asyncio.Event().wait()


class Worker(Actor):
    """Runs the coroutine function it is given, on itself."""

    def __init__(self, work: Work, **handles: Any) -> None:
        self.work = work
        self.handles = handles

    async def run(self) -> None:
        await self.work(self)


async def end_it(worker: Worker) -> None:
    worker.end_run("goal reached")


def like(base: type[Actor], **attributes: Any) -> type[Actor]:
    """A subclass of the same name with other ports or methods."""
    return type(base.__name__, (base,), attributes)


def run(topology: Topology, **options: Any) -> Outcome:
    """`run_inline` with a limit. Every account must hold."""
    outcome = run_inline(topology, **{"seconds": LIMIT_S, **options})
    for name, account in outcome.channels.items():
        assert holds(account), (name, account)
    return outcome


def named(supervisor: Supervisor, actor: str, text: str) -> bool:
    """Whether the outcome names the actor and says what happened to it, wherever it was, and in which line of whose."""
    error = rf"{actor} failed( in `\w+`)?: {re.escape(text)}( \([^()]*\.py:\d+\))?"
    return re.fullmatch(error, supervisor.state.end.error) is not None


def failing(topology: Topology, error: type[BaseException], **options: Any) -> tuple[BaseException, Supervisor]:
    """Runs a topology that fails: what was raised, and the supervisor as it ended. Every account must hold."""
    seen: list[Supervisor] = []
    with pytest.raises(error) as caught:
        run(topology, watch=seen.append, **options)
    assert seen[0].state.end.state == "failed"
    accounts = seen[0].accounts()
    assert all(holds(account) for account in accounts.values()), accounts
    return caught.value, seen[0]


def account(produced: int, consumed: int, in_flight: int = 0, **dropped: int) -> dict[str, Any]:
    return {"produced": produced, "consumed": consumed, "dropped": dropped, "in_flight": in_flight}


# --- messages


class Doubler(Actor):
    inn = Inlet(Number)
    out = Outlet(Number)

    async def run(self) -> None:
        async for number in self.inn:
            await self.out.send(Number(2 * number.value))


def test_a_pipeline() -> None:
    seen: list[int] = []
    t = Topology()
    sources, doublers, sink = t.add(Source, count=2), t.add(Doubler, count=3), t.add(Sink, seen=seen, total=20)
    t.connect(sources.out, doublers.inn, name="numbers")
    t.connect(doublers.out, sink.inn, name="doubled")
    outcome = run(t)
    assert (outcome.state, outcome.reason, outcome.exact) == ("finished", "all received", True)
    assert (outcome.error, outcome.hint, outcome.results, outcome.digest) == ("", "", {}, "")
    assert sorted(seen) == sorted([2 * value for value in range(10)] * 2)
    assert outcome.channels == {"numbers": account(20, 20), "doubled": account(20, 20)}
    actors = ["source-0", "source-1", "doubler-0", "doubler-1", "doubler-2", "sink-0"]
    assert outcome.restarts == dict.fromkeys(actors, 0)


def test_balance_gives_a_message_to_one_and_broadcast_to_all() -> None:
    shares: list[list[int]] = [[], [], []]
    copies: list[list[int]] = [[], [], []]

    class Keeper(Actor):
        inn = Inlet(Number)

        def __init__(self, lists: list[list[int]]) -> None:
            self.mine = lists[self.index]

        async def run(self) -> None:
            async for number in self.inn:
                self.mine.append(number.value)

    class Speaker(Actor):
        balanced = Outlet(Number)
        shouted = Outlet(Number, pattern="broadcast", when_full="wait")

        async def run(self) -> None:
            for value in range(30):
                await self.balanced.send(Number(value))
                await self.shouted.send(Number(value))
            while sum(map(len, shares + copies)) < 4 * 30:
                await asyncio.sleep(0)
            self.end_run("all heard")

    t = Topology()
    speaker = t.add(Speaker)
    t.connect(speaker.balanced, t.add(Keeper, group="one", count=3, lists=shares).inn)
    t.connect(speaker.shouted, t.add(Keeper, group="all", count=3, lists=copies).inn)
    outcome = run(t)
    assert sorted(value for share in shares for value in share) == list(range(30))
    assert all(len(share) >= 5 for share in shares), "by demand"
    assert copies == [list(range(30))] * 3
    assert outcome.channels == {"balanced": account(30, 30), "shouted": account(90, 90)}


def test_a_broadcast_to_two_groups() -> None:
    first: list[int] = []
    second: list[int] = []
    t = Topology()
    source = t.add(like(Source, out=Outlet(Number, pattern="broadcast", when_full="wait")))
    t.connect(source.out, t.add(Sink, group="first", seen=first).inn)
    t.connect(source.out, t.add(Sink, group="second", seen=second, process="apart").inn)
    assert run(t).channels["out"] == account(20, 20)
    assert first == second == list(range(10))


def test_a_slow_listener_loses_the_oldest_and_the_loss_is_counted() -> None:
    seen: list[int] = []

    class Slow(Actor):
        inn = Inlet(Number)

        async def run(self) -> None:
            await asyncio.sleep(1)
            while (number := self.inn.receive_nowait()) is not None:
                seen.append(number.value)
            self.end_run("woke up")

    t = Topology()
    source = t.add(like(Source, out=Outlet(Number, pattern="broadcast")), stays=True)
    t.connect(source.out, t.add(Slow).inn, Messages(window=4))
    outcome = run(t, virtual=True)
    assert seen == [6, 7, 8, 9]
    assert outcome.channels["out"] == account(10, 4, overflow=6)


def test_a_full_channel_may_fail() -> None:
    t = Topology()
    source, deaf = t.add(like(Source, out=Outlet(Number, when_full="fail"))), t.add(like(Idle, inn=Inlet(Number)))
    t.connect(source.out, deaf.inn, Messages(window=3))
    error, supervisor = failing(t, ChannelFull)
    assert str(error) == "channel `out` has no room"
    assert named(supervisor, "source-0", "ChannelFull: channel `out` has no room")
    assert supervisor.state.end.hint == 'connect it with when_full="wait", or a larger window'


@pytest.mark.parametrize("process", ["both", None])
def test_only_actors_of_one_process_pass_the_object_itself(process: str | None) -> None:
    sent = Rollout(np.ones((3, 2), np.float32), 7)
    received: list[Rollout] = []

    class Maker(Actor):
        out = Outlet(Rollout)

        async def run(self) -> None:
            await self.out.send(sent)

    class Taker(Actor):
        inn = Inlet(Rollout)

        async def run(self) -> None:
            received.append(await self.inn.receive())
            self.end_run("taken")

    t = Topology()
    t.connect(t.add(Maker, process=process).out, t.add(Taker, process=process).inn)
    assert run(t).channels["out"] == account(1, 1)
    assert received == [sent]
    assert (received[0] is sent) == (process is not None)


# --- slabs


class Collector(Actor):
    rollouts = SlotOutlet(Rollout)

    async def run(self) -> None:
        for version in range(6):
            slot = await self.rollouts.reserve()
            slot.arrays["rewards"][:] = self.index
            slot.arrays["version"][()] = version
            assert self.rollouts.commit(slot) == version
            assert self.rollouts.produced == version + 1


def test_a_slab_is_written_and_read_in_place() -> None:
    seen: list[tuple[int, int, float]] = []

    class Learner(Actor):
        rollouts = SlotInlet(Rollout)

        async def run(self) -> None:
            while len(seen) < 12:
                slot = await self.rollouts.claim()
                seen.append((slot.producer, int(slot.arrays["version"]), float(slot.arrays["rewards"].sum())))
                self.rollouts.retire(slot, "stale" if slot.sequence == 2 else "consumed")
            self.end_run("enough")

    t = Topology()
    t.connect(t.add(Collector, count=2).rollouts, t.add(Learner).rollouts, Slots(LAYOUT))
    outcome = run(t)
    for producer in (0, 1):
        mine = [entry[1:] for entry in seen if entry[0] == producer]
        assert mine == [(version, 6.0 * producer) for version in range(6)]
    assert outcome.channels["rollouts"] == account(12, 10, stale=2)


def test_a_claim_from_a_producer_of_another_actor_is_refused() -> None:
    class Behind(Actor):
        rollouts = SlotInlet(Rollout)

        async def run(self) -> None:
            await self.rollouts.claim(1 - self.index)

    t = Topology()
    collectors, behind = t.add(Collector, count=2), t.add(Behind, count=2)
    t.connect(collectors.rollouts, behind.rollouts, Slots(LAYOUT, by_share=True))
    with pytest.raises(TopologyError, match=r"of producer [01] of `rollouts` here; known: [01]"):
        run(t)


def test_a_slab_takes_whole_messages_too() -> None:
    sent = [Rollout(np.full((3, 2), value, np.float32), value) for value in range(5)]
    received: list[Rollout] = []

    class Maker(Actor):
        out = Outlet(Rollout)

        async def run(self) -> None:
            for rollout in sent:
                await self.out.send(rollout)

    class Taker(Actor):
        inn = Inlet(Rollout)

        async def run(self) -> None:
            async for rollout in self.inn:
                received.append(rollout)
                if len(received) == 5:
                    self.end_run("taken")

    t = Topology()
    t.connect(t.add(Maker).out, t.add(Taker).inn, Slots(LAYOUT))
    outcome = run(t)
    assert received == sent
    assert outcome.channels["out"] == account(5, 5)


def test_a_share_is_claimed_by_its_owner_only() -> None:
    claimed: dict[int, set[int]] = {0: set(), 1: set()}

    class Learner(Actor):
        rollouts = SlotInlet(Rollout)

        async def run(self) -> None:
            for _ in range(12):
                slot = await self.rollouts.claim()
                claimed[self.index].add(slot.producer)
                self.rollouts.retire(slot)

    class Watcher(Actor):
        async def run(self) -> None:
            while sum(map(len, claimed.values())) < 4:
                await asyncio.sleep(0)
            self.end_run("seen")

    t = Topology()
    t.connect(t.add(Collector, count=4).rollouts, t.add(Learner, count=2).rollouts, Slots(LAYOUT, by_share=True))
    t.add(Watcher)
    run(t)
    assert claimed == {0: {0, 2}, 1: {1, 3}}


def test_unconsumed_messages_are_dropped_as_run_ended() -> None:
    class Maker(Actor):
        rollouts = SlotOutlet(Rollout)

        async def run(self) -> None:
            for _ in range(2):
                self.rollouts.commit(await self.rollouts.reserve())
            self.end_run("both slots are full")
            await self.rollouts.reserve()

    t = Topology()
    t.connect(t.add(Maker).rollouts, t.add(like(Idle, inn=Inlet(Rollout))).inn, Slots(LAYOUT, slots=2))
    assert run(t).channels["rollouts"] == account(2, 0, run_ended=2)


@pytest.mark.parametrize("processes", [("one", "one"), (None, None)])
def test_messages_that_are_unread_when_the_run_ends_are_dropped_as_run_ended(processes: tuple[str | None, ...]) -> None:
    """The consumer stops first, while the producer still waits for its acknowledgements."""
    t = Topology()
    source = t.add(Source, total=3, stays=True, process=processes[0])
    t.connect(source.out, t.add(like(Idle, inn=Inlet(Number)), process=processes[1]).inn)

    async def end_soon(worker: Worker) -> None:
        await asyncio.sleep(1)
        worker.end_run("three messages are unread")

    t.add(Worker, work=end_soon)
    assert run(t, virtual=True).channels["out"] == account(3, 0, run_ended=3)


# --- boards


class Publisher(Actor):
    weights = Publication(Weights)

    def __init__(self, versions: int) -> None:
        self.versions = versions

    async def run(self) -> None:
        for version in range(self.versions):
            self.weights.begin()[:] = version
            self.weights.publish(version)
            await asyncio.sleep(0.01)


def test_the_latest_version_wins_and_is_never_torn() -> None:
    seen: list[int] = []

    class Reader(Actor):
        weights = Subscription(Weights)

        async def run(self) -> None:
            while not seen or seen[-1] < 50:
                version, block = await self.weights.pin()
                assert set(block.tolist()) == {version}
                await asyncio.sleep(0.015)
                assert set(block.tolist()) == {version}, "pinned"
                self.weights.unpin()
                seen.append(version)
            self.end_run("seen enough")

    t = Topology()
    publisher = t.add(Publisher, versions=100)
    t.connect(publisher.weights, t.add(Reader).weights, Board(100))
    t.digest(publisher.weights, 100)
    outcome = run(t, virtual=True)
    assert seen == sorted(set(seen))
    assert outcome.channels == {}
    assert outcome.digest in {hashlib.sha256(bytes([version] * 100)).hexdigest() for version in range(50, 100)}


def test_a_reader_waits_for_a_version_and_misses_one_that_is_gone() -> None:
    seen: list[Any] = []

    class Reader(Actor):
        weights = Subscription(Weights)

        async def run(self) -> None:
            for version in (0, 7):
                seen.append((await self.weights.pin(version))[0])
                self.weights.unpin()
            try:
                await self.weights.pin(1)
            except VersionGone as error:
                seen.append(str(error))
            self.end_run("seen")

    t = Topology()
    t.connect(t.add(Publisher, versions=9).weights, t.add(Reader).weights, Board(8))
    run(t, virtual=True)
    assert seen == [0, 7, "version 1 has been overwritten; the latest is 7"]


# --- endpoints


class Counter(Idle):
    def __init__(self) -> None:
        self.value = 0

    @endpoint
    async def add(self, more: int, times: int = 1) -> int:
        self.value += more * times
        return self.value

    @endpoint
    async def echo(self, value: Tree) -> Tree:
        return value

    @endpoint
    async def fail(self, text: str, times: int = 1) -> None:
        raise KeyError(text * times)

    @endpoint
    async def leave(self) -> None:
        raise SystemExit(3)

    @endpoint
    async def hang(self) -> None:
        await asyncio.Event().wait()

    @endpoint
    async def unsendable(self) -> Any:
        return {1, 2}


def calling(work: Callable[[Any], Awaitable[Any]], process: str | None = None, **options: Any) -> Any:
    """Runs `work(handle)` in one actor, with a handle to a `Counter` in another; what it returns."""
    results: list[Any] = []

    async def call(worker: Worker) -> None:
        results.append(await work(worker.handles["counter"]))
        worker.end_run("called")

    t = Topology()
    counter = t.add(Counter, process=process)
    t.add(Worker, process=process, work=call, counter=counter.handle())
    assert run(t, **options).state == "finished"
    return results[0]


same_or_apart = pytest.mark.parametrize("process", [None, "both"])


@same_or_apart
def test_a_run_ends_when_only_serving_actors_remain(process: str | None) -> None:
    async def work(worker: Worker) -> None:
        assert await worker.handles["counter"].add(2) == 2

    t = Topology()
    counter = t.add(like(Counter, run=Actor.run), process=process)
    t.add(Worker, process=process, work=work, counter=counter.handle())
    outcome = run(t)
    assert (outcome.state, outcome.reason) == ("finished", "all actors are done")


def test_an_actor_without_a_life_is_done_at_once() -> None:
    t = Topology()
    t.add(Actor, count=3)
    outcome = run(t)
    assert (outcome.state, outcome.reason) == ("finished", "all actors are done")


@same_or_apart
def test_a_call_is_answered(process: str | None) -> None:
    async def work(counter: Any) -> list[int]:
        return [await counter.add(2), await counter.add(3, 10), await counter.call("add", 1)]

    assert calling(work, process) == [2, 32, 33]


def test_calls_may_cross() -> None:
    async def work(counter: Any) -> list[Tree]:
        return await asyncio.gather(*(counter.echo({"number": number}) for number in range(50)))

    assert calling(work) == [{"number": number} for number in range(50)]


@same_or_apart
def test_a_remote_error_names_the_actor_the_cause_and_the_place(process: str | None) -> None:
    async def work(counter: Any) -> RemoteError:
        with pytest.raises(RemoteError) as caught:
            await counter.fail("x")
        assert await counter.add(1) == 1, "it goes on"
        return caught.value

    error = calling(work, process)
    assert str(error) == f"[counter-0 pid {os.getpid()}] KeyError: 'x'"
    assert error.remote_type == "KeyError"
    assert "raise KeyError(text * times)" in error.remote_traceback


@same_or_apart
def test_an_answer_that_cannot_travel_is_an_error_of_the_endpoint(process: str | None) -> None:
    async def work(counter: Any) -> RemoteError:
        with pytest.raises(RemoteError) as caught:
            await counter.unsendable()
        return caught.value

    error = calling(work, process)
    assert error.remote_type == "TypeError"
    assert "Reply.value: a tree holds scalars, lists and maps with text keys, not set" in str(error)


def test_a_call_has_a_deadline() -> None:
    async def work(counter: Any) -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with pytest.raises(TimeoutError) as caught:
            await counter.hang(deadline_s=2.0)
        assert str(caught.value) == "`counter-0.hang` did not reply within 2.0 s"
        assert await counter.add(1) == 1
        return loop.time() - begun

    assert calling(work, virtual=True) == pytest.approx(2.0, abs=0.1)


def test_unknown_endpoints_and_wrong_arguments() -> None:
    async def work(counter: Any) -> list[str]:
        with pytest.raises(AttributeError, match="`counter-0` has no endpoint `missing`; it has: add, echo"):
            await counter.missing()
        texts = []
        for method, arguments in (("missing", ()), ("run", ()), ("add", ()), ("add", ("x",))):
            with pytest.raises(RemoteError) as caught:
                await counter.call(method, *arguments)
            texts.append(str(caught.value).partition("] ")[2])
        return texts

    texts = calling(work)
    assert texts[:2] == [f"AttributeError: `counter-0` has no endpoint `{name}`" for name in ("missing", "run")]
    assert all(text.startswith("TypeError: ") for text in texts[2:])


def test_arguments_that_cannot_travel_are_refused_here() -> None:
    async def work(counter: Any) -> str:
        with pytest.raises(TypeError) as caught:
            await counter.echo(object())
        return str(caught.value)

    assert calling(work).startswith("Call.arguments: a tree holds scalars")


def test_handles_travel_in_lists_and_actors_may_call_each_other() -> None:
    totals: list[int] = []

    async def work(worker: Worker) -> None:
        totals.extend([await counter.add(number) for number, counter in enumerate(worker.handles["counters"])])
        worker.end_run("called")

    t = Topology()
    counters = t.add(Counter, count=3)
    t.add(Worker, work=work, counters=[counters.handle(index) for index in range(3)])
    run(t)
    assert totals == [0, 1, 2]


@pytest.mark.parametrize("more", [1, 100])
def test_a_call_to_an_unknown_actor(more: int) -> None:
    """An actor of another topology, or a misspelled name, fails at once, because no wait would help."""
    times: list[float] = []

    async def work(worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with pytest.raises(TopologyError) as caught:
            await worker.handles["counter"].add(1)
        times.append(loop.time() - begun)
        assert str(caught.value) == "cannot call `teacher.add`: this run has no actor `teacher`"
        there = ", ".join(f"counter-{number}" for number in range(min(more, 20)))
        others = f" and {more - 19} more" if more > 20 else ", worker-0"
        assert caught.value.hint == f"its actors are: {there}{others}"
        worker.end_run("called")

    t = Topology()
    t.add(Counter, count=more, process="counters")
    elsewhere = Topology().add(like(Counter, role="teacher", numbered=False)).handle()
    t.add(Worker, work=work, counter=elsewhere)
    run(t, virtual=True)
    assert times == [0.0]


def test_a_handle_used_while_the_topology_is_built() -> None:
    handle = Topology().add(Counter).handle()
    with pytest.raises(TopologyError, match="`counter-0` is not running yet"):
        asyncio.run(handle.add(1))  # type: ignore[arg-type]


def test_a_call_in_setup_waits_until_the_other_is_there() -> None:
    answers: list[Any] = []

    class Early(Actor):
        def __init__(self, counter: Handle) -> None:
            self.counter = counter

        async def setup(self) -> None:
            answers.append(await self.counter.add(5))

        async def run(self) -> None:
            self.end_run("called")

    t = Topology()
    t.add(Early, counter=Handle("counter-0", Counter))
    t.add(Counter)
    run(t)
    assert answers == [5]


# --- lives


def test_an_actor_knows_itself_and_lives_in_order() -> None:
    story: list[Any] = []

    class Curious(Actor):
        out = Outlet(Number)

        def __init__(self, extra: int) -> None:
            story.append(("built", self.name, self.index, self.incarnation, self.out.connected, extra))

        async def setup(self) -> None:
            story.append(("setup", self.log.name, self.status.page is not None))

        async def run(self) -> None:
            story.append("run")
            await self.out.send(Number(1))

        async def teardown(self) -> None:
            story.append("teardown")

    seen: list[int] = []
    t = Topology()
    t.add(Source, group="other", count=0)
    t.connect(t.add(Curious, extra=5).out, t.add(Sink, seen=seen, total=1).inn)
    run(t)
    assert story == [("built", "curious-0", 0, 0, True, 5), ("setup", "curious-0", True), "run", "teardown"]


def test_no_actor_runs_before_all_are_set_up() -> None:
    story: list[str] = []

    class Slow(Actor):
        async def setup(self) -> None:
            await asyncio.sleep(self.index)
            story.append(f"{self.name} is set up")

        async def run(self) -> None:
            story.append(f"{self.name} runs")
            if self.index == 2:
                self.end_run("all ran")

    t = Topology()
    t.add(Slow, count=3)
    run(t, virtual=True)
    assert story[:3] == [f"slow-{index} is set up" for index in range(3)]
    assert sorted(story[3:]) == [f"slow-{index} runs" for index in range(3)]


def test_an_actor_that_ends_early_leaves_the_others_alone() -> None:
    early: list[int] = []
    seen: list[int] = []

    class Brief(Actor):
        inn = Inlet(Number)

        async def run(self) -> None:
            for _ in range(3):
                early.append((await self.inn.receive()).value)

    t = Topology()
    source = t.add(like(Source, out=Outlet(Number, pattern="broadcast", when_full="wait")), total=30)
    t.connect(source.out, t.add(Brief).inn, Messages(window=2))
    t.connect(source.out, t.add(Sink, seen=seen, total=30).inn, Messages(window=2))
    outcome = run(t)
    assert outcome.state == "finished"
    assert early == [0, 1, 2]
    assert seen == list(range(30))
    out = outcome.channels["out"]
    assert out["in_flight"] == 0
    assert out["consumed"] == 33
    assert set(out["dropped"]) <= {"consumer_died"}


def test_results_are_counters_of_one_actor() -> None:
    async def work(worker: Worker) -> None:
        worker.status.count("updates", 3)
        worker.status.count("updates")
        worker.status.count("secret", 9)
        worker.end_run("counted")

    t = Topology()
    t.results(t.add(Worker, work=work), "updates", "never_counted")
    assert run(t).results == {"updates": 4.0}


def test_the_first_reason_to_end_is_the_reason() -> None:
    async def work(worker: Worker) -> None:
        worker.end_run("first")
        worker.end_run("second")

    t = Topology()
    t.add(Worker, work=work)
    assert run(t).reason == "first"


# --- failures


class Faulty(Actor):
    """Raises in one place."""

    def __init__(self, where: str, error: BaseException) -> None:
        self.where = where
        self.error = error
        self.check("__init__")

    def check(self, where: str) -> None:
        if where == self.where:
            raise self.error

    async def setup(self) -> None:
        self.check("setup")

    async def run(self) -> None:
        self.check("run")
        if self.where == "drain":
            await asyncio.Event().wait()

    async def drain(self) -> None:
        self.check("drain")
        await super().drain()

    async def teardown(self) -> None:
        self.check("teardown")


@pytest.mark.parametrize("where", ["__init__", "setup", "run", "teardown"])
def test_an_actor_that_raises_ends_the_run_and_is_named(where: str) -> None:
    torn_down: list[str] = []

    class Bystander(Idle):
        async def teardown(self) -> None:
            torn_down.append(self.name)

    boom = EnvironmentFailed("the box is shut", hint="open it")
    t = Topology()
    t.add(Bystander, count=2)
    t.add(Faulty, where=where, error=boom)
    error, supervisor = failing(t, EnvironmentFailed)
    assert error is boom
    assert supervisor.state.end.reason == "faulty-0 failed"
    assert named(supervisor, "faulty-0", "the box is shut")
    assert supervisor.state.end.hint == "open it"
    assert [any("-died-> failed" in line for line in machine.history) for machine in supervisor.state.machines] == [
        False,
        False,
        True,
    ]
    if where in ("run", "teardown"):
        assert sorted(torn_down) == ["bystander-0", "bystander-1"]


@pytest.mark.parametrize("where", ["__init__", "setup", "run", "teardown"])
@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
)
def test_exceptions_that_end_programs_are_failures_of_the_actor(where: str, raised: BaseException, text: str) -> None:
    t = Topology()
    t.add(Idle)
    t.add(Faulty, where=where, error=raised)
    error, supervisor = failing(t, ActorFailed)
    assert str(error).startswith(f"faulty-0 raised {text} (")
    assert error.__cause__ is raised
    assert supervisor.state.end.error.startswith("faulty-0 failed in `")
    assert f": {text} (" in supervisor.state.end.error


def test_an_endpoint_that_exits_is_an_error_of_the_call() -> None:
    async def work(counter: Handle) -> str:
        with pytest.raises(RemoteError, match="SystemExit: 3") as caught:
            await counter.leave()
        return caught.value.remote_type

    assert calling(work) == "SystemExit"


def test_an_error_without_a_text_is_named_by_its_type() -> None:
    t = Topology()
    t.add(Faulty, where="run", error=ZeroDivisionError())
    _, supervisor = failing(t, ZeroDivisionError)
    assert named(supervisor, "faulty-0", "ZeroDivisionError")


def test_an_actor_that_raises_while_it_drains() -> None:
    t = Topology()
    t.add(Faulty, where="drain", error=ValueError("cannot stop"))
    t.add(Worker, work=end_it)
    seen: list[Supervisor] = []
    outcome = run(t, watch=seen.append)
    assert outcome.state == "finished", "the run had reached its goal"
    assert "died: faulty-0 died in `runtime`: ValueError: cannot stop (" in seen[0].state.recent[-1]


def test_neighbours_in_the_process_of_a_failed_actor_are_torn_down() -> None:
    torn_down: list[str] = []

    class Neighbour(Idle):
        async def teardown(self) -> None:
            torn_down.append(self.name)

    t = Topology()
    t.add(Neighbour, process="shared")
    t.add(Faulty, process="shared", where="run", error=ValueError("boom"))
    _, supervisor = failing(t, ValueError)
    assert named(supervisor, "faulty-0", "ValueError: boom")
    assert torn_down == ["neighbour-0"]


def test_messages_of_a_failed_consumer_are_accounted_for() -> None:
    class Fussy(Actor):
        inn = Inlet(Number)

        async def run(self) -> None:
            for _ in range(3):
                await self.inn.receive()
            raise ValueError("enough")

    t = Topology()
    t.connect(t.add(Source, total=100).out, t.add(Fussy).inn, Messages(window=8))
    _, supervisor = failing(t, ValueError)
    out = supervisor.accounts()["out"]
    assert out["in_flight"] == 0
    assert out["produced"] == out["consumed"] + sum(out["dropped"].values())


def test_a_failed_consumer_of_a_slab_had_claimed_one() -> None:
    class Fussy(Actor):
        inn = SlotInlet(Rollout)

        async def run(self) -> None:
            await self.inn.claim()
            raise ValueError("enough")

    t = Topology()
    t.connect(t.add(Collector).rollouts, t.add(Fussy).inn, Slots(LAYOUT))
    _, supervisor = failing(t, ValueError)
    rollouts = supervisor.accounts()["rollouts"]
    assert rollouts["dropped"]["consumer_died"] == 1
    assert (rollouts["consumed"], rollouts["in_flight"]) == (0, 0)


def test_a_topology_that_cannot_run_is_refused_first() -> None:
    t = Topology()
    t.add(Source)
    with pytest.raises(TopologyError, match=r"port `out` \(Outlet\) of `source` is not connected"):
        run(t)


# --- ends


def test_a_request_stops_the_run() -> None:
    async def endless(worker: Worker) -> None:
        await asyncio.sleep(5)
        supervisors[0].request("somebody asked")
        supervisors[0].request("again")
        await asyncio.sleep(LIMIT_S)

    supervisors: list[Supervisor] = []
    t = Topology()
    t.add(Worker, work=endless)
    t.connect(t.add(Source, total=10**6).out, t.add(like(Idle, inn=Inlet(Number))).inn, Messages(window=4))
    outcome = run(t, virtual=True, watch=supervisors.append)
    assert (outcome.state, outcome.reason, outcome.error) == ("stopped", "somebody asked", "")
    assert outcome.channels["out"]["produced"] == 4


def test_a_request_to_stop_now_does_not_wait_for_any_actor() -> None:
    class Stubborn(Idle):
        async def drain(self) -> None:
            await asyncio.Event().wait()

    async def ask(worker: Worker) -> None:
        supervisors[0].request("now", at_once=True)

    supervisors: list[Supervisor] = []
    t = Topology()
    t.add(Stubborn)
    t.add(Worker, work=ask)
    outcome = run(t, virtual=True, watch=supervisors.append)
    assert (outcome.state, outcome.reason) == ("stopped", "now")


def test_a_limit_of_time_stops_the_run() -> None:
    t = Topology()
    t.add(Idle)
    outcome = run(t, virtual=True, seconds=90)
    assert (outcome.state, outcome.reason) == ("stopped", "90 s are over")


def test_a_drain_may_be_orderly() -> None:
    story: list[str] = []

    class Orderly(Actor):
        def __init__(self) -> None:
            self.asked = asyncio.Event()

        async def drain(self) -> None:
            self.asked.set()

        async def run(self) -> None:
            await self.asked.wait()
            await asyncio.sleep(20)
            story.append("saved")

    t = Topology()
    t.add(Orderly)
    assert run(t, virtual=True, seconds=1).state == "stopped"
    assert story == ["saved"]


def test_a_drain_has_a_deadline() -> None:
    class Stubborn(Idle):
        async def drain(self) -> None:
            """Does not stop."""

    t = Topology()
    t.add(Stubborn)
    supervisors: list[Supervisor] = []
    outcome = run(t, virtual=True, seconds=1, settings=Settings(drain_s=3), watch=supervisors.append)
    assert outcome.state == "stopped"
    assert supervisors[0].state.machines[0].history[-1].endswith("-died-> finished (it did not stop in time)")


def test_who_does_not_stop_costs_the_last_nothing_of_what_they_save() -> None:
    saved: list[float] = []

    class Stubborn(Idle):
        async def drain(self) -> None:
            """Inside a step that takes longer than a stop may take."""

    class Saving(Idle):
        async def teardown(self) -> None:
            await asyncio.sleep(1)
            saved.append(asyncio.get_running_loop().time())

    t = Topology()
    t.add(Stubborn)
    t.add(like(Saving, role="recorder"), last=True)
    outcome = run(t, virtual=True, seconds=1, settings=Settings(drain_s=3))
    assert outcome.state == "stopped"
    assert saved == [pytest.approx(1 + 1.5 + 1, abs=0.1)]


def test_the_last_stop_after_all_others() -> None:
    story: list[str] = []

    class Ending(Idle):
        async def teardown(self) -> None:
            await asyncio.sleep(1)
            story.append(self.name)

    t = Topology()
    t.add(like(Ending, role="recorder"), last=True)
    t.add(like(Ending, role="worker"), count=2)
    run(t, virtual=True, seconds=1)
    assert sorted(story[:2]) == ["worker-0", "worker-1"]
    assert story[2:] == ["recorder-0"]


# --- time


def test_a_virtual_hour_passes_quickly() -> None:
    async def sleep(worker: Worker) -> None:
        await asyncio.sleep(3600)
        worker.end_run("an hour is over")

    t = Topology()
    t.add(Worker, work=sleep)
    begun = time.monotonic()
    outcome = run(t, virtual=True, seconds=4000)
    assert outcome.reason == "an hour is over"
    assert time.monotonic() - begun < 60


def test_virtual_runs_repeat_themselves() -> None:
    def once() -> tuple[list[Any], dict[str, Any]]:
        story: list[Any] = []

        class Busy(Actor):
            inn = Inlet(Number)

            async def run(self) -> None:
                async for number in self.inn:
                    await asyncio.sleep(0.01 * ((number.value * 7 + self.index) % 5))
                    story.append((self.name, number.value, round(asyncio.get_running_loop().time(), 6)))

        t = Topology()
        t.connect(t.add(Source, count=3, total=20).out, t.add(Busy, count=2).inn, Messages(window=2))
        outcome = run(t, virtual=True, seconds=5)
        return story, outcome.channels

    first, second = once(), once()
    assert first == second
    assert len(first[0]) == 60


def test_a_log_is_that_of_the_actor(caplog: pytest.LogCaptureFixture) -> None:
    async def say(worker: Worker) -> None:
        worker.log.warning("hello from %s", worker.name)
        worker.note("greeting", "said hello", loudly=True)
        worker.end_run("said")

    t = Topology()
    t.add(Worker, work=say)
    with caplog.at_level(logging.INFO):
        run(t)
    assert [(record.name, record.message) for record in caplog.records if record.name == "worker-0"] == [
        ("worker-0", "hello from worker-0")
    ]


# --- garbage, and messages at the wrong time


def posting(messages: Callable[[Supervisor], list[tuple[str, Frames]]]) -> Outcome:
    """Posts frames to inboxes in the middle of a run, which then must still be able to call and to end."""
    supervisors: list[Supervisor] = []

    async def post(worker: Worker) -> None:
        for address, frames in messages(supervisors[0]):
            supervisors[0].transport.post(address, frames)
        await asyncio.sleep(1)
        assert await worker.handles["counter"].add(1, deadline_s=1.0) == 1
        worker.end_run("unharmed")

    t = Topology()
    counter = t.add(Counter)
    t.add(Worker, work=post, counter=counter.handle())
    t.connect(t.add(Source, stays=True).out, t.add(like(Idle, inn=Inlet(Number))).inn, Messages(window=1))
    return run(t, virtual=True, watch=supervisors.append)


def test_garbage_in_any_mailbox_is_harmless(caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(0)

    def garbage(supervisor: Supervisor) -> list[tuple[str, Frames]]:
        addresses = [supervisor.address, *(process.address for process in supervisor.state.table.values())]
        frames = [[chance.randbytes(chance.randrange(40)) for _ in range(chance.randrange(4))] for _ in range(50)]
        return [(address, some) for address in addresses for some in frames]

    outcome = posting(garbage)
    assert (outcome.reason, outcome.exact) == ("unharmed", True)
    assert outcome.channels["out"]["produced"] == 1
    logged = [record.message for record in caplog.records if "dropped a bad message" in record.message]
    assert len(logged) == 6 * 4, "of each 50, the 1st, 2nd, 4th, ... and 32nd"
    assert sum("(32 so far)" in message for message in logged) == 4


WILD: list[Message] = [
    *(
        Reply(77, 0, None, "", "", ""),
        Notify(99),
        Notify(-5),
        Left(99, 0, ""),
        Left(0, 7, "", with_run=True),
        Begin(),
    ),
    *(
        Ack(9, 9, 9, 9, 9, 9, 9, 9),
        Ack(0, 2, 3, 0, 0, 50, 50, 1),
        Ack(0, 2, 3, 7, 0, 1, 0, 1),
        Ack(0, 2, 3, 0, 7, 1, 0, 1),
    ),
    *(Deliver(5, 0, 0, 0, 1), Deliver(-1, -1, 0, 0, 1), Joined.of({99: Member(0, "memory://x", False)})),
    *(Hello("nobody", 0, 0, ""), Hello("counter-0", 7, 0, ""), Ready("nobody", 0), Ready("counter-0", 0), Done(99, 0)),
    *(
        Done(0, 7),
        Failed(99, 0, "", "", "", "", "", False),
        Failed(0, 7, "", "", "", "", "", False),
        Note(99, "", "", None),
    ),
]


@pytest.mark.parametrize("message", WILD, ids=repr)
def test_an_inconsistent_message_is_harmless(message: Message) -> None:
    def everywhere(supervisor: Supervisor) -> list[tuple[str, Frames]]:
        addresses = [supervisor.address, *(process.address for process in supervisor.state.table.values())]
        return [(address, encode(message)) for address in addresses]

    assert posting(everywhere).reason == "unharmed"


def test_a_call_for_an_actor_of_another_process_is_harmless() -> None:
    def everywhere(supervisor: Supervisor) -> list[tuple[str, Frames]]:
        return [(process.address, encode(Call(1, 0, 99, "x", []))) for process in supervisor.state.table.values()]

    assert posting(everywhere).reason == "unharmed"


def test_a_late_reply_does_not_answer_a_newer_call() -> None:
    class Slow(Idle):
        @endpoint
        async def echo(self, value: int) -> int:
            await asyncio.sleep(1)
            return value

    async def call(worker: Worker) -> None:
        slow = worker.handles["slow"]
        with pytest.raises(TimeoutError):
            await slow.echo(1, deadline_s=0.5)
        answers.append(await slow.echo(2))
        worker.end_run("called")

    answers: list[int] = []
    t = Topology()
    t.add(Worker, work=call, slow=t.add(Slow).handle())
    run(t, virtual=True)
    assert answers == [2]


def test_an_endless_error_text_of_an_endpoint_harms_neither_side() -> None:
    async def work(counter: Any) -> str:
        with pytest.raises(RemoteError) as caught:
            await counter.fail("x", 2 * MAX_TEXT_BYTES)
        assert await counter.add(1) == 1
        return caught.value.remote_type

    assert calling(work, virtual=True) == "KeyError"


def test_an_endless_error_text_still_names_the_actor() -> None:
    t = Topology()
    t.add(Faulty, where="run", error=ValueError("x" * (2 * MAX_TEXT_BYTES)))
    _, supervisor = failing(t, ValueError)
    assert supervisor.state.end.reason == "faulty-0 failed"
    assert "xxx" in supervisor.state.end.error


def test_what_a_consumer_took_before_it_ended_is_consumed() -> None:
    class Brief(Actor):
        inn = Inlet(Number)

        async def run(self) -> None:
            while self.inn.receive_nowait() is None:
                await asyncio.sleep(1)

    t = Topology()
    t.connect(t.add(Source, stays=True).out, t.add(Brief).inn)
    outcome = run(t, virtual=True, seconds=5)
    assert outcome.channels["out"] == account(10, 1, consumer_died=9)


def test_a_message_that_a_port_does_not_carry_is_refused_where_it_is_sent() -> None:
    class Other(Message):
        text: str

    class Confused(Actor):
        out = Outlet(Number)

        async def run(self) -> None:
            await self.out.send(Other("x"))  # type: ignore[arg-type]

    t = Topology()
    confused, idle = t.add(Confused), t.add(like(Idle, inn=Inlet(Number)))
    t.connect(confused.out, idle.inn)
    error, supervisor = failing(t, TopologyError)
    assert str(error) == "port `out` carries Number, not Other"
    assert named(supervisor, "confused-0", "port `out` carries Number, not Other")
    assert supervisor.state.end.hint == "send a Number, or declare the port with another message"


# --- many at once


class Many(Actor):
    out = Outlet(Number)

    async def run(self) -> None:
        await self.out.send_many([Number(value) for value in range(500)])


class ReceivesMany(Actor):
    inn = Inlet(Number)

    def __init__(self, portions: list[list[int]]) -> None:
        self.portions = portions

    async def run(self) -> None:
        while sum(map(len, self.portions)) < 500:
            self.portions.append([int(number.value) for number in await self.inn.receive_many(40)])


@same_or_apart
@pytest.mark.parametrize(
    ("carrier", "least"), [(Messages(window=64), 32), (Slots(Layout({"value": ("int64", ())}), slots=8), 1)]
)
def test_many_arrive_in_order_and_in_portions(process: str | None, carrier: Messages | Slots, least: int) -> None:
    portions: list[list[int]] = []
    t = Topology()
    sends = t.add(Many, process=process)
    receives = t.add(ReceivesMany, process=process, portions=portions)
    t.connect(sends.out, receives.inn, carrier)
    outcome = run(t)
    assert outcome.reason == "all actors are done"
    assert [value for portion in portions for value in portion] == [*range(500)]
    assert all(0 < len(portion) <= 40 for portion in portions)
    assert max(map(len, portions)) >= least
    assert outcome.channels["out"] == {"produced": 500, "consumed": 500, "dropped": {}, "in_flight": 0}
