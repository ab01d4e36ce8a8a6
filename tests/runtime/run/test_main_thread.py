"""Ctrl-C that is ending the main thread is noticed in other threads, once, and not before it lasts."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from hive.runtime.run.main_thread import MainThread, in_notebook, refuse_at_the_end


def looks(thread: ThreadPoolExecutor, main: MainThread, times: int = 3) -> list[bool]:
    return [thread.submit(main.interrupted).result() for _ in range(times)]


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="tests run in another thread")
@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_an_exception_that_ends_the_main_thread_is_noticed_once(raised: type[BaseException]) -> None:
    with ThreadPoolExecutor(1) as thread:
        main = thread.submit(MainThread).result()
        assert looks(thread, main) == [False] * 3
        try:
            raise raised
        except raised:
            assert looks(thread, main) == [False, True, False]
            with pytest.raises(KeyboardInterrupt):
                thread.submit(refuse_at_the_end).result()
        assert looks(thread, main) == [False] * 3
        thread.submit(refuse_at_the_end).result()


def test_another_exception_is_none_of_it() -> None:
    with ThreadPoolExecutor(1) as thread:
        main = thread.submit(MainThread).result()
        try:
            raise ValueError
        except ValueError:
            assert looks(thread, main) == [False] * 3


def test_the_main_thread_itself_is_told_by_the_exception() -> None:
    main = MainThread()
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert not main.interrupted()
        assert not main.interrupted()


def test_a_script_is_no_notebook() -> None:
    assert not in_notebook()
