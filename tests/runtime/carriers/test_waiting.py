"""Waiting: a notify wakes at once, from another process too, and a lost one costs a rescan."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

import pytest

from hive import _native
from hive.runtime.carriers import waiting
from hive.runtime.carriers.waiting import CALLS_SLICE_NS, MAIL_SLICE_NS, Waiter, WakeRequest
from hive.runtime.memory.segments import Segment, SlabPlan, SlabView
from hive.runtime.memory.status import PAGE_BYTES, WAIT_IN, Status, read_status

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

LIMIT_S = 10  # for a wake-up that would otherwise never come; it takes microseconds


@pytest.fixture
def pages() -> _native.Status:
    segment = Segment.create("status", 2 * PAGE_BYTES)
    segment.close()
    return _native.Status(segment.memory)


@pytest.fixture
def no_rescan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a notify can end a wait within the limit."""
    monkeypatch.setattr(waiting, "RESCAN_S", 2.0 * LIMIT_S)


def waiter(pages: _native.Status, *, dedicated: bool) -> tuple[Waiter, int]:
    status = Status(pages.page(0), "actor", 1, 0)
    return Waiter(status, dedicated), status.phase("wait", WAIT_IN)


class Source:
    """Gives None until the attempt number `at`."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.attempts = 0

    def __call__(self) -> str | None:
        self.attempts += 1
        return "here" if self.attempts >= self.at else None


def fork(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


@pytest.mark.parametrize("dedicated", [False, True])
async def test_what_is_there_is_not_waited_for(pages: _native.Status, dedicated: bool) -> None:
    wait, phase = waiter(pages, dedicated=dedicated)
    progress = read_status(pages, 0).progress
    assert await wait.until(Source(1), phase, memory=True) == "here"
    assert read_status(pages, 0).progress == progress


async def test_results_that_are_false_are_results(pages: _native.Status) -> None:
    wait, phase = waiter(pages, dedicated=False)
    assert await wait.until(lambda: 0, phase) == 0


async def test_the_loop_runs_at_every_wait(pages: _native.Status) -> None:
    wait, phase = waiter(pages, dedicated=False)
    ran: list[int] = []
    for i in range(3):
        asyncio.get_running_loop().call_soon(ran.append, i)
        await wait.until(Source(1), phase, memory=True)
        assert ran == list(range(i + 1))


async def test_the_loop_of_one_that_is_alone_runs_now_and_then(
    pages: _native.Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, phase = waiter(pages, dedicated=True)
    ran: list[int] = []
    monkeypatch.setattr(waiting, "YIELD_NS", 0)
    for i in range(3):
        asyncio.get_running_loop().call_soon(ran.append, i)
        await wait.until(Source(1), phase, memory=True)
        assert ran == list(range(i + 1))
    monkeypatch.setattr(waiting, "YIELD_NS", LIMIT_S * 10**9)
    asyncio.get_running_loop().call_soon(ran.append, 3)
    await wait.until(Source(1), phase, memory=True)
    assert ran == [0, 1, 2]
    await wait.until(Source(3), phase, memory=True)  # at a real wait it always does
    assert ran == [0, 1, 2, 3]


@pytest.mark.parametrize("dedicated", [False, True])
async def test_a_lost_notification_costs_one_rescan(
    pages: _native.Status, dedicated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "RESCAN_S", 0.001)
    wait, phase = waiter(pages, dedicated=dedicated)
    source = Source(5)
    assert await wait.until(source, phase, memory=True) == "here"
    assert source.attempts == 5


@pytest.mark.usefixtures("no_rescan")
async def test_wake_wakes_every_wait(pages: _native.Status) -> None:
    wait, phase = waiter(pages, dedicated=False)
    sources = [Source(3), Source(3)]
    tasks = [asyncio.create_task(wait.until(source, phase)) for source in sources]
    while any(source.attempts < 2 for source in sources):
        await asyncio.sleep(0)
    assert read_status(pages, 0).phase == "wait"
    await asyncio.sleep(0)
    wait.wake()
    wait.wake()
    assert await asyncio.wait_for(asyncio.gather(*tasks), LIMIT_S) == ["here", "here"]
    assert [source.attempts for source in sources] == [3, 3]
    assert read_status(pages, 0).phase == "runtime"


@pytest.mark.usefixtures("no_rescan")
async def test_a_dedicated_actor_still_receives_messages(pages: _native.Status) -> None:
    """Its waits for messages leave the loop free, and `wake` ends them."""
    wait, phase = waiter(pages, dedicated=True)
    inbox: list[str] = []

    def deliver() -> None:
        inbox.append("message")
        wait.wake()

    asyncio.get_running_loop().call_later(0.005, deliver)
    waited = wait.until(lambda: inbox.pop() if inbox else None, phase)
    assert await asyncio.wait_for(waited, LIMIT_S) == "message"


@pytest.mark.usefixtures("no_rescan")
async def test_a_cancelled_wait_leaves_nothing(pages: _native.Status) -> None:
    wait, phase = waiter(pages, dedicated=False)
    source = Source(100)
    task = asyncio.create_task(wait.until(source, phase))
    while source.attempts < 2:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert read_status(pages, 0).phase == "runtime"
    wait.wake()
    assert source.attempts == 2


@pytest.mark.parametrize("failing", [1, 3])
async def test_what_the_attempt_raises_is_raised(pages: _native.Status, failing: int) -> None:
    wait, phase = waiter(pages, dedicated=True)
    source = Source(100)

    def attempt() -> str | None:
        if source.attempts + 1 == failing:
            raise LookupError("gone")
        return source()

    with pytest.raises(LookupError, match="gone"):
        await wait.until(attempt, phase, memory=True)
    assert read_status(pages, 0).phase == "runtime"


# The notifier


def test_a_notification_between_attempt_and_sleep_is_not_lost(pages: _native.Status) -> None:
    page = pages.page(0)
    seen = page.seen()
    page.notify()
    assert page.wait(seen, LIMIT_S * 10**9)
    assert not page.wait(page.seen(), 1000)
    assert not pages.page(1).wait(pages.page(1).seen(), 1000)


def test_one_of_several_notifying_writers_sends_the_message(pages: _native.Status) -> None:
    page = pages.page(0)
    assert pages.notify_all([0]) == []
    page.set_waiting()
    assert [pages.notify_all([0]) for _ in range(3)] == [[0], [], []]
    page.set_waiting()
    assert pages.notify_all([1]) == []
    page.open("a-1", 7, 1)  # the next incarnation is not waiting
    assert pages.notify_all([0]) == []


def test_notify_all_returns_the_actors_that_need_a_message(pages: _native.Status) -> None:
    for number in (1, 0):
        pages.page(number).set_waiting()
    seen = [pages.page(number).seen() for number in range(2)]
    assert pages.notify_all(range(2)) == [0, 1]
    assert all(pages.page(number).wait(before, LIMIT_S * 10**9) for number, before in enumerate(seen))
    assert pages.notify_all((1, 0)) == []
    assert pages.notify_all(()) == []
    with pytest.raises(IndexError):
        pages.notify_all([pages.pages])
    with pytest.raises(RuntimeError):
        pages.notify_all(["0"])  # type: ignore[list-item]


def test_notify_all_also_wakes_the_notifier(pages: _native.Status) -> None:
    page = pages.page(0)
    seen = page.seen()
    pages.notify_all([0])
    assert page.wait(seen, LIMIT_S * 10**9)


@pytest.mark.parametrize(
    ("dedicated", "memory", "waits"), [(False, True, True), (False, False, False), (True, True, False)]
)
async def test_an_actor_in_a_shared_loop_calls_set_waiting(
    pages: _native.Status, dedicated: bool, memory: bool, waits: bool
) -> None:
    wait, phase = waiter(pages, dedicated=dedicated)
    seen: list[bool] = []

    def attempt() -> bool | None:
        seen.append(pages.notify_all([0]) == [0])
        wait.wake()
        return True if len(seen) == 3 else None

    await wait.until(attempt, phase, memory=memory)
    assert seen[1] is waits  # the second look: it is about to wait


@pytest.mark.usefixtures("no_rescan")
async def test_a_commit_in_another_process_wakes(pages: _native.Status) -> None:
    plan = SlabPlan(2, 64)
    segment = Segment.create("slab", plan.bytes)
    plan.format(segment.memory)
    view = SlabView(segment.memory, plan)
    wait, phase = waiter(pages, dedicated=True)

    def produce() -> None:
        for _ in range(20):
            seen = pages.page(1).seen()
            while (slot := view.words.reserve(1, 0)) < 0:
                pages.page(1).wait(seen, 2 * LIMIT_S * 10**9)
                seen = pages.page(1).seen()
            view.words.commit(slot, 1, 0)
            pages.notify(0)

    def claim() -> int | None:
        slot = view.words.claim(0, 0)
        return slot if slot >= 0 else None

    pid = fork(produce)
    for sequence in range(20):
        slot = await asyncio.wait_for(wait.until(claim, phase, memory=True), LIMIT_S)
        assert view.words.state(slot)[3] == sequence
        view.words.retire(slot, 0, 0)
        pages.notify(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert view.counts() == {"produced": 20, "consumed": 20, "dropped": {}, "in_flight": 0}
    segment.close()


# One of many who wait for the same


def test_each_message_picks_one_request(pages: _native.Status) -> None:
    for number in range(2):
        pages.page(number).set_waiting()
        pages.page(number).request_wake(7)
    assert pages.notify_one((0, 1), 8, 0) == [], "nobody asks for that one"
    assert [pages.notify_one((0, 1), 7, 1) for _ in range(3)] == [[1], [0], []]
    assert [pages.page(number).withdraw_wake() for number in range(2)] == [True, True]


def test_withdrawing_returns_whether_the_actor_was_picked(pages: _native.Status) -> None:
    page = pages.page(0)
    page.request_wake(7)
    assert not page.withdraw_wake()
    page.request_wake(7)
    page.open("a-1", 7, 1)  # its successor asks for nothing
    assert pages.notify_one((0,), 7, 0) == []
    page.set_waiting()
    assert pages.notify_one((0,), 7, 0) == []


def test_a_pick_notifies_one_actor_only(pages: _native.Status) -> None:
    seen = [pages.page(number).seen() for number in range(2)]
    for number in range(2):
        pages.page(number).request_wake(1)
    assert pages.notify_one((0, 1), 1, 0) == [], "it sleeps on its notifier and needs no message"
    assert pages.page(0).wait(seen[0], LIMIT_S * 10**9)
    assert not pages.page(1).wait(seen[1], 1000)


def test_a_request_of_every_message_is_always_woken_and_never_picked(pages: _native.Status) -> None:
    pages.page(0).request_wake(7, every=True)
    pages.page(1).request_wake(7)
    for picked in ([0, 1], [0], [0]):
        pages.page(0).set_waiting()
        pages.page(1).set_waiting()
        assert pages.notify_one((0, 1), 7, 0) == picked
    assert not pages.page(0).withdraw_wake()


@pytest.mark.parametrize("channel", [0, 1 << 31])
def test_channel_numbers_start_at_one(pages: _native.Status, channel: int) -> None:
    with pytest.raises(ValueError, match="channel numbers start at 1"):
        pages.page(0).request_wake(channel)
    pages.page(0).request_wake(0, every=True)
    pages.page(0).set_waiting()
    assert pages.notify_one((0,), 5, 0) == [0], "every message of every channel"
    assert pages.notify_one((), 1, 5) == []


@pytest.mark.parametrize(("picked_at", "passed"), [(1, 0), (2, 1), (3, 0)])
async def test_who_is_picked_and_needs_it_no_more_passes_it_on(
    pages: _native.Status, picked_at: int, passed: int
) -> None:
    """Picked before it asked it is not; in the look that finds something it was not needed; later it is not there."""
    wait, phase = waiter(pages, dedicated=False)
    told: list[int] = []
    source = Source(at=2)

    def attempt() -> str | None:
        if source.attempts + 1 == picked_at:
            pages.notify_one((0,), 4, 0)
        return source()

    assert await wait.until(attempt, phase, memory=True, request=WakeRequest(3, lambda: told.append(1))) == "here"
    pages.notify_one((0,), 4, 0)
    assert len(told) == passed


@pytest.mark.usefixtures("no_rescan")
async def test_who_was_woken_by_a_pick_and_finds_something_keeps_it(pages: _native.Status) -> None:
    wait, phase = waiter(pages, dedicated=False)
    told: list[int] = []
    found: list[str] = []
    request = WakeRequest(3, lambda: told.append(1))
    task = asyncio.create_task(wait.until(lambda: found[0] if found else None, phase, memory=True, request=request))
    while not wait.asleep:
        await asyncio.sleep(0)
    found.append("here")
    assert pages.notify_one((0,), 4, 0) == [0]
    wait.wake()
    async with asyncio.timeout(LIMIT_S):
        assert await task == "here"
    assert told == []


@pytest.mark.usefixtures("no_rescan")
async def test_two_simultaneous_waits_are_both_woken(pages: _native.Status) -> None:
    """In either order, and when one of them is over."""
    wait, phase = waiter(pages, dedicated=False)
    found: set[int] = set()
    told: list[int] = []

    def begin(channel: int) -> asyncio.Task[bool]:
        request = WakeRequest(channel, lambda: told.append(channel))
        return asyncio.create_task(wait.until(lambda: channel in found or None, phase, memory=True, request=request))

    async def notify(channel: int) -> list[int]:
        found.add(channel)
        waiting = pages.notify_one((0,), channel + 1, 0)
        if waiting:
            wait.wake()
        return waiting

    async def asleep(count: int) -> None:
        while len(wait._sleepers) < count:
            await asyncio.sleep(0)

    for first, second in ((3, 4), (4, 3)):
        found.clear()
        tasks = {channel: begin(channel) for channel in (3, 4)}
        await asleep(2)
        assert await notify(first) == [0]
        async with asyncio.timeout(LIMIT_S):
            assert await tasks[first]
        await asleep(1)
        assert await notify(second) == [0]
        async with asyncio.timeout(LIMIT_S):
            assert await tasks[second]
    assert told == []
    assert pages.notify_one((0,), 4, 0) == [], "it asks for nothing any more"


@pytest.mark.usefixtures("no_rescan")
async def test_who_is_cancelled_after_a_pick_passes_it_on(pages: _native.Status) -> None:
    wait, phase = waiter(pages, dedicated=False)
    told: list[int] = []
    request = WakeRequest(3, lambda: told.append(1))
    for picked in (False, True):
        task = asyncio.create_task(wait.until(lambda: None, phase, memory=True, request=request))
        while not wait.asleep:
            await asyncio.sleep(0)
        if picked:
            pages.notify_one((0,), 4, 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bool(told) is picked


# --- messages for one that sleeps on its notifier


def test_its_loop_runs_often_while_a_message_is_on_its_way(
    pages: _native.Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notifier wakes it before ZeroMQ has the message: it must not sleep through the 50 ms in which it arrives."""
    now_ns = 10**9
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    rescan_ns = int(waiting.RESCAN_S * 1e9)
    pages.mailed(0)  # to an incarnation that is gone
    waiter = Waiter(Status(pages.page(0), "one-0", 1, 1), dedicated=True)
    seen = pages.page(0).seen()
    assert waiter._slice_ns() == rescan_ns
    pages.mailed(0)
    assert pages.page(0).seen() == seen + 1  # it has notified, too
    assert waiter._slice_ns() == MAIL_SLICE_NS
    waiter.received += 1
    assert waiter._slice_ns() == rescan_ns
    pages.mailed(0)  # a message that is lost
    assert waiter._slice_ns() == MAIL_SLICE_NS
    now_ns += rescan_ns + 1
    assert waiter._slice_ns() == rescan_ns
    pages.mailed(0)
    assert waiter._slice_ns() == MAIL_SLICE_NS  # one that was lost costs the next ones nothing
    waiter.received += 1
    waiter.calls = ["one that is being answered"]
    assert waiter._slice_ns() == CALLS_SLICE_NS
