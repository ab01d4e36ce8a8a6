"""Environments that break after fifty steps, each in its own way."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Breaking(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Step:
        self.count += 1
        if self.count > 50:
            return self.broken()
        return np.zeros(3, np.float32), 1.0, False, self.count % 20 == 0, {}

    def broken(self) -> Step:
        raise NotImplementedError


class Raises(Breaking):
    def broken(self) -> Step:
        raise ValueError("the robot fell over")


class WrongShape(Breaking):
    def broken(self) -> Step:
        return np.zeros(4, np.float32), 1.0, False, False, {}


class NotANumber(Breaking):
    def broken(self) -> Step:
        return np.full(3, np.nan, np.float32), 1.0, False, False, {}


class NotANumberOnce(Breaking):
    """Breaks in the first process of a run that gets there, not where hive looks at it before."""

    def __init__(self) -> None:
        super().__init__()
        self.of_run = bool(os.environ["HIVE_ENV_RUN"])

    def broken(self) -> Step:
        if not self.of_run:
            return np.zeros(3, np.float32), 1.0, False, self.count % 20 == 0, {}
        try:
            (Path(os.environ["HIVE_HOME"]) / "broken").touch(exist_ok=False)
        except FileExistsError:
            return np.zeros(3, np.float32), 1.0, False, self.count % 20 == 0, {}
        return np.full(3, np.nan, np.float32), 1.0, False, False, {}


class Hangs(Breaking):
    def broken(self) -> Step:
        threading.Event().wait()
        raise AssertionError


class NoReset(Breaking):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        raise RuntimeError("no simulator")


class Cancels(Breaking):
    def broken(self) -> Step:
        raise asyncio.CancelledError


class RaisesAtOnce(Breaking):
    def step(self, action: Any) -> Step:
        return Raises.broken(self)  # type: ignore[arg-type]


class ExitsInConstructor(Breaking):
    def __init__(self) -> None:
        os._exit(5)


class KeepsSession(Breaking):
    """Starts a process in a session of its own, and does not break."""

    def __init__(self) -> None:
        super().__init__()
        subprocess.Popen(["sleep", "600"], start_new_session=True)

    def broken(self) -> Step:
        return np.zeros(3, np.float32), 1.0, False, self.count % 20 == 0, {}


class StartsThreads(KeepsSession):
    """Its constructor starts all that a fork does not copy, and needs what exists once on a machine."""

    def __init__(self, port: int = 0) -> None:
        import torch

        super().__init__()
        self.pool = ThreadPoolExecutor(1)
        self.pool.submit(int).result()
        self.processes = multiprocessing.Pool(1)
        torch.set_num_threads(2)
        torch.set_default_dtype(torch.float64)
        self.product = torch.ones(400, 400) @ torch.ones(400, 400)
        self.listening = socket.create_server(("127.0.0.1", port))

    def broken(self) -> Step:
        return self.pool.submit(super().broken).result()


class NoConstructor(Breaking):
    def __init__(self) -> None:
        raise OSError("no licence")
