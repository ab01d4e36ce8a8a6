"""`hive up CONFIG --seeds 1..5 [--jobs 2]`: trains one config with several seeds and shows a table (seed_table).

    seeds ──> waiting ──> at most `jobs` running ──> ended ──> median, exit code
                  └─ none starts after Ctrl-C, after a stopped run, or while one start failed and none succeeded

By default one run follows another, because each uses all available cores; several at once would slow each other down,
so each of them counts on its share of the cores (hive.cores). Neither changes the results of a seed. Ctrl-C ends and
saves all that are running, and a second one ends them at once. Without this process, which nothing depends on, they
continue and no further run is started.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from hive.cli.parts.seed_run import FAILED, RUNNING, STOPPED, WAITING, SeedRun, wait_for_end
from hive.cli.parts.seed_table import SeedTable
from hive.cores import share_of_cores
from hive.errors import HiveError, UsageError
from hive.launch import early_start
from hive.launch.interrupts import recorded_interrupts
from hive.launch.new_run import new_run
from hive.launch.references import kept_sets
from hive.launch.run_report import exit_code_of
from hive.launch.select_run import name_from_here
from hive.launch.starting import signal_text
from hive.launch.tune import recorded_sets
from hive.records import RunDirectory
from hive.records.owner import descriptor_of
from hive.runtime.process.stop_signals import FORCED, TERMINATED

MAX_SEEDS = 1000  # maximum number of seeds: a typing error must not start a year of training
HINT = "\n\nhint: "  # begins the hint of an error in a summary
POLL_S = 0.25  # interval between two looks at signals and statuses; the end of a run is noticed at once


def seeds_of(text: str) -> list[int]:
    """Parse `1..5` or `1,2,7`, each seed once. Raises UsageError for other texts and for more than MAX_SEEDS seeds."""
    if match := re.fullmatch(r"(\d+)\.\.(\d+)", text):
        first, last = int(match[1]), int(match[2])
        seeds = list(range(first, last + 1)) if last - first < MAX_SEEDS else []
    elif re.fullmatch(r"\d+(,\d+)*", text):
        seeds = list(dict.fromkeys(map(int, text.split(","))))  # a repeated seed would count twice
    else:
        seeds = []
    if not seeds or len(seeds) > MAX_SEEDS:
        raise UsageError(f"invalid seeds `{text}`: expected 1..5 or 1,2,7", hint=_seeds_meant(text))
    return seeds


def _seeds_meant(text: str) -> str:
    """Return the hint for invalid seeds: the range between two numbers such as `1-5`, or the limit."""
    if (match := re.fullmatch(r"\s*(\d+)\D+(\d+)\s*", text)) and "," not in text:
        first, last = sorted(map(int, match.groups()))
        if last - first < MAX_SEEDS:
            return f"did you mean {first}..{last}?"
    return f"use at most {MAX_SEEDS} seeds"


def run_seeds(
    given: Path | None,
    overrides: list[str],
    seeds: list[int],
    jobs: int = 1,
    maker: Callable[..., RunDirectory] = new_run,
) -> int:
    """Run all seeds, at most `jobs` at once, and show the table; return the exit code.

    maker: makes the directory of a run, as `new_run`, or finds it, as `begin_or_continue`.

    It is 1 if a run failed, 130 if runs were ended at once, 75 if SIGTERM ended one, and otherwise 0. If no run began,
    it is that of the error, or 128 + the number of the signal.
    """
    jobs = min(jobs, len(seeds))
    if jobs > 1:
        early_start.abandon()  # it counts on all cores
    with share_of_cores(jobs) if jobs > 1 else nullcontext():
        return Sweep(given, overrides, seeds, jobs, maker).run()


class Sweep:
    """The runs of several seeds."""

    def __init__(
        self,
        given: Path | None,
        overrides: list[str],
        seeds: list[int],
        jobs: int,
        maker: Callable[..., RunDirectory] = new_run,
    ) -> None:
        self.given = given
        self.maker = maker
        self.overrides = overrides
        self.jobs = jobs
        self.runs = [SeedRun(seed) for seed in seeds]
        self.table = SeedTable()
        self.signals: list[int] = []

    def run(self) -> int:
        """Run all seeds and return the exit code."""
        # Before others start: what it measures for "auto", and the checkpoints that it refers to, are given to all, so
        # that all train the same way. Ctrl-C raises until then.
        directory = self._made(self.runs[0])
        self.overrides = [*self.overrides, *recorded_sets(directory), *kept_sets(directory)]
        with recorded_interrupts() as interrupts:
            self._start(self.runs[0], directory)
            while True:
                self._obey(interrupts)
                self._start_next()
                if not (running := self._in(RUNNING)):
                    break
                self._follow(running)
        self.table.close(self.runs)
        self._report_rest()
        return self._code()

    def _made(self, run: SeedRun) -> RunDirectory:
        return self.maker(self.given, [*self.overrides, f"run.seed={run.seed}"], report=self.table.say)

    def _start(self, run: SeedRun, directory: RunDirectory | None = None) -> None:
        try:
            directory = directory or self._made(run)
            if descriptor_of(directory) is None:  # it has finished before
                run.take_result(directory)
                self.table.add(run)
            else:
                run.start(directory)
        except HiveError as error:
            run.refuse(error)
            self._ended(run)

    def _start_next(self) -> None:
        while (waiting := self._in(WAITING)) and len(self._in(RUNNING)) < self.jobs and self._may_start():
            self._start(waiting[0])

    def _may_start(self) -> bool:
        if self.signals or self._in(STOPPED):
            return False
        failed_starts = [run for run in self._in(FAILED) if not run.has_begun]
        return not failed_starts or any(run.has_begun for run in self.runs)

    def _in(self, state: str) -> list[SeedRun]:
        return [run for run in self.runs if run.state == state]

    def _obey(self, interrupts: list[int]) -> None:
        """Ask all running runs to end, once for each signal."""
        while interrupts:
            self.signals.append(interrupts.pop(0))
            for run in self._in(RUNNING):
                run.ask_to_end(self.signals[-1])
            if len(self.signals) == 1:
                again = f"{signal_text(self.signals[0])} again to stop at once"
                self.table.say(f"stopping: saving the state of all that run - {again}")

    def _follow(self, running: list[SeedRun]) -> None:
        """Show the runs until one ends or POLL_S seconds are over, and add the rows of those that have ended."""
        if self.table.live:
            for run in running:
                run.update()
        self.table.draw(self.runs)
        wait_for_end(running, POLL_S)
        for run in running:
            if run.has_ended:
                run.end()
                self._ended(run)

    def _ended(self, run: SeedRun) -> None:
        self.table.add(run)
        if run.state == FAILED:
            self.table.say(f"seed {run.seed}: {_cause(run)}")

    def _report_rest(self) -> None:
        """Print the commands that resume stopped runs, and the seeds that did not begin."""
        for run in self._in(STOPPED):
            if run.directory is not None:
                self.table.say(f"to continue seed {run.seed}: hive resume {name_from_here(run.directory)}")
        unbegun = [str(run.seed) for run in self.runs if run.state in (WAITING, STOPPED) and not run.has_begun]
        if unbegun and any(run.has_begun for run in self.runs):
            self.table.say(f"to run the seeds that did not begin: --seeds {','.join(unbegun)}")

    def _code(self) -> int:
        if any(run.forced for run in self.runs):
            return FORCED
        if any(run.has_begun for run in self.runs):
            terminated = any(run.summary and exit_code_of(run.summary, 0) for run in self._in(STOPPED))
            return 1 if self._in(FAILED) else TERMINATED if terminated else 0
        errors = [run.error for run in self.runs if run.error is not None]
        return errors[0].exit_code if errors else 128 + min(self.signals)


def _cause(run: SeedRun) -> str:
    """Return why a run failed, and how to see more."""
    if run.error is not None:
        return run.error.render()
    assert run.summary is not None
    assert run.directory is not None
    cause, name = run.summary.error or run.summary.stop_reason, name_from_here(run.directory)
    return f"error: {cause}{'' if HINT in cause else f'{HINT}hive doctor {name}, hive logs {name}'}"
