"""A call that runs an event loop is made in another thread if this one runs a loop already."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hive.runtime.run.outside_loop import outside_any_loop


@contextmanager
def ctrl_c() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, as in a notebook; the loop of a test only cancels the test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def calls_of(thread: int) -> str:
    """The names of the functions that a thread is in, the outermost first."""
    names, frame = [], sys._current_frames().get(thread)
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return " ".join(reversed(names))


def send_ctrl_c() -> None:
    """Send Ctrl-C once the main thread waits for the result of this one."""
    main = threading.main_thread().ident
    assert main is not None
    while "outside_any_loop wait" not in calls_of(main):
        pass
    signal.pthread_kill(main, signal.SIGINT)


def never(error: BaseException) -> None:
    raise AssertionError("no Ctrl-C was sent")


def test_without_a_running_loop_the_call_is_made_in_this_thread() -> None:
    assert outside_any_loop(threading.current_thread, never) is threading.current_thread()


async def test_in_a_running_loop_it_is_made_in_another_thread_which_may_run_one() -> None:
    assert outside_any_loop(threading.current_thread, never) is not threading.current_thread()
    assert outside_any_loop(lambda: asyncio.run(asyncio.sleep(0, 3)), never) == 3
    with pytest.raises(ZeroDivisionError):
        outside_any_loop(lambda: 1 // 0, never)


async def test_ctrl_c_reaches_the_other_thread() -> None:
    received, calls = threading.Semaphore(0), []

    def call() -> str:
        send_ctrl_c()
        received.acquire()
        return "drained"

    def interrupt(error: BaseException) -> None:
        calls.append(threading.current_thread())
        received.release()

    with ctrl_c():
        assert outside_any_loop(call, interrupt) == "drained"
    assert calls == [threading.main_thread()]


async def test_a_call_that_ctrl_c_cancels_raises_keyboard_interrupt() -> None:
    loop = asyncio.new_event_loop()
    sleeping = loop.create_future()

    def call() -> None:
        loop.call_soon(send_ctrl_c)
        loop.run_until_complete(sleeping)

    with ctrl_c(), pytest.raises(KeyboardInterrupt):
        outside_any_loop(call, lambda error: loop.call_soon_threadsafe(sleeping.cancel))
    loop.close()
