"""The loop of a simulation: order, virtual time, and processes that are preempted, stopped, dead or unwinding."""

from __future__ import annotations

import asyncio
import contextvars
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from simulation import simulated_process
from simulation.simulated_process import NEVER, Killed, SimulatedLoop, SimulatedProcess, current_process


def make_loop(seed: int = 0, away: float = 0.0, away_s: float = 0.0) -> SimulatedLoop:
    return SimulatedLoop(random.Random(seed), away, away_s)  # type: ignore[abstract]  # it has what asyncio asks for


def run(main: Coroutine[Any, Any, Any], loop: SimulatedLoop | None = None) -> Any:
    return (loop or make_loop()).run_until_complete(main)


def here() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


def at(place: SimulatedProcess, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start `work` in a simulated process."""
    task: asyncio.Task[Any] = here().create_task(work, context=place.context)
    return task


def soon(place: SimulatedProcess, function: Callable[..., Any], *arguments: Any) -> Any:
    """Schedule a callback of a simulated process."""
    return here().call_soon(function, *arguments, context=place.context)


# --- order and time


def test_callbacks_of_one_moment_run_in_the_order_of_scheduling() -> None:
    seen: list[str] = []

    async def main() -> None:
        def first() -> None:
            seen.append("first")
            here().call_soon(seen.append, "asked by first")

        here().call_later(0, seen.append, "timer of this moment")
        here().call_soon(first)
        here().call_soon(seen.append, "second")
        await asyncio.sleep(1)

    run(main())
    assert seen == ["first", "second", "asked by first", "timer of this moment"]


def test_time_jumps_to_the_next_timer_and_stands_still_in_between() -> None:
    async def main() -> None:
        fired: list[float] = []
        here().call_later(0.001, lambda: fired.append(here().time()))
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert (here().time(), fired) == (0.0, [])
        await asyncio.sleep(86_400)
        assert (here().time(), fired) == (86_400, [0.001])

    begun = time.monotonic()
    run(main())
    assert time.monotonic() - begun < 30, "a day"


def test_what_asyncio_offers_works() -> None:
    async def main() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)

        async def produce() -> None:
            for number in range(5):
                await queue.put(number)

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            got = [await queue.get() for _ in range(5)]
        event = asyncio.Event()
        here().call_later(3, event.set)
        await asyncio.wait_for(event.wait(), 4)
        return [*got, *await asyncio.gather(*(asyncio.sleep(1 / n, n) for n in (1, 2, 3)))]

    loop = make_loop()
    assert run(main(), loop) == [0, 1, 2, 3, 4, 1, 2, 3]
    assert loop.time() == 4
    assert asyncio._get_running_loop() is None


def test_what_a_callback_raises_is_kept_and_the_others_go_on() -> None:
    seen: list[str] = []

    def broken() -> None:
        raise ValueError("a broken callback")

    async def main() -> None:
        here().call_soon(broken)
        here().call_soon(seen.append, "next")
        await asyncio.sleep(1)

    loop = make_loop()
    run(main(), loop)
    assert seen == ["next"]
    assert len(loop.problems) == 1
    assert "a broken callback" in loop.problems[0]


def test_a_wait_for_ever_is_an_error_and_not_a_hang() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="deadlock in a simulation: no callback is ready and no timer is set"):
        run(main())
    assert asyncio._get_running_loop() is None


async def spin(callbacks: int = NEVER) -> None:
    for _ in range(callbacks):
        await asyncio.sleep(0)


def test_a_spin_at_one_moment_is_an_error_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_process, "MOST_AT_ONCE", 1_000)

    async def main() -> None:
        await asyncio.sleep(2.5)
        await at(SimulatedProcess("spinner", 0), spin())

    with pytest.raises(RuntimeError, match=r"after 1,000 callbacks at 2\.5000 s something still spins"):
        run(main())


# --- processes


def test_a_callback_knows_whose_it_is() -> None:
    seen: list[str] = []

    def note() -> None:
        seen.append(str(current_process()))

    async def child() -> None:
        await asyncio.sleep(1)
        note()

    async def parent() -> None:
        note()
        here().call_soon(note)
        here().call_later(0.5, note)
        await asyncio.create_task(child())

    async def main() -> None:
        note()
        one, two = SimulatedProcess("one", 0), SimulatedProcess("two", 3)
        await asyncio.gather(at(one, parent()), at(two, parent()))
        note()
        here().call_soon(note, context=contextvars.Context())
        await asyncio.sleep(0)

    run(main())
    assert seen == ["None", *["one-0", "two-3"] * 4, "None", "None"]


def test_only_callbacks_of_places_are_turns() -> None:
    asked: list[tuple[int, str]] = []

    async def main() -> None:
        loop = here()

        def on_callback(place: SimulatedProcess) -> int:
            asked.append((loop.ran, str(place)))
            return loop.ran + 5

        loop.on_callback, loop.next_on_callback = on_callback, 3
        await spin(50)
        assert loop.ran == 0
        one, two = SimulatedProcess("one", 0), SimulatedProcess("two", 0)
        for turn in range(12):
            soon((one, two)[turn % 2], lambda: None)
        await asyncio.sleep(1)
        assert loop.ran == 12

    run(main())
    assert asked == [(3, "one-0"), (8, "two-0")]


# --- preempted


def test_an_away_place_waits_while_the_others_go_on() -> None:
    seen: list[tuple[float, str]] = []

    def note(text: str) -> None:
        seen.append((here().time(), text))

    async def main() -> None:
        loop, away, other = here(), SimulatedProcess("away", 0), SimulatedProcess("other", 0)
        away.preempted = True
        soon(away, note, "away 1")
        soon(other, note, "other 1")
        loop.call_at(1, note, "away 2", context=away.context)
        loop.call_at(1, note, "other 2", context=other.context)
        loop.call_at(2, note, "away 3", context=away.context)
        loop.call_at(3, loop.end_preemption, away)
        loop.call_at(3, note, "away 4", context=away.context)
        loop.call_at(4, note, "away 5", context=away.context)
        await asyncio.sleep(5)

    run(main())
    assert seen == [
        *((0, "other 1"), (1, "other 2")),
        *((3, "away 1"), (3, "away 2"), (3, "away 3"), (3, "away 4"), (4, "away 5")),
    ]


def test_a_preemption_does_not_make_a_timeout_fire() -> None:
    """The event came in time, during the preemption, so its callback runs before that of the timeout."""
    seen: list[str] = []

    async def wait(event: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(0.01):
                await event.wait()
            seen.append(f"{here().time():g} in time")
        except TimeoutError:
            seen.append(f"{here().time():g} too late")

    async def main() -> None:
        loop = here()
        for number, comes_at in enumerate((0.005, 0.02)):
            place, event = SimulatedProcess("place", number), asyncio.Event()
            at(place, wait(event))
            loop.call_at(0.001, setattr, place, "preempted", True)
            loop.call_at(comes_at, event.set)
            loop.call_at(0.1, loop.end_preemption, place)
        await asyncio.sleep(1)

    loop = make_loop()
    run(main(), loop)
    assert seen == ["0.1 in time", "0.1 too late"]
    assert loop.problems == []


def journey(seed: int, away: float) -> tuple[list[tuple[float, str]], float]:
    """Let three processes count to 100; return their lines with times, and the time it took."""
    seen: list[tuple[float, str]] = []

    async def count(place: SimulatedProcess) -> None:
        for number in range(100):
            seen.append((here().time(), f"{place} {number}"))
            await asyncio.sleep(0)

    async def main() -> None:
        some = [SimulatedProcess("place", number) for number in range(3)]
        await asyncio.gather(*(at(place, count(place)) for place in some))

    loop = make_loop(seed, away, away_s=0.005)
    run(main(), loop)
    return seen, loop.time()


def test_places_are_taken_away_by_chance_and_keep_their_own_order() -> None:
    seen, took = journey(seed=3, away=0.2)
    for number in range(3):
        own = [text for _, text in seen if text.startswith(f"place-{number} ")]
        assert own == [f"place-{number} {n}" for n in range(100)]
    assert 0.02 < took < 100 * 0.005, "some 60 preemptions of 2.5 ms, of three processes side by side"
    assert journey(seed=3, away=0.2) == (seen, took), "the seed is the schedule"
    assert journey(seed=4, away=0.2) != (seen, took)


# --- stopped, dead, unwinding


class Talker:
    """Work that says everything it does."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def child(self) -> None:
        try:
            await asyncio.sleep(2)
            self.said.append("child done")
        finally:
            self.said.append("child finally")

    async def work(self) -> None:
        try:
            here().call_later(1.5, self.said.append, "timer")
            self.said.append("begun")
            await asyncio.create_task(self.child())
            self.said.append("done")
        except asyncio.CancelledError:
            self.said.append("cancelled")
            raise
        finally:
            self.said.append("finally")

    def whole(self) -> list[str]:
        return ["begun", "timer", "child done", "child finally", "done", "finally"]


@pytest.mark.parametrize("end", ["dead", "stopped"])
def test_a_dead_or_stopped_place_runs_nothing_more(end: str) -> None:
    victim, bystander = Talker(), Talker()

    async def main() -> None:
        loop, place = here(), SimulatedProcess("victim", 0)
        before = place.inactive
        tasks = [at(place, victim.work()), at(SimulatedProcess("bystander", 0), bystander.work())]
        loop.call_at(1, setattr, place, end, True)
        await asyncio.sleep(10)
        assert (before, place.inactive) == (False, True)
        assert [task.done() for task in tasks] == [False, True]
        tasks[0].cancel()  # nothing reaches it any more
        await asyncio.sleep(10)
        assert not tasks[0].done()

    run(main())
    assert victim.said == ["begun"]
    assert bystander.said == bystander.whole()


def test_a_place_that_died_while_it_was_away_never_comes_back() -> None:
    victim = Talker()

    async def main() -> None:
        loop, place = here(), SimulatedProcess("victim", 0)
        at(place, victim.work())
        loop.call_at(1, setattr, place, "preempted", True)
        loop.call_at(3, setattr, place, "dead", True)
        loop.call_at(4, loop.end_preemption, place)
        await asyncio.sleep(10)

    run(main())
    assert victim.said == ["begun"]


def test_being_killed_ends_the_task_and_passes_except_exception() -> None:
    caught: list[str] = []

    async def work() -> None:
        try:
            raise Killed
        except Exception:
            caught.append("caught")

    async def main() -> None:
        task = at(SimulatedProcess("victim", 0), work())
        await asyncio.sleep(1)
        assert isinstance(task.exception(), Killed)

    loop = make_loop()
    run(main(), loop)
    assert (caught, loop.problems) == ([], [])


class Leaver:
    """Leaves in the middle of something; says what of it runs all the same."""

    def __init__(self) -> None:
        self.place = SimulatedProcess("victim", 0)
        self.said: list[str] = []

    async def work(self) -> None:
        try:
            self.said.append("begun")
            await asyncio.sleep(0.5)
            self.die()
            self.said.append("went on")
        except Exception:
            self.said.append("caught")
        finally:
            self.said.append("finally")

    def die(self) -> None:
        self.place.dead = True
        here().abandon_callback()


def test_who_leaves_in_the_middle_runs_nothing_more_until_all_is_over() -> None:
    one, other = Leaver(), Leaver()
    seen: list[tuple[float, list[str]]] = []

    async def main() -> str:
        for leaver in (one, other):
            at(leaver.place, leaver.work())
        soon(one.place, here().call_later, 0.7, one.said.append, "timer")
        for _ in range(4):
            await asyncio.sleep(0.3)
            seen.append((here().time(), [*one.said, *other.said]))
        assert asyncio.current_task() is not None
        return "over"

    assert run(main()) == "over"
    assert [said for _, said in seen] == [["begun"] * 2] * 4
    assert [time for time, _ in seen] == pytest.approx([0.3, 0.6, 0.9, 1.2])
    assert one.said == other.said == ["begun", "finally"], "taken apart when it was over"
