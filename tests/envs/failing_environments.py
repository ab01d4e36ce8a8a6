"""An environment that fails on request, in each way in which simulators do."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from hive.envs.context import EnvContext

FOREVER_S = 1000.0
GROWTH = 400 << 20
ORPHAN = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(1000)
"""


def wait(seconds: float) -> None:
    """Do nothing for some time."""
    threading.Event().wait(seconds)


class Failing(gymnasium.Env[Any, Any]):
    """Observes (index, incarnation, steps of all episodes), so that a row tells what made it.

    how: what the environment `index` does in step `at` of its first incarnation, or for `at` 0 in its first reset;
    "always raise": in every incarnation. length: of an episode. path: a file for the pid of a process that it leaves.
    slow_s: how long its first reset takes. closed: a folder where `close` leaves a file with its group and its folder.
    """

    observation_space = gymnasium.spaces.Box(0.0, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(
        self,
        env_context: EnvContext,
        how: str = "",
        index: int = 1,
        at: int = 3,
        length: int = 5,
        path: str = "",
        slow_s: float = 0.0,
        closed: str = "",
    ) -> None:
        self.context = env_context
        self.closed = closed
        self.steps = 0
        self.length, self.at, self.path, self.slow_s = length, at, path, slow_s
        fails = env_context.index == index and (env_context.incarnation == 0 or how.startswith("always"))
        self.how = how.removeprefix("always ") if fails else ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = self.length
        if self.how and self.at == 0:
            self.fail()
        wait(self.slow_s)
        self.slow_s = 0.0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.left -= 1
        if self.how and self.steps == self.at:
            self.fail()
        return self._seen(), float(self.steps), False, self.left == 0, {}

    def close(self) -> None:
        if self.closed:
            path = Path(self.closed) / f"{self.context.index}-{self.context.incarnation}"
            path.write_text(f"{os.getpid() - os.getpgrp()} {tempfile.gettempdir()}")

    def _seen(self) -> Any:
        return np.array([self.context.index, self.context.incarnation, self.steps], np.float32)

    def fail(self) -> None:
        """Fail as asked."""
        print(f"about to {self.how}", flush=True)
        getattr(self, self.how.replace(" ", "_"))()

    def raise_an_error(self) -> None:
        raise RuntimeError("the wheel came off")

    def segfault(self) -> None:
        ctypes.string_at(0)

    def exit(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)  # has no effect, as in a collector
        ctypes.CDLL(None)._exit(7)

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def wait_for_a_word(self) -> None:
        while not Path(self.path).exists():
            wait(0.01)

    def hang(self) -> None:
        wait(FOREVER_S)

    def grow(self) -> None:
        self.held = np.ones(GROWTH, np.uint8)
        wait(FOREVER_S)

    def flood(self) -> None:
        for _ in range(600):
            sys.stdout.write("flood " * 10_000 + "\n")

    def return_nan(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, np.inf, (3,), np.float32)
        self.context = EnvContext(np.nan)  # type: ignore[arg-type]

    def leave_a_process(self) -> None:
        """Leave a process in a session of its own, whose parent has exited, then crash."""
        subprocess.run([sys.executable, "-P", "-S", "-c", ORPHAN, self.path], check=True)
        while not Path(self.path).exists() or not Path(self.path).read_text():
            wait(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
