"""Seeds the global generators of NumPy and Python, from which an environment's code may draw.

A module of its own below everything that builds environments. It does not import torch, and seeds torch's generator
only where it was imported.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

NUMPY_SEEDS = 1 << 32  # number of seeds that NumPy's global generator accepts


def runs_python(vector: object) -> bool:
    """Return whether a step of a vector runs Python code of an environment, which may draw from global generators.

    Vectors of compiled environments have `runs_python = False`; any other one is assumed to.
    """
    return bool(getattr(vector, "runs_python", True))


def seed_globals(seed: int) -> None:
    """Seed the generators of `numpy.random` and of `random` with a number from 0 to 2^63. It takes 6 us."""
    np.random.seed(seed % NUMPY_SEEDS)  # noqa: NPY002
    random.seed(seed)


def seed_with_torch(seed: int) -> None:
    """Seed torch's generator too, if torch is imported: as a run does before it builds and resets environments."""
    seed_globals(seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(seed)


def globals_state() -> tuple[Any, ...]:
    """Return the states of the global generators, to compare: equal unless something has drawn from one or seeded it.

    Torch's counts where torch is imported. It takes 30 us.
    """
    kind, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    torch = sys.modules.get("torch")
    of_torch = b"" if torch is None else torch.default_generator.get_state().numpy().tobytes()
    return random.getstate(), kind, np.asarray(keys).tobytes(), tuple(rest), of_torch


def restore_globals(state: tuple[Any, ...]) -> None:
    """Give the global generators the states that `globals_state` has returned."""
    of_random, kind, keys, rest, of_torch = state
    random.setstate(of_random)
    np.random.set_state((kind, np.frombuffer(keys, np.uint32), *rest))  # noqa: NPY002
    if of_torch and (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.set_state(torch.frombuffer(bytearray(of_torch), dtype=torch.uint8))


def changed_generators(before: tuple[Any, ...], now: tuple[Any, ...]) -> list[str]:
    """Return the names of the global generators that differ in two states: "random", "numpy.random" or "torch"."""
    differ = {
        "random": before[0] != now[0],
        "numpy.random": before[1:4] != now[1:4],
        "torch": before[4] != now[4] and bool(before[4]),
    }
    return [name for name, differs in differ.items() if differs]
