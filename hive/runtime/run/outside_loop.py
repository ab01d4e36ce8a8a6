"""Makes a call that runs an event loop, also where the caller's thread runs a loop already.

A thread runs one event loop at a time. Every cell of a notebook and every coroutine of a web server finds a running
loop in its thread, so the call is made in another thread, and this one waits for its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")

LOOK_S = 0.5  # a Ctrl-C just before Python begins to wait does not end the wait, and is noticed only after it


def outside_any_loop(call: Callable[[], T], interrupt: Callable[[BaseException], None]) -> T:
    """Make `call` in a thread without a running event loop: in this one if possible, else in a new one.

    interrupt: called in this thread with every exception of a handler of signals, such as KeyboardInterrupt, while it
        waits for the other one; it makes `call` return.
    Raises what `call` raises, and KeyboardInterrupt if the interrupt cancelled it.
    """
    if not _runs_a_loop():
        return call()
    interrupted = False
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(call)
        while True:
            try:
                while not result.done():
                    wait([result], LOOK_S)
                return result.result()
            except BaseException as error:
                if result.done():
                    if interrupted and isinstance(error, asyncio.CancelledError):
                        raise KeyboardInterrupt from None
                    raise
                interrupted = True
                interrupt(error)


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
