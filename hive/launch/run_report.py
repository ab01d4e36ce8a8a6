"""The lines that end `hive up`, `hive resume` and `hive down`: how a run ended, what is saved, its best policy."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from hive.config import Config, load_config
from hive.launch.control import print_to_stderr
from hive.launch.select_run import name_from_here
from hive.monitor.drawing import duration
from hive.records import Checkpoint, RunDirectory, Summary, best_policy, list_checkpoints, read_jsonl
from hive.records.jsonl import tail_jsonl
from hive.records.return_text import interval_95, return_text
from hive.records.run_warnings import GOAL_NOT_JUDGED, UNFINISHED, RunWarning, shown
from hive.runtime.process.stop_signals import REASONS, TERMINATED
from hive.warning_names import SHOWN

EVENTS_BACK = 50  # lines at the end of the event log that are searched for those of the end


def report_end(directory: RunDirectory, code: int, say: Callable[[str], object] = print_to_stderr) -> int:
    """Print the result of a run in the foreground, line by line, with `say`; return the exit code of the command.

    code: that of the supervisor.
    """
    summary, saved = Summary.read(directory.summary_file), list_checkpoints(directory.checkpoints)
    if summary.error:
        say(f"error: {summary.error}")
    say(f"{_results(summary, saved)} · {directory.path}")
    if summary.best is not None:
        say(_best_line(directory, summary.best))
    for line in missing_lines(directory, summary):
        say(line)
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


def _best_line(directory: RunDirectory, best: Mapping[str, Any]) -> str:
    """Name the best policy of a run, from what its summary says about it, and how it was chosen."""
    at = "" if best["steps"] is None else f", at {best['steps']:,} steps"
    measure = f"to measure it: hive eval {name_from_here(directory)} --which best"
    kept = best_policy(directory.best, verify=False)
    if kept is not None and kept.state.get("balanced") is True:
        why = "the returns of its agents add up to the same in every episode"
        return f"best policy: the newest one that was judged{at}, because {why} · {measure}"
    found = f"mean return {return_text(best['mean_return'])}"
    if best["by"] != "evaluation":
        return f"best policy: {found} of 100 training episodes{at} · {measure}"
    lines, by = list(read_jsonl(directory.evaluations_file)), "an evaluation"
    own = next((line for line in lines if f"{line.get('turn')}".zfill(6) == best["checkpoint"].rpartition("/")[2]), {})
    episodes, deviation = own.get("episodes"), own.get("deviation")
    if isinstance(episodes, int) and isinstance(deviation, float) and episodes > 1 and deviation > 0.0:
        found += f" ± {return_text(interval_95(deviation, episodes))}"
        # The highest of many values that vary is above what its policy earns, so their number is said.
        by = f"the best of {len(lines)} evaluations" if len(lines) > 1 else by
    if kept is not None and (best_by := str(kept.state.get("best_by"))).startswith("info/"):
        found = f"{best_by.removeprefix('info/')} {return_text(kept.state.get('value'))}, {found}"
    return f"best policy: {found} of {by}{at} · {measure}"


def missing_lines(directory: RunDirectory, summary: Summary) -> Iterator[str]:
    """Yield what a run that has made all its steps did not come to: its goal, and evaluations that had not ended."""
    if summary.state != "finished" or not directory.resolved_file.exists():
        return
    config = load_config(directory.resolved_file)
    if summary.env_steps >= config.run.steps and not any(one["kind"] == GOAL_NOT_JUDGED for one in summary.warnings):
        for key, goal, reached in _goals(directory, summary, config):
            if reached is not None and reached < goal:
                yield f"not reached: {key} = {goal:g}; the run came to {return_text(reached)}"
    events = tail_jsonl(directory.events_file, EVENTS_BACK)
    now = [event for event in events if event.get("kind") == UNFINISHED and event.get("t", 0.0) >= summary.started]
    yield from (event["text"] for event in now[-1:] if "text" in event)


def _goals(directory: RunDirectory, summary: Summary, config: Config) -> Iterator[tuple[str, float, float | None]]:
    """Yield each goal of a run with its key, and how far the run has come."""
    if config.run.stop_at_return is not None:
        yield "run.stop_at_return", config.run.stop_at_return, summary.mean_return_100
    if config.run.stop_at_evaluation is not None:
        lines = read_jsonl(directory.evaluations_file)
        values = [value for line in lines if isinstance(value := line.get(config.evaluation.best_by), int | float)]
        yield "run.stop_at_evaluation", config.run.stop_at_evaluation, max(values, default=None)


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
