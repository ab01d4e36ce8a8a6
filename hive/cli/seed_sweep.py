"""`hive up CONFIG --seeds 1..5`: the same config with several seeds, one run after the other, in one table.

    seed  run          state       steps     updates  return  seconds
    1     cartpole-1   finished    96,896        757   476.5      2.9

One after the other, because each uses the cores it finds: side by side they would measure each other. Ctrl-C ends the
run that is going on, saves it, and starts no more.
"""

from __future__ import annotations

import re
import statistics
from pathlib import Path

from hive.cli.starting import new_run, run_quietly
from hive.errors import UsageError
from hive.records import Summary

__all__ = ["run_seeds", "seeds_of"]

MOST = 1000  # a slip of the finger should not train for a year

ROW = "{:<5} {:<20} {:<9} {:>12} {:>9} {:>8} {:>8}"


def seeds_of(text: str) -> list[int]:
    """`1..5` or `1,2,7`. Raises UsageError."""
    if match := re.fullmatch(r"(\d+)\.\.(\d+)", text):
        first, last = int(match[1]), int(match[2])
        seeds = list(range(first, last + 1)) if last - first < MOST else []
    elif re.fullmatch(r"\d+(,\d+)*", text):
        seeds = [int(part) for part in text.split(",")]
    else:
        seeds = []
    if not seeds or len(seeds) > MOST:
        raise UsageError(f"`{text}` are no seeds", hint=f"write 1..5 or 1,2,7; at most {MOST}")
    return seeds


def run_seeds(given: Path | None, overrides: list[str], seeds: list[int]) -> int:
    """Runs them all; the exit code is 1 when one has failed, 0 else."""
    print(ROW.format("seed", "run", "state", "steps", "updates", "return", "seconds"))
    done: list[Summary] = []
    for seed in seeds:
        directory = new_run(given, [*overrides, f"run.seed={seed}"])
        run_quietly(directory)
        summary = Summary.read(directory.summary_file)
        done.append(summary)
        print(_row(str(seed), directory.name, summary), flush=True)
        if summary.state == "stopped":
            break
    if len(done) > 1:
        returns = [s.mean_return_100 for s in done if s.mean_return_100 is not None]
        mean = f"{statistics.median(returns):.1f}" if returns else "–"
        steps = statistics.median(summary.env_steps for summary in done)
        seconds = statistics.median(summary.wall_s for summary in done)
        print(ROW.format("", "median", "", f"{steps:,.0f}", "", mean, f"{seconds:.1f}"))
    return int(any(summary.state == "failed" for summary in done))


def _row(seed: str, name: str, summary: Summary) -> str:
    mean = "–" if summary.mean_return_100 is None else f"{summary.mean_return_100:.1f}"
    counts = f"{summary.env_steps:,}", f"{summary.updates:,}"
    return ROW.format(seed, name, summary.state, *counts, mean, f"{summary.wall_s:.1f}")
