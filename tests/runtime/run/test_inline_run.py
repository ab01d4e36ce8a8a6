"""InlineRun: a topology that works only while its owner waits for something."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from hive.clock import RealClock
from hive.errors import ActorFailed
from hive.runtime.actor.actor import Actor
from hive.runtime.actor.ports import Inlet, Outlet
from hive.runtime.run.inline_run import UNWATCHED, InlineRun
from hive.runtime.supervise.membership import Settings
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.messages import Message

HOUR_NS = 3600 * 10**9


class Number(Message):
    value: int


@dataclass
class Seen:
    """What actors did."""

    made: int = 0
    taken: list[int] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)


class Source(Actor):
    out = Outlet(Number)

    def __init__(self, seen: Seen, total: int, fails_at: int = -1) -> None:
        self.seen, self.total, self.fails_at = seen, total, fails_at

    async def run(self) -> None:
        for value in range(self.total):
            if value == self.fails_at:
                raise ActorFailed("the well is dry")
            self.seen.made += 1
            self.seen.threads.add(threading.get_ident())
            await self.out.send(Number(value))

    async def teardown(self) -> None:
        self.seen.closed.append("source")


class Sink(Actor):
    numbers = Inlet(Number)

    def __init__(self, seen: Seen, total: int) -> None:
        self.seen, self.total = seen, total

    async def run(self) -> None:
        async for number in self.numbers:
            self.seen.taken.append(number.value)
            if len(self.seen.taken) == self.total:
                self.end_run("all are taken")
            await asyncio.sleep(0)

    async def teardown(self) -> None:
        self.seen.closed.append("sink")


class Sleeper(Actor):
    """Waits for a timer: it has no phase, and its page shows no progress."""

    async def run(self) -> None:
        await asyncio.sleep(1e6)


class Broken(Actor):
    async def setup(self) -> None:
        raise ValueError("no such device")


class JumpingClock(RealClock):
    """Owners of a run may wait for hours between two calls, or their machine may sleep."""

    ahead_ns = 0

    def now_ns(self) -> int:
        return super().now_ns() + self.ahead_ns


def topology_of(seen: Seen, total: int = 10**9, fails_at: int = -1) -> Topology:
    t = Topology()
    source = t.add(Source, seen=seen, total=total, fails_at=fails_at)
    sink = t.add(Sink, seen=seen, total=total)
    t.connect(source.out, sink.numbers)
    return t


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Threads and descriptors, those of shared memory among them, are as before."""
    gc.collect()
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before


@pytest.mark.usefixtures("nothing_left")
def test_actors_work_until_the_condition_holds_and_not_between_two_calls() -> None:
    seen, threads = Seen(), threading.enumerate()
    with InlineRun(topology_of(seen)) as run:
        assert seen == Seen()
        for count in (1, 5, 6, 50):
            run.until(lambda count=count: len(seen.taken) >= count)  # type: ignore[misc]
            assert seen.taken == list(range(len(seen.taken)))
            assert count <= len(seen.taken) < count + 100
            before = seen.made, len(seen.taken)
            asyncio.run(asyncio.sleep(0))  # other loops of this thread are none of its business
            assert (seen.made, len(seen.taken)) == before
            assert threading.enumerate() == threads
    assert seen.threads == {threading.get_ident()}
    assert sorted(seen.closed) == ["sink", "source"]


def test_a_condition_that_holds_runs_no_actor() -> None:
    seen = Seen()
    with InlineRun(topology_of(seen)) as run:
        run.until(lambda: True)
        assert seen == Seen()


@pytest.mark.usefixtures("nothing_left")
def test_it_finishes_by_itself() -> None:
    seen = Seen()
    with InlineRun(topology_of(seen, total=20)) as run:
        run.until(lambda: len(seen.taken) >= 5)
        outcome = run.finish()
    assert (outcome.state, seen.taken) == ("finished", list(range(20)))
    account = outcome.channels["out"]
    assert (account["produced"], account["consumed"], account["in_flight"]) == (20, 20, 0)


def test_finish_begins_in_the_loop() -> None:
    seen, loops = Seen(), []
    with InlineRun(topology_of(seen)) as run:

        def begin() -> None:
            loops.append(asyncio.get_running_loop())
            run.supervisor.request("enough")

        outcome = run.finish(begin)
        assert loops == [run.runner.get_loop()]
    assert (outcome.state, outcome.reason) == ("stopped", "enough")


