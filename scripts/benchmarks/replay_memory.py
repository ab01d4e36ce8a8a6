"""`bench replay`: the memory that a replay memory of Atari frames takes, computed and measured.

    replay_memory.py ROWS      prints the resident memory of a ReplayBuffer that has ROWS rows, in bytes a row

The network sees four frames at once; the memory holds single ones. Episodes have EPISODE steps, and each CUT steps one
is truncated by its time limit, whose last frame is kept besides. 27,000 steps are that limit in Atari's environments.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.programs import here, importing, run_program
from hive.storage import ReplayBuffer, replay_layout

__all__ = ["FRAME", "STACK", "bytes_of_a_row", "measure_rows", "resident_bytes", "stored"]

FRAME, ACTION, STACK = ((84, 84), "uint8"), ((), "int64"), 4
EPISODE, CUT = 1_000, 27_000
FRAMES = 64  # different frames that the rows hold
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


def measure_rows(rows: int) -> dict[str, float]:
    """Fill a memory of these rows in a process of its own. Raises BenchError if that fails."""
    command = [sys.executable, "-P", here("replay_memory.py"), rows]
    return run_program(command, rows * LIMIT_S, importing(), rate="bytes_per_row")


if __name__ == "__main__":
    count = int(sys.argv[1])
    stored(1_000)  # what the code itself takes
    before = resident_bytes()
    replay = stored(count)
    assert len(replay) > 0.99 * count - STACK
    print(json.dumps({"rows": count, "bytes_per_row": (resident_bytes() - before) / count}))
