"""CartPole that kills other processes of its run after certain numbers of steps, so that every kill happens.

The folder HIVE_HOME may hold a file `kills`, whose line n is `STEP NAME`: after STEP steps of all environments of one
process, the first process to reach it kills one whose name begins with NAME, and makes a file `killed-n`.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit

MAX_STEPS = 500  # as in CartPole-v1
POLL_S = 0.002
NAME_BYTES = 15  # maximum size of a process's name in /proc

steps = 0  # of all environments of this process


class KillsOthers(CartPoleEnv):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        home = Path(os.environ.get("HIVE_HOME", ""))
        lines = (home / "kills").read_text().splitlines() if (home / "kills").is_file() else []
        self.home = home
        self.kills = [(int(step), name) for step, name in (line.split() for line in lines)]

    def step(self, action: Any) -> Any:
        global steps
        steps += 1
        for number, (step, name) in enumerate(self.kills):
            if steps == step and self.is_first(number):
                os.kill(self.victim(name, number), signal.SIGKILL)
        return super().step(action)

    def is_first(self, number: int) -> bool:
        try:
            (self.home / f"killed-{number}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def victim(self, name: str, number: int) -> int:
        """A process of this run; it waits for one that is being restarted."""
        while True:
            pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
            if found := [pid for pid in pids if self.is_of(pid, name)]:
                return found[number % len(found)]
            time.sleep(POLL_S)

    def is_of(self, pid: int, name: str) -> bool:
        place = Path("/proc", str(pid))
        try:
            named = (place / "comm").read_bytes().startswith(f"hive:{name}".encode()[:NAME_BYTES])
            return named and f"HIVE_HOME={self.home}".encode() in (place / "environ").read_bytes().split(b"\0")
        except OSError:
            return False


def environment(render_mode: str | None = None) -> TimeLimit[Any, Any, Any, Any]:
    return TimeLimit(KillsOthers(render_mode), MAX_STEPS)
