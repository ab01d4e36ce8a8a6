"""How `bench tree` times a way of prioritized replay: the inputs, the loops and the output, without hive.

A way writes the priorities of BATCH rows and draws BATCH rows, from a memory of ROWS rows, on one core. Each call gets
other rows and errors. Both kinds of calls take turns in portions, so that a slow moment slows both.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

ROWS, BATCH = 1_000_000, 512
ALPHA, BETA, EPSILON = 0.6, 0.4, 1e-6  # of Schaul et al. (2016), whose epsilon is not zero
INPUTS = 2_000  # batches of rows and errors: together more than all rows, so that no cache holds those of the next call
PORTION = 50  # calls between two looks at the clock


class Way(Protocol):
    """One way to keep the priorities of ROWS rows, which all have one at first.

    write: set the priorities of rows, int64 [BATCH], to those of errors, float32 [BATCH]. draw: draw rows of the call
    `number`, an array of BATCH indices.
    """

    def write(self, rows: np.ndarray, errors: np.ndarray) -> object: ...

    def draw(self, number: int) -> object: ...


def rates_of(way: Way, seconds: float, rows: int = ROWS) -> dict[str, float]:
    """Return `updates_per_s` and `samples_per_s`, rows a second, measured for `seconds` in total."""
    random = np.random.default_rng(0)
    positions = random.integers(0, rows, (INPUTS, BATCH))
    errors = random.exponential(size=(INPUTS, BATCH)).astype(np.float32)
    taken, calls = [0.0, 0.0], [0, 0]

    def write(number: int) -> None:
        way.write(positions[number % INPUTS], errors[number % INPUTS])

    for number in range(PORTION):  # touches all memory, and finds what cannot run
        write(number)
        way.draw(number)
    kinds: tuple[Callable[[int], object], ...] = write, way.draw
    while sum(taken) < seconds:
        for kind, call in enumerate(kinds):
            begun, first = time.perf_counter(), calls[kind]
            for number in range(first, first + PORTION):
                call(number)
            taken[kind] += time.perf_counter() - begun
            calls[kind] += PORTION
    updates, samples = (BATCH * count / time_s for count, time_s in zip(calls, taken, strict=True))
    return {"updates_per_s": updates, "samples_per_s": samples}


def print_rates(make: Callable[[], Way], seconds: float) -> None:
    """Measure a way on one core, and print its rates as a JSON object."""
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    print(json.dumps(rates_of(make(), seconds)))
