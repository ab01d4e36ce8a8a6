"""The checks of one run, live or ended, for `hive doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from hive.cli.parts.machine_checks import (
    BAD,
    FULL_DISK,
    OK,
    WARN,
    Diagnosis,
    free_disk,
    gpu_findings,
    rated,
    resume_command,
)
from hive.errors import HiveError
from hive.records import (
    RunDirectory,
    is_alive,
    list_checkpoints,
    read_document,
    read_jsonl,
    read_run_facts,
    run_state,
)
from hive.records.crash import StartFailure
from hive.records.regular import open_regular
from hive.records.run_warnings import RunWarning, facts_of, logged_warnings
from hive.records.summary import Summary
from hive.runtime.run.control import OtherProtocol

if TYPE_CHECKING:
    from hive.monitor.snapshot import Snapshot

CRASH_LINE_BYTES = 1000  # maximum bytes of the first line of a crash report that are shown
STUCK_S = 10.0  # time in one phase after which an actor is reported: healthy steps, updates and saves are shorter


def run_findings(directory: RunDirectory) -> Iterator[Diagnosis]:
    """Check a run, live or ended."""
    state = run_state(directory)
    yield from _live(directory) if state == "running" else _ended(directory, state)
    yield from (Diagnosis(OK, name, text) for name, text in facts_of(read_jsonl(directory.events_file)).items())
    damaged: list[str] = []
    saved = list_checkpoints(directory.checkpoints, verify=True, refused=damaged.append)
    newest = f"{len(saved)}, the newest of update {saved[-1].update:,}" if saved else "none yet"
    yield rated(bool(saved), WARN, "checkpoints", newest, "set [checkpoint] every, or use `hive save`")
    for cause in damaged:
        yield Diagnosis(BAD, "checkpoint", cause, "`hive resume` and `hive eval` take an older one; delete this folder")
    for path in sorted(directory.crashes.glob("*.txt")):
        try:
            with open_regular(path) as file:
                first = file.readline(CRASH_LINE_BYTES).decode(errors="replace").strip()
        except OSError as error:
            first = f"its report cannot be read: {error.strerror}"
        yield Diagnosis(WARN, "crash", first, f"report: {path}")
    if directory.nan_dumps.is_dir() and (kept := [*directory.nan_dumps.iterdir()]):
        yield Diagnosis(WARN, "not finite", f"{len(kept)} gradients were NaN or infinite", f"see {directory.nan_dumps}")


def _ended(directory: RunDirectory, state: str) -> Iterator[Diagnosis]:
    resume = resume_command(directory)
    if state == "lost":
        yield Diagnosis(BAD, "state", "lost: its supervisor was killed or the machine went down", resume)
        yield from _warned(logged_warnings(directory))
        return
    if not directory.summary_file.exists():  # as on a full disk
        error = read_document(directory.failure_file, StartFailure).error.partition("\n")[0]
        yield Diagnosis(BAD, "state", f"{state} to start: {error}", f"see {directory.failure_file}")
        return
    summary = Summary.read(directory.summary_file)
    text = f"{state}: {summary.error.partition(chr(10))[0]}" if summary.error else summary.ending
    yield Diagnosis(BAD if state == "failed" else OK, "state", text, resume if state != "finished" else "")
    yield from _warned(RunWarning.of(warning) for warning in summary.warnings)
    restarts = {name: n for name, n in summary.restarts.items() if n}
    yield from (Diagnosis(WARN, name, f"was restarted {n} times", "hive logs") for name, n in restarts.items())


def _warned(warnings: Iterable[RunWarning]) -> Iterator[Diagnosis]:
    for warning in warnings:
        until = "" if warning.last_steps is None else f" to {warning.last_steps:,}"
        text = f"{warning.text} (steps {warning.first_steps:,}{until})"
        yield rated(bool(until), WARN, warning.kind, text, warning.advice)


def _live(directory: RunDirectory) -> Iterator[Diagnosis]:
    from hive.monitor.poller import poll_once

    facts = read_run_facts(directory)
    try:
        snapshot = poll_once(directory)
    except HiveError as error:
        stopped = is_alive(facts) and not isinstance(error, OtherProtocol)
        yield Diagnosis(BAD, "supervisor", str(error), f"kill -CONT {facts.pid}" if stopped else error.hint)
        return
    if snapshot.supervisor:
        yield Diagnosis(BAD, "supervisor", snapshot.supervisor, f"kill -CONT {facts.pid}")
    for check in LIVE:
        yield from check(directory, snapshot)


def _progress(directory: RunDirectory, snapshot: Snapshot) -> Iterator[Diagnosis]:
    done = f"{snapshot.env_steps:,} of {snapshot.goal_steps:,} steps"
    text, hint = f"{snapshot.state}, {done}", f"hive resume {directory.name}"
    yield rated(snapshot.state != "paused", WARN, "state", text, hint)
    yield from _warned(snapshot.warnings)
    if snapshot.bound_by and snapshot.state == "running":
        yield Diagnosis(OK, "bound by", snapshot.bound_by)


def _actors_at_work(directory: RunDirectory, snapshot: Snapshot) -> Iterator[Diagnosis]:
    for row in snapshot.actors:
        if row.state != "running":
            yield Diagnosis(WARN, row.name, f"is {row.state}", f"hive history {directory.name} {row.name}")
        elif row.since_s > STUCK_S and not row.activity.startswith(("wait", "paused", "runtime")):
            text = f"in `{row.activity}` for {row.since_s:.0f} s"
            yield Diagnosis(WARN, row.name, text, f"hive stack {directory.name} {row.name}")
        if row.restarts:
            words = f": {row.last_words}" if row.last_words else ""
            yield Diagnosis(WARN, row.name, f"was restarted {row.restarts} times{words}", "hive logs")


def _dropped(directory: RunDirectory, snapshot: Snapshot) -> Iterator[Diagnosis]:
    for name, channel in snapshot.channels.items():
        if lost := sum(channel.dropped.values()):
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in channel.dropped.items() if n)
            yield Diagnosis(WARN, name, f"{lost:,} of {channel.produced:,} messages were dropped: {reasons}")


def _disk(directory: RunDirectory, snapshot: Snapshot) -> Iterator[Diagnosis]:
    free, enough = free_disk(directory.path)
    if not enough:
        yield Diagnosis(WARN, "disk", f"{free:.1f} GiB free", FULL_DISK)


def _gpus_of_run(directory: RunDirectory, snapshot: Snapshot) -> Iterator[Diagnosis]:
    yield from gpu_findings(snapshot.gpus)


LIVE: tuple[Callable[[RunDirectory, Snapshot], Iterator[Diagnosis]], ...] = (
    *(_progress, _actors_at_work, _dropped, _gpus_of_run, _disk),
)
