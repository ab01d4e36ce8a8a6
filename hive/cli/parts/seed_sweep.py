"""`hive up CONFIG --seeds 1..5`: trains one config with several seeds, one run after the other, and prints a table.

    seed  run          state       steps     updates  return  seconds
    1     cartpole-1   finished    96,896        757   476.5      2.9

The runs are not started in parallel because each uses all available cores; they would slow each other down. Ctrl-C ends
and saves the current run, and no further run is started.
"""

from __future__ import annotations

import re
import statistics
from pathlib import Path

from hive.cli.parts.new_run import new_run
from hive.cli.parts.starting import run_quietly
from hive.cli.parts.tune import recorded_sets
from hive.errors import UsageError
from hive.records import Summary
from hive.records.return_text import return_text

MAX_SEEDS = 1000  # maximum number of seeds: a typing error must not start a year of training

ROW = "{:<5} {:<20} {:<9} {:>12} {:>9} {:>8} {:>8}"


def seeds_of(text: str) -> list[int]:
    """Parse `1..5` or `1,2,7`. Raises UsageError for other texts and for more than MAX_SEEDS seeds."""
    if match := re.fullmatch(r"(\d+)\.\.(\d+)", text):
        first, last = int(match[1]), int(match[2])
        seeds = list(range(first, last + 1)) if last - first < MAX_SEEDS else []
    elif re.fullmatch(r"\d+(,\d+)*", text):
        seeds = [int(part) for part in text.split(",")]
    else:
        seeds = []
    if not seeds or len(seeds) > MAX_SEEDS:
        raise UsageError(f"invalid seeds `{text}`: expected 1..5 or 1,2,7", hint=f"use at most {MAX_SEEDS} seeds")
    return seeds


def run_seeds(given: Path | None, overrides: list[str], seeds: list[int]) -> int:
    """Run all seeds and print the table; return the exit code: 1 if a run failed, otherwise 0."""
    print(ROW.format("seed", "run", "state", "steps", "updates", "return", "seconds"))
    done: list[Summary] = []
    measured: list[str] = []  # values for "auto" that the first run was given: all seeds train the same way
    for seed in seeds:
        directory = new_run(given, [*overrides, *measured, f"run.seed={seed}"])
        measured = measured or recorded_sets(directory)
        run_quietly(directory)
        summary = Summary.read(directory.summary_file)
        done.append(summary)
        print(_row(str(seed), directory.name, summary), flush=True)
        if summary.state == "stopped":
            break
    if len(done) > 1:
        returns = [s.mean_return_100 for s in done if s.mean_return_100 is not None]
        mean = return_text(statistics.median(returns) if returns else None)
        steps = statistics.median(summary.env_steps for summary in done)
        seconds = statistics.median(summary.wall_s for summary in done)
        print(ROW.format("", "median", "", f"{steps:,.0f}", "", mean, f"{seconds:.1f}"))
    return int(any(summary.state == "failed" for summary in done))


def _row(seed: str, name: str, summary: Summary) -> str:
    mean = summary.return_text
    counts = f"{summary.env_steps:,}", f"{summary.updates:,}"
    return ROW.format(seed, name, summary.state, *counts, mean, f"{summary.wall_s:.1f}")
