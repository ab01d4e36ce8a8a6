from __future__ import annotations

import asyncio
import time

import pytest

from hive.clock import Clock, RealClock, VirtualClock, VirtualLoop


def test_the_real_clock_reads_the_machines_clocks() -> None:
    clock: Clock = RealClock()
    before_ns, before = time.monotonic_ns(), time.time()
    now_ns, wall = clock.now_ns(), clock.wall()
    assert before_ns <= now_ns <= time.monotonic_ns()
    assert before - 1 <= wall <= time.time() + 1


def test_a_virtual_hour_passes_at_once() -> None:
    async def main() -> tuple[int, float]:
        clock: Clock = VirtualClock(asyncio.get_running_loop())
        assert clock.now_ns() == 0
        await asyncio.sleep(3600)
        return clock.now_ns(), clock.wall()

    begun = time.monotonic()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        now_ns, wall = runner.run(main())
    assert time.monotonic() - begun < 60
    assert now_ns == pytest.approx(3600e9)
    assert wall == pytest.approx(3600)


def test_virtual_time_stands_still_while_anything_is_ready() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        fired: list[float] = []
        loop.call_later(0.001, lambda: fired.append(loop.time()))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert (loop.time(), fired) == (0.0, [])
        await asyncio.sleep(0.01)
        assert fired == [pytest.approx(0.001)]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def test_timers_fire_in_the_order_of_their_times() -> None:
    async def main() -> list[tuple[float, str]]:
        loop = asyncio.get_running_loop()
        fired: list[tuple[float, str]] = []

        async def after(delay_s: float, name: str) -> None:
            await asyncio.sleep(delay_s)
            fired.append((round(loop.time(), 6), name))

        await asyncio.gather(after(5, "last"), after(0.1, "first"), after(2, "second"), after(2, "third"))
        return fired

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == [(0.1, "first"), (2.0, "second"), (2.0, "third"), (5.0, "last")]


def test_a_timeout_of_a_day_is_not_waited_for() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(86_400 * 3):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == pytest.approx(86_400 * 3)


def test_the_same_program_gives_the_same_schedule() -> None:
    async def main() -> list[tuple[float, int]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[float, int]] = []

        async def worker(number: int) -> None:
            for turn in range(20):
                await asyncio.sleep((number * 7 + turn * 3) % 5 / 10)
                seen.append((loop.time(), number))

        await asyncio.gather(*(worker(number) for number in range(10)))
        return seen

    runs = []
    for _ in range(2):
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runs.append(runner.run(main()))
    assert runs[0] == runs[1]


def test_a_deadlock_is_an_error_and_not_a_hang() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    loop = VirtualLoop()
    try:
        waiting = loop.create_task(main())
        with pytest.raises(RuntimeError, match="deadlock in a virtual loop: no callback is ready and no timer is set"):
            loop.run_until_complete(waiting)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(waiting)
    finally:
        loop.close()


def test_ready_callbacks_are_no_deadlock() -> None:
    """A readable descriptor is served even if no timer is set."""
    loop = VirtualLoop()
    try:
        loop.call_soon_threadsafe(loop.stop)
        loop.run_forever()
        assert loop.time() == 0.0
    finally:
        loop.close()
