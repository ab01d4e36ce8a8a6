"""Seeds the global generators of NumPy and Python, from which an environment's code may draw.

A module of its own below everything that builds environments. `hive.training.collect.collector` adds torch's.
"""

from __future__ import annotations

import random
import sys

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


def globals_state() -> tuple[object, ...]:
    """Return the states of the global generators, to compare: equal unless something has drawn from one or seeded it.

    Torch's counts where torch is imported. It takes 30 us.
    """
    kind, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    torch = sys.modules.get("torch")
    of_torch = b"" if torch is None else torch.default_generator.get_state().numpy().tobytes()
    return random.getstate(), kind, np.asarray(keys).tobytes(), tuple(rest), of_torch
