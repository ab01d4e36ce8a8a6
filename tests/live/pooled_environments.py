"""Environments that start threads, processes or libraries with threads of their own, in the constructor, as users' do.

Each has one worker, whose result every step needs. None of them does more than many a user does: they close what they
have started only if `closes`.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import ctypes
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

STEPS = 20  # of an episode
SIZE = 4
LARGE = 1 << 16  # of an array, so that libraries divide the work on it among threads
SERVER = "import sys\nfor line in sys.stdin: print(int(line) + 1, flush=True)"


def successor(number: int) -> int:
    """What every worker computes, by its own means."""
    return number + 1


class Pooled(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Ends if `work` does not return the successor of the number of the step. work: set by the constructor."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    work: Callable[[int], Any]

    def __init__(self, closes: bool = True) -> None:
        self.closes = closes
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(SIZE, np.float32), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        found = int(self.work(self.steps))
        if found != self.steps + 1:
            raise AssertionError(f"the worker said {found} after {self.steps}")
        self.steps = found
        observation = np.full(SIZE, found / STEPS, np.float32)
        return observation, float(action), self.steps == STEPS, False, {}


class Threads(Pooled):
    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.pool.submit(successor, 0).result()
        self.work = lambda number: self.pool.submit(successor, number).result()

    def close(self) -> None:
        if self.closes:
            self.pool.shutdown()


class Processes(Pooled):
    """method: of multiprocessing."""

    def __init__(self, method: str = "fork", **named: Any) -> None:
        super().__init__(**named)
        self.pool = multiprocessing.get_context(method).Pool(2)
        self.pool.apply(successor, (0,))
        self.work = lambda number: self.pool.apply(successor, (number,))

    def close(self) -> None:
        if self.closes:
            self.pool.terminate()
            self.pool.join()


class Executor(Pooled):
    def __init__(self, method: str = "fork", **named: Any) -> None:
        super().__init__(**named)
        self.pool = concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(method))
        self.pool.submit(successor, 0).result()
        self.work = lambda number: self.pool.submit(successor, number).result()

    def close(self) -> None:
        if self.closes:
            self.pool.shutdown()


class Torch(Pooled):
    """threads: of torch's operations. warm: whether they run already in the constructor."""

    def __init__(self, threads: int = 2, warm: bool = True, **named: Any) -> None:
        super().__init__(**named)
        import torch

        torch.set_num_threads(threads)
        network = torch.nn.Linear(LARGE, 1, bias=False)
        torch.nn.init.ones_(network.weight)
        rows = torch.zeros(4, LARGE)

        def work(number: int) -> Any:
            rows[:, 0] = number
            with torch.no_grad():
                return round(network(rows + 1).sum().item() / 4 - LARGE + 1)

        if warm:
            work(0)
        self.work = work


class Numba(Pooled):
    def __init__(self, layer: str = "default", **named: Any) -> None:
        super().__init__(**named)
        numba: Any = importlib.import_module("numba")

        numba.config.THREADING_LAYER = layer

        def total(number: int) -> int:
            found = 0
            for place in numba.prange(1000):
                found += 1 if place < number else 0
            return found + 1

        self.work = numba.njit(total, parallel=True)
        self.work(0)


class OpenMP(Pooled):
    """library: with `int successor(int)`, which uses a team of threads."""

    def __init__(self, library: str = "", **named: Any) -> None:
        super().__init__(**named)
        self.work = ctypes.CDLL(library).successor
        self.work(0)


class Jax(Pooled):
    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        jax: Any = importlib.import_module("jax")

        one = jax.numpy.ones(LARGE)
        total = jax.jit(lambda number: number + (one * one).mean())
        total(0.0)
        self.work = lambda number: round(float(total(float(number))))


class Printer(Pooled):
    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.work = successor
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.talk)
        self.thread.start()

    def talk(self) -> None:
        while not self.ends.wait(0.001):
            print("the simulator is alive", flush=True)

    def close(self) -> None:
        if self.closes:
            self.ends.set()
            self.thread.join()


class Server(Pooled):
    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.server = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.work = self.asked
        self.asked(0)

    def asked(self, number: int) -> int:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(f"{number}\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def close(self) -> None:
        if self.closes:
            self.server.communicate()


class Handlers(Pooled):
    """Takes signals, and changes what belongs to the process."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.work = successor
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM, signal.SIGUSR1):
            signal.signal(number, self.take)
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
        atexit.register(print, "the simulator has ended", flush=True)
        os.environ["SIMULATOR"] = "1"
        os.environ.pop("HOME", None)
        os.chdir("/")

    def take(self, number: int, frame: object) -> None:
        if number == signal.SIGCHLD:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass


class Loop(Pooled):
    """Runs an event loop in each step, as drivers of browsers and of game servers do."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)

        async def later(number: int) -> int:
            return await asyncio.to_thread(successor, number)

        self.work = lambda number: asyncio.run(later(number))


KINDS: dict[str, Callable[..., Pooled]] = {
    "threads": Threads,
    "processes": Processes,
    "executor": Executor,
    "torch": Torch,
    "numba": Numba,
    "openmp": OpenMP,
    "jax": Jax,
    "printer": Printer,
    "server": Server,
    "handlers": Handlers,
    "loop": Loop,
}


def chosen(kind: str, **named: Any) -> Pooled:
    """Make one of the kinds, so that a run may have several of them."""
    return KINDS[kind](**named)
