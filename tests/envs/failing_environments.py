"""An environment that fails on request, in each way in which simulators do. Steps count upwards, so rows tell them apart."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import Any

import gymnasium
import numpy as np

FOREVER_S = 1000.0


class Failing(gymnasium.Env[Any, Any]):
    """Observes (index, incarnation, steps of all episodes). An episode has `length` steps.

    Environment `index` of incarnation 0 does `how` in step `at`, or with `at` 0 in its first reset.
    """

    observation_space = gymnasium.spaces.Box(0.0, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, env_context: Any, how: str = "", index: int = 1, at: int = 3, length: int = 5, log: str = ""):
        self.context = env_context
        self.steps = 0
        self.length = length
        self.log = log
        self.how = how if (env_context.index, env_context.incarnation) == (index, 0) else ""
        if how == "always" and env_context.index == index:
            self.how = how
        self.at = at

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = self.length
        if self.at == 0 and self.how:
            self.fail()
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.left -= 1
        if self.how == "always" or (self.how and self.steps == self.at):
            self.fail()
        return self._seen(), float(self.steps), False, self.left == 0, {}

    def _seen(self) -> Any:
        return np.array([self.context.index, self.context.incarnation, self.steps], np.float32)

    def fail(self) -> None:
        how = self.how
        print(f"about to {how}", flush=True)
        if how in ("raise", "always"):
            raise RuntimeError("the wheel came off")
        if how == "segfault":
            ctypes.string_at(0)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if how == "exit":
            os._exit(7)
        if how == "native exit":
            ctypes.CDLL(None).exit(3)
        if how == "hang":
            time.sleep(FOREVER_S)
        if how == "grow":
            self.held = b"x" * (400 << 20)
            time.sleep(FOREVER_S)
        if how == "flood":
            for _ in range(300):
                sys.stdout.write("flood " * 20_000 + "\n")
        if how == "child":  # whose parent exits: it is in a session of its own, and nobody's child
            script = "import os, time; os.fork() and os._exit(0); os.setsid(); open(PATH, 'w').write(str(os.getpid())); time.sleep(1000)"
            subprocess.run([sys.executable, "-c", f"PATH = {self.log!r}\n{script}"], check=True)
            while not os.path.exists(self.log) or not open(self.log).read():
                time.sleep(0.01)
            raise RuntimeError("left a child")
        if how == "nan":
            self.context = type(self.context)(index=np.nan)
