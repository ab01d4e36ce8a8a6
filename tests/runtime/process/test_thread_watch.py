"""The module that leaves a thread in the fork server is named."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from hive.errors import TopologyError
from hive.runtime.process.user_code import thread_watch
from hive.runtime.process.user_code.thread_watch import ThreadWatch

THREAD = """
import threading
STOP = threading.Event()
STARTED = threading.Thread(target=STOP.wait, daemon=True)
STARTED.start()
"""


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ThreadWatch]:
    earlier = {*threading.enumerate()}  # of other tests: one that ends meanwhile would hide one that is left
    monkeypatch.setattr(thread_watch, "thread_count", lambda: len({*threading.enumerate()} - earlier))
    monkeypatch.setattr(thread_watch, "ENDING_S", 0.0)
    monkeypatch.syspath_prepend(tmp_path)
    before = threading.Thread.start, SourceFileLoader.exec_module
    watch = ThreadWatch()
    watch.begin()
    yield watch
    watch.end()
    assert before == (threading.Thread.start, SourceFileLoader.exec_module)


def test_the_innermost_module_is_named_with_its_line(watch: ThreadWatch, tmp_path: Path) -> None:
    (tmp_path / "inner_of_watch.py").write_text(THREAD)
    (tmp_path / "outer_of_watch.py").write_text("import inner_of_watch\n")
    module = importlib.import_module("outer_of_watch").inner_of_watch
    try:
        with pytest.raises(
            TopologyError, match=r"^importing `inner_of_watch` left 1 thread in .*watch.py:5\);"
        ) as error:
            watch.check()
    finally:
        module.STOP.set()
        module.STARTED.join()  # the next test counts threads
    assert "at the first call of a network" in error.value.hint
    del sys.modules["inner_of_watch"], sys.modules["outer_of_watch"]


def test_a_function_that_leaves_a_thread_is_named_by_its_line(watch: ThreadWatch) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    with pytest.raises(TopologyError, match=r"^building the topology left 1 thread .*test_thread_watch.py:\d+\);"):
        watch.check()
    stop.set()
    thread.join()  # the next test counts threads


def test_threads_that_end_and_earlier_ones_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_watch, "ENDING_S", 5.0)
    stop = threading.Event()
    threading.Thread(target=stop.wait).start()
    watch = ThreadWatch()
    watch.check()
    timer = threading.Timer(0.01, int)
    timer.start()
    watch.check()  # waits until its thread has ended
    stop.set()
