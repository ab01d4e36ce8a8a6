"""Environments that count what happens to them in files, of which one fails in each way in which simulators do.

A file holds int64 [constructions, episodes, steps, nanoseconds of CLOCK_MONOTONIC at the end of the first reset of the
last construction, the same when it was about to fail]. The counts of an environment go on after a restart, and after a
failure of its collector.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from hive.envs.context import EnvContext

FOREVER_S = 1000.0
FIELDS = 5
GROWTH = 1 << 30
FLOOD = 40 << 20
LENGTH = 20  # steps of an episode
LINE = "the pump is running dry " * 40
CHILD = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
os.close(1)
time.sleep(1000)
"""


def opened(folder: Path, index: int) -> Any:
    """Return the file of environment `index`, mapped: a process that is killed loses nothing of it."""
    with os.fdopen(os.open(folder / str(index), os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        if os.fstat(file.fileno()).st_size == 0:
            os.ftruncate(file.fileno(), 8 * FIELDS)
        return np.frombuffer(mmap.mmap(file.fileno(), 8 * FIELDS), np.int64)


def wait(seconds: float) -> None:
    """Do nothing for some time."""
    threading.Event().wait(seconds)


class Counted(gymnasium.Env[Any, Any]):
    """Observes numbers that its seed gives, and its actions.

    folder: of the files. step_s: time of a step, unless the folder has a file `fast` when it is constructed. index,
    how, at: environment `index` fails so in step `at` of its first construction. slow_s: time of the first reset of
    `index`, in every construction. leaves: every environment starts a process in a session of its own.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(
        self,
        env_context: EnvContext,
        folder: str,
        step_s: float = 0.001,
        how: str = "",
        index: int = 5,
        at: int = 200,
        slow_s: float = 0.0,
        leaves: bool = False,
    ) -> None:
        self.counts = opened(Path(folder), env_context.index)
        self.counts[0] += 1
        self.counts[3] = 0
        self.step_s, self.at = 0.0 if Path(folder, "fast").exists() else step_s, at
        is_it = env_context.index == index
        self.how = how if is_it and env_context.incarnation == 0 else ""
        self.slow_s = slow_s if is_it else 0.0
        self.steps = 0
        if leaves:
            self.leave()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        wait(self.slow_s)
        self.slow_s = 0.0
        self.left = LENGTH
        self.counts[1] += 1
        if self.counts[3] == 0:
            self.counts[3] = time.monotonic_ns()
        return self._seen(0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.how and self.steps == self.at:
            print("about to fail")
            self.counts[4] = time.monotonic_ns()
            getattr(self, self.how)()
        if self.step_s:
            time.sleep(self.step_s)
        self.left -= 1
        self.counts[2] += 1
        return self._seen(action), float(action), False, self.left == 0, {}

    def _seen(self, action: Any) -> Any:
        seen = self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)
        seen[0] = action
        return seen

    def raises(self) -> None:
        raise RuntimeError("the wheel came off")

    def segfaults(self) -> None:
        ctypes.string_at(0)

    def exits(self) -> None:
        os._exit(7)

    def hangs(self) -> None:
        wait(FOREVER_S)

    def grows(self) -> None:
        self.held = np.ones(GROWTH, np.uint8)
        wait(FOREVER_S)

    def floods(self) -> None:
        for _ in range(FLOOD // len(LINE)):
            print(LINE)

    def leave(self) -> None:
        """Start a process in a session of its own, whose parent exits."""
        command = [sys.executable, "-P", "-S", "-c", CHILD]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        process.wait()

    def leaves(self) -> None:
        self.leave()
        os.kill(os.getpid(), signal.SIGKILL)
