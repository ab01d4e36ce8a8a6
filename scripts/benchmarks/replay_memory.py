"""`bench replay`: the memory that a replay memory of Atari frames takes, computed and measured.

    replay_memory.py ROWS      prints the resident memory of a ReplayBuffer that has ROWS rows, in bytes a row

The network sees four frames at once; the memory holds single ones. Episodes have EPISODE steps, and each CUT steps one
is truncated by its time limit, whose last frame is kept besides. 27,000 steps are that limit in Atari's environments.

Required: a million rows take less than 7.5 GB.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.harness import Bench, Check, Report, aligned, count, number
from benchmarks.programs import here, run_program
from hive.experience import ReplayBuffer, replay_layout

FRAME, ACTION, STACK = ((84, 84), "uint8"), ((), "int64"), 4
EPISODE, CUT = 1_000, 27_000
FRAMES = 64  # different frames that the rows hold
MILLION, MOST_GB = 1_000_000, 7.5
LIMIT_S = 1e-3  # most seconds that adding a row takes on a busy machine, beside the start


def bytes_of_a_row() -> int:
    """Return the bytes of a row by its layout, without its final observation, which hardly any row has."""
    one, two = (replay_layout(1, rows, 1, FRAME, ACTION) for rows in (100_000, 200_000))
    finals = int(np.prod(FRAME[0]))
    return round((two.bytes - one.bytes) / 100_000) - finals


def stored(rows: int) -> ReplayBuffer:
    """Return a replay buffer that has been filled."""
    frames = np.random.default_rng(0).integers(0, 256, (FRAMES, 1, *FRAME[0]), np.uint8)
    replay = ReplayBuffer(FRAME, ACTION, capacity=rows, stack=STACK, n_step=3, alpha=0.6)
    replay.begin(frames[0])
    for row in range(1, rows + 1):
        after = frames[row % FRAMES]
        replay.add(row % 6, 1.0, row % EPISODE == 0, row % CUT == 0, after, after)
    return replay


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].removesuffix("kB")) * 1024


def measure(options: argparse.Namespace, machine: Mapping[str, object]) -> Report:
    """Fill a memory in a process of its own, and compare with the computed size."""
    command = [sys.executable, "-P", here("replay_memory.py"), options.rows]
    measured = run_program(command, options.rows * LIMIT_S, rate="bytes_per_row")
    computed, (height, width) = bytes_of_a_row(), FRAME[0]
    sizes = {
        "computed from the layout": computed,
        f"resident memory of {measured['rows']:,.0f} rows": measured["bytes_per_row"],
        "two whole stacks a row, computed": 2 * STACK * height * width,
    }
    rows = [(f"  {way}", number(size, 1), number(size * MILLION / 1e9, 2)) for way, size in sizes.items()]
    title = f"frames of {height} x {width} bytes, {STACK} in a stack"
    lines = aligned((title, "bytes a row", "GB of 1,000,000"), rows)
    figures = {"computed_bytes_per_row": computed, "measured": measured}
    return Report(lines, figures, checks_of(computed, measured["bytes_per_row"]))


def checks_of(computed: float, measured: float) -> list[Check]:
    """Return the checks. computed, measured: bytes of a row."""
    gigabytes = {"computed": computed * MILLION / 1e9, "measured": measured * MILLION / 1e9}
    return [
        Check(f"1,000,000 rows < {MOST_GB} GB, {way}", f"{size:.2f} GB", size < MOST_GB)
        for way, size in gigabytes.items()
    ]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=count, default=200_000, help="rows of the real one (default %(default)d)")


BENCH = Bench(
    "replay",
    "memory that a replay memory of Atari frames takes: computed, and of one that is filled",
    "example: scripts/bench replay --check",
    _options,
    measure,
)


if __name__ == "__main__":
    rows = int(sys.argv[1])
    stored(1_000)  # what the code itself takes
    before = resident_bytes()
    replay = stored(rows)
    assert len(replay) > 0.99 * rows - STACK
    print(json.dumps({"rows": rows, "bytes_per_row": (resident_bytes() - before) / rows}))
