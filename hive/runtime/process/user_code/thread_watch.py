"""Name the module that leaves a thread in the fork server.

A fork copies only one thread, so a process that is forked while others run may wait for them forever. The fork server
imports modules of users (topologies, schemes, networks), calls their functions, and then forks. `ThreadWatch` compares
the number of threads before and after each import, and notes which line starts a thread of Python.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from types import ModuleType
from typing import Any

from hive.errors import TopologyError
from hive.runtime.actor.error_location import place_in
from hive.runtime.process.user_code.throwaway import thread_count, thread_names

ENDING_S = 0.5  # time for threads that have been told to end: a pool that was shut down leaves some for milliseconds
POLL_S = 0.005
LOADERS = (SourceFileLoader, ExtensionFileLoader)  # they execute modules of files, however these are imported
Execute = Callable[[Any, ModuleType], None]


class ThreadWatch:
    """Watches this process from `begin` to `end`; threads that run before are not reported."""

    def __init__(self) -> None:
        self._least = thread_count()
        self._modules: list[tuple[str, int]] = []  # modules whose import left threads, and how many ran then
        self._lines: weakref.WeakKeyDictionary[threading.Thread, str] = weakref.WeakKeyDictionary()
        self._start = threading.Thread.start
        self._originals: dict[Any, Execute] = {}

    def begin(self) -> None:
        """Begin to watch imports and threads of Python."""
        watch, start = self, self._start

        def starting(thread: threading.Thread) -> None:
            watch._lines[thread] = place_in(sys._getframe(1))
            start(thread)

        setattr(threading.Thread, "start", starting)  # noqa: B010  # mypy forbids the assignment
        for loader in LOADERS:
            self._originals[loader] = loader.exec_module
            setattr(loader, "exec_module", self._watched(loader.exec_module))  # noqa: B010

    def end(self) -> None:
        """Stop watching, in a process that was forked."""
        setattr(threading.Thread, "start", self._start)  # noqa: B010
        for loader, original in self._originals.items():
            loader.exec_module = original

    def check(self) -> None:
        """Raise TopologyError, which names a module or a line, if a thread has been left in this process."""
        deadline = time.monotonic() + ENDING_S
        while thread_count() > self._least and time.monotonic() < deadline:
            time.sleep(POLL_S)
        running = thread_count() - self._least
        if running <= 0:
            return
        lines = [line for thread, line in self._lines.items() if thread.is_alive() and line]
        module = next((f"importing `{name}`" for name, _ in self._modules), "building the topology")
        at = f" ({lines[0]})" if lines else f" ({', '.join(sorted({*thread_names()}))})"
        kind = f"thread{'s' * (running > 1)}" + ("" if lines else " of native code, such as torch's,")
        raise TopologyError(
            f"{module} left {running} {kind} in the fork server{at}; "
            "the processes of a run are forked from it, and a fork copies no threads",
            hint="start threads where they are used: in an actor's `run`, or at the first call of a network or a hook, "
            "not while a module is imported or the topology is built",
        )

    def _watched(self, execute: Execute) -> Execute:
        def exec_module(loader: Any, module: ModuleType) -> None:
            before = thread_count()
            try:
                execute(loader, module)
            finally:
                # A module imports others: the innermost one is noted first, and the outer ones add nothing to it.
                noted = max((count for _, count in self._modules), default=self._least)
                if (now := thread_count()) > max(before, noted):
                    self._modules.append((module.__name__, now))

        return exec_module