@pytest.mark.usefixtures("nothing_left")
def test_a_run_that_ends_before_the_condition_holds_says_so() -> None:
    seen = Seen()
    with InlineRun(topology_of(seen, total=20)) as run:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="the run has ended: all are taken"):
                run.until(lambda: len(seen.taken) >= 30)
        run.until(lambda: len(seen.taken) == 20)
        assert run.finish().state == "finished"


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("fails_at", [0, 7])
def test_what_an_actor_raises_is_raised_by_the_call_in_which_it_happens(fails_at: int) -> None:
    seen = Seen()
    run = InlineRun(topology_of(seen, fails_at=fails_at))
    if fails_at:
        run.until(lambda: seen.made >= 1)
    with pytest.raises(ActorFailed, match="the well is dry") as caught:
        run.until(lambda: False)
    assert caught.value.__context__ is None
    with pytest.raises(ActorFailed, match="the well is dry"):
        run.finish()
    assert sorted(seen.closed) == ["sink", "source"]
    run.stop()
    run.stop()
    del run, caught


@pytest.mark.usefixtures("nothing_left")
def test_one_that_cannot_even_start_is_raised_by_the_first_call() -> None:
    t = topology_of(Seen())
    t.add(Broken)
    with InlineRun(t) as run, pytest.raises(ValueError, match="no such device"):
        run.until(lambda: False)
    del run


@pytest.mark.usefixtures("nothing_left")
def test_a_condition_that_raises_is_raised_and_the_run_goes_on() -> None:
    seen = Seen()

    def dead() -> bool:
        if len(seen.taken) >= 3:
            raise ZeroDivisionError("of the condition")
        return False

    with InlineRun(topology_of(seen)) as run:
        for error in (ZeroDivisionError, ZeroDivisionError):
            with pytest.raises(error, match="of the condition"):
                run.until(dead)
        run.until(lambda: len(seen.taken) >= 10)
        assert seen.taken == list(range(len(seen.taken)))


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("begins", [False, True])
def test_stop(begins: bool) -> None:
    """Again, and before anything began; what comes after is refused."""
    seen = Seen()
    run = InlineRun(topology_of(seen))
    if begins:
        run.until(lambda: len(seen.taken) >= 3)
    run.stop("enough")
    run.stop()
    assert sorted(seen.closed) == (["sink", "source"] if begins else [])
    assert run.supervisor.state.end.reason == ("enough" if begins else "")
    assert all(segment.fd == -1 for segment in run.memory.segments.values())
    with pytest.raises(RuntimeError, match="this run has been stopped"):
        run.until(lambda: True)
    with pytest.raises(RuntimeError, match="this run has been stopped"):
        run.finish()
    del run


@pytest.mark.usefixtures("nothing_left")
def test_it_works_inside_a_coroutine() -> None:
    """A notebook's cell is one. Its loop waits meanwhile, and the thread that does the work is gone then."""
    seen, before = Seen(), threading.enumerate()

    async def cell() -> None:
        with InlineRun(topology_of(seen)) as run:
            run.until(lambda: len(seen.taken) >= 3)
            run.until(lambda: len(seen.taken) >= 6)
            assert threading.enumerate() == before

    asyncio.run(cell())
    assert seen.taken[:6] == list(range(6))
    assert threading.get_ident() not in seen.threads
    assert sorted(seen.closed) == ["sink", "source"]


def until_looked(run: InlineRun) -> None:
    """Let the supervisor check all actors at least once more."""
    end = time.monotonic() + 0.6
    run.until(lambda: time.monotonic() > end)


@pytest.mark.parametrize(("settings", "killed"), [(UNWATCHED, False), (Settings(phase_limit_s=0.1), True)])
def test_no_actor_counts_as_stuck_between_two_calls(settings: Settings, killed: bool) -> None:
    """The loop stood still, so no page shows progress. The second case is how a watched run would take it."""
    t = Topology()
    t.add(Sleeper)
    run = InlineRun(t, settings=settings)
    try:
        if killed:
            with pytest.raises(RuntimeError, match="sleeper-0 failed"):
                until_looked(run)
        else:
            until_looked(run)
    finally:
        run.stop()


@pytest.mark.usefixtures("nothing_left")
def test_a_clock_that_jumps_between_two_calls_changes_nothing() -> None:
    seen, clock = Seen(), JumpingClock()
    run = InlineRun(topology_of(seen), clock=lambda loop: clock)
    for count in (3, 6, 9):
        run.until(lambda count=count: len(seen.taken) >= count)  # type: ignore[misc]
        clock.ahead_ns += 100 * HOUR_NS
    until_looked(run)
    assert run.supervisor.state.end.state == ""
    clock.ahead_ns += 100 * HOUR_NS
    run.stop()
    assert (run.supervisor.state.end.state, sorted(seen.closed)) == ("stopped", ["sink", "source"])
    assert seen.taken == list(range(len(seen.taken)))
    del run
