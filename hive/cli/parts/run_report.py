"""The lines that end `hive up`, `hive resume` and `hive down`: how a run ended, what is saved, its best policy."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from hive.cli.parts.control import print_to_stderr
from hive.cli.parts.select_run import name_from_here
from hive.monitor.drawing import duration
from hive.records import Checkpoint, RunDirectory, Summary, list_checkpoints
from hive.records.return_text import return_text
from hive.records.run_warnings import RunWarning, shown
from hive.runtime.process.stop_signals import REASONS, TERMINATED
from hive.warning_names import SHOWN


def report_end(directory: RunDirectory, code: int, say: Callable[[str], object] = print_to_stderr) -> int:
    """Print the result of a run in the foreground, line by line, with `say`; return the exit code of the command.

    code: that of the supervisor.
    """
    summary, saved = Summary.read(directory.summary_file), list_checkpoints(directory.checkpoints)
    if summary.error:
        say(f"error: {summary.error}")
    say(f"{_results(summary, saved)} · {directory.path}")
    if summary.best is not None:
        say(_best_line(summary.best, name_from_here(directory)))
    for line in warning_lines(map(RunWarning.of, summary.warnings), name_from_here(directory)):
        say(line)
    if summary.state == "stopped" and saved:
        say(f"to continue it: hive resume {name_from_here(directory)}")
    return exit_code_of(summary, code)


def warning_lines(warnings: Iterable[RunWarning], name: str) -> Iterator[str]:
    """Yield a line for each of the worst warnings that hold, and one that says where the others are."""
    held = shown(warnings)
    yield from (f"warning: {warning.line}" for warning in held[:SHOWN])
    if len(held) > SHOWN:
        yield f"and {len(held) - SHOWN} more: hive doctor {name}"


def exit_code_of(summary: Summary, code: int) -> int:
    """Return the exit code of a command whose run has ended; `code`: that of the supervisor.

    A run that SIGTERM has stopped is no success, so that a service manager or a queue starts the command again.
    """
    terminated = code == 0 and summary.state == "stopped" and summary.stop_reason == REASONS[signal.SIGTERM]
    return TERMINATED if terminated else code


def _results(summary: Summary, saved: Sequence[Checkpoint]) -> str:
    """Return how the run ended and what came of it; a custom topology may have no steps."""
    if summary.state == "finished" and not summary.env_steps:
        return f"{summary.ending} · {duration(summary.wall_s)}"
    updates = f", {summary.updates:,} updates" if summary.updates else ", no updates"
    return f"{ending_text(summary, saved)}{updates} · return {summary.return_text} · {_times(summary)}"


def _times(summary: Summary) -> str:
    """Return how long the run took; the rate stands beside the seconds that it is of, which exclude start and end."""
    whole, rate = duration(summary.wall_s), summary.steps_per_s
    return f"{duration(summary.train_s)} of training at {rate:,.0f} steps/s, {whole} in all" if rate else whole


def ending_text(summary: Summary, saved: Sequence[Checkpoint]) -> str:
    """Return how the run ended and at which step; for a stopped run also what was saved."""
    stopped = summary.state == "stopped"
    frames = "" if summary.frames is None else f", {summary.frames:,} frames"
    steps = f"{summary.env_steps:,} steps"  # which may be the goal itself
    counted = kept(summary, saved) if stopped else "" if steps == summary.stop_reason else f" · {steps}"
    return summary.ending + counted + frames


def _best_line(best: Mapping[str, Any], name: str) -> str:
    """Name the best policy of a run, from what its summary says about it."""
    by = "an evaluation" if best["by"] == "evaluation" else "100 training episodes"
    at = "" if best["steps"] is None else f", at {best['steps']:,} steps"
    measure = f"to measure it: hive eval {name} --which best"
    return f"best policy: mean return {return_text(best['mean_return'])} of {by}{at} · {measure}"


def kept(summary: Summary, saved: Sequence[Checkpoint]) -> str:
    """Return the end of a sentence about a stopped run: what is saved of it, and where it was if that differs."""
    if not saved:
        return f" at {summary.env_steps:,} steps; nothing was saved"
    steps = saved[-1].state.get("env_steps")
    if steps is None:  # a custom topology need not count steps
        return f"; saved at update {saved[-1].update:,}"
    if steps == summary.env_steps:
        return f"; saved at {steps:,} steps"
    return f" at {summary.env_steps:,} steps; last saved at {steps:,} steps"
