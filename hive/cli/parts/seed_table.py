"""The table of `hive up --seeds`: redrawn in place on a terminal, one line for each run that ends elsewhere.

seed  run          state       steps     updates  return  seconds
1     cartpole-1   finished    96,896        757   476.5      2.9
2     cartpole-2   running     20,480        160    88.1      0.7
3     –            waiting          –          –       –        –
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence

from hive.cli.parts.seed_run import RUNNING, WAITING, SeedRun
from hive.launch.control import print_to_stderr
from hive.monitor import StatusLine
from hive.records.return_text import return_text

ROW = "{:<5} {:<20} {:<9} {:>12} {:>9} {:>8} {:>8}"
HEAD = ROW.format("seed", "run", "state", "steps", "updates", "return", "seconds")


class SeedTable:
    """Shows runs on stdout, and messages about them on stderr."""

    def __init__(self) -> None:
        self._line = StatusLine(sys.stdout)
        self.live = self._line.live
        if not self.live:
            self._line.say(HEAD)

    def draw(self, runs: Sequence[SeedRun]) -> None:
        """Redraw the table on a terminal, as many rows of it as there is room for."""
        if self.live:
            self._line.draw_lines([HEAD, *window(runs, self._line.size[1] - 2)])

    def add(self, run: SeedRun) -> None:
        """Print the row of a run that has ended, where the table is not redrawn."""
        if not self.live:
            self._line.say(_row(run))

    def say(self, text: str) -> None:
        """Print a message; above the table if both are on the same terminal."""
        (self._line.say if self.live and sys.stderr.isatty() else print_to_stderr)(text)

    def close(self, runs: Sequence[SeedRun]) -> None:
        """Print the table of the runs that have ended, unless their rows are printed already, and their median."""
        self._line.erase()
        if self.live:
            for line in (HEAD, *(_row(run) for run in runs if run.state != WAITING)):
                self._line.say(line)
        done = [run.summary for run in runs if run.summary is not None]
        if len(done) > 1:
            returns = [summary.mean_return_100 for summary in done if summary.mean_return_100 is not None]
            mean = return_text(statistics.median(returns) if returns else None)
            steps = statistics.median(summary.env_steps for summary in done)
            seconds = statistics.median(summary.wall_s for summary in done)
            self._line.say(ROW.format("", "median", "", f"{steps:,.0f}", "", mean, f"{seconds:.1f}"))


def window(runs: Sequence[SeedRun], room: int) -> list[str]:
    """Return `room` rows, or the last of them a line about the others; those from the first running one on are kept."""
    if len(runs) <= room:
        return [_row(run) for run in runs]
    shown = max(1, room - 1)
    first = next((n for n, run in enumerate(runs) if run.state == RUNNING), len(runs))
    first = min(first, len(runs) - shown)
    waiting = sum(run.state == WAITING for run in runs)
    return [*map(_row, runs[first : first + shown]), f"{len(runs)} seeds, of which {waiting} are waiting"]


def _row(run: SeedRun) -> str:
    seconds = "–" if run.seconds is None else f"{run.seconds:.1f}"
    counts = run.counts
    texts = ("–", "–", "–") if counts is None else (f"{counts.env_steps:,}", f"{counts.updates:,}", counts.mean_return)
    return ROW.format(run.seed, run.name, run.state, *texts, seconds)
