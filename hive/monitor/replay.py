"""Make the snapshot of a run without a supervisor from its directory: metrics, event log and summary.

State that was only in memory is gone: the actors' phases and shares, the occupancy of channels. Totals, curves,
accounts of channels, restarts, events and the stop reason remain. A run without a summary is lost: its supervisor was
killed, and the snapshot then quotes the last line that the supervisor logged.
"""

from __future__ import annotations

import dataclasses
import time

from hive.errors import RecordError
from hive.monitor.bound_by import bound_by
from hive.monitor.history import TOTALS, WINDOWS
from hive.monitor.rows import ActorRow, ChannelRow, helper_row
from hive.monitor.snapshot import Extras, Snapshot
from hive.records import RunDirectory, Summary, last_training_line, read_run_facts, run_state, wall_s_so_far
from hive.records.environments import without_processes
from hive.records.jsonl import last_lines
from hive.records.logs import HEADER
from hive.records.run_warnings import RunWarning, logged_warnings
from hive.records.standings import standings
from hive.records.summary import NOT_STARTED

LINES_BACK = 50  # lines at the end of the supervisor's log that are searched for one with a header


def snapshot_from_files(directory: RunDirectory, extras: Extras, goal_steps: int = 0) -> Snapshot:
    """Return the last snapshot of an ended or a lost run. Files that cannot be read leave their fields unset."""
    try:
        summary: Summary | None = Summary.read(directory.summary_file)
    except RecordError:
        summary = None
    return _ended(directory, summary, extras, goal_steps) if summary else _unsummarized(directory, extras, goal_steps)


def with_last_rows(snapshot: Snapshot, last: Snapshot) -> Snapshot:
    """Return the snapshot of an ended run with the rows of its last live snapshot, for a view that was open at its end.

    Shares, phases and counters keep their last values. States, restarts and accounts of channels are those of the end.
    """
    ended = {row.name: row for row in snapshot.actors}
    states = dict.fromkeys((row.name for row in last.actors), snapshot.state)
    actors = tuple(
        dataclasses.replace(
            row,
            state=ended[row.name].state if row.name in ended else states[row.name],
            restarts=ended[row.name].restarts if row.name in ended else row.restarts,
            last_words=ended[row.name].last_words if row.name in ended else row.last_words,
            environments=ended[row.name].environments
            if row.name in ended
            else without_processes(row.environments, snapshot.state),
            pid=0,
            activity="",
            since_s=0.0,
            cpu=None,
            memory_bytes=None,
            rate=None,
        )
        for row in last.actors
    )
    channels = {
        name: dataclasses.replace(
            row,
            carrier=last.channels[name].carrier,
            source=last.channels[name].source,
            targets=last.channels[name].targets,
            capacity=last.channels[name].capacity,
        )
        if name in last.channels
        else row
        for name, row in (snapshot.channels or last.channels).items()
    }
    return dataclasses.replace(
        snapshot,
        actors=actors,
        channels=channels,
        boards={name: dataclasses.replace(board, rate=None) for name, board in last.boards.items()},
        replay=last.replay,
        results_actor=last.results_actor,
    )


def _ended(directory: RunDirectory, summary: Summary, extras: Extras, goal_steps: int) -> Snapshot:
    whole = summary.steps_per_s
    return _with_sentence(
        Snapshot(
            run=directory.name,
            state=summary.state,
            reason=summary.stop_reason,
            env_steps=summary.env_steps,
            goal_steps=goal_steps,
            updates=summary.updates,
            episodes=summary.episodes,
            mean_return=summary.mean_return_100,
            restarts=sum(summary.restarts.values()),
            train_s=summary.train_s,
            actors=tuple(_row(name, summary.state, restarts, extras) for name, restarts in summary.restarts.items()),
            channels={
                name: ChannelRow(a["produced"], a["consumed"], a["dropped"], a["in_flight"])
                for name, a in summary.channels.items()
            },
            t=summary.ended,
            started=summary.started - summary.earlier_s,
            steps_per_s=whole,
            helpers=(helper_row("supervisor", 0, summary.state, None),),
            returns=extras.returns,
            policy_returns=extras.policy_returns,
            events=extras.events,
            warnings=tuple(RunWarning.of(warning) for warning in summary.warnings),
            policies=standings(directory),
        )
    )


def _unsummarized(directory: RunDirectory, extras: Extras, goal_steps: int) -> Snapshot:
    """Return the snapshot of a run without a summary: lost, or failed at its start when its disk was full."""
    state = "failed" if run_state(directory) == "failed" else "lost"
    last = last_training_line(directory)
    since = _last_write(directory)
    try:
        read_run_facts(directory)
        started = since - wall_s_so_far(directory)
    except RecordError:
        started = 0.0
    clock = time.strftime("%H:%M:%S", time.localtime(since))
    logged = _last_log_line(directory)
    return _with_sentence(
        Snapshot(
            run=directory.name,
            state=state,
            reason="its supervisor no longer exists" if state == "lost" else NOT_STARTED,
            env_steps=int(last.get("steps", 0)),
            goal_steps=goal_steps,
            updates=int(last.get("updates", 0)),
            episodes=int(last.get("episodes") or 0),
            mean_return=last.get("return/mean_100"),
            restarts=sum(event.get("kind") == "restarted" for event in extras.events),
            train_s=float(last.get("seconds", 0.0)),
            actors=tuple(
                _row(path.stem, state, 0, extras)
                for path in sorted(directory.logs.glob("*.log"))
                if path.stem != "supervisor"
            ),
            channels={},
            t=since,
            started=started,
            helpers=(helper_row("supervisor", 0, "gone", None),),
            returns=extras.returns,
            policy_returns=extras.policy_returns,
            events=extras.events,
            warnings=tuple(logged_warnings(directory)),
            policies=standings(directory),
            supervisor=f"gone since {clock}" + (f", its last log line: {logged}" if logged else ""),
        )
    )


def _with_sentence(snapshot: Snapshot) -> Snapshot:
    unknown: dict[int, float | None] = dict.fromkeys(WINDOWS)
    return dataclasses.replace(snapshot, bound_by=bound_by(snapshot), rates=dict.fromkeys(TOTALS, unknown))


def _row(name: str, state: str, restarts: int, extras: Extras) -> ActorRow:
    reports = [str(e.get("text", "")) for e in extras.events if e.get("kind") == "died" and e.get("actor") == name]
    return dataclasses.replace(
        helper_row(name, 0, state, None),
        restarts=restarts,
        group=name.rpartition("-")[0] or name,
        last_words=reports[-1] if reports else "",
        environments=without_processes(extras.environments.get(name, ()), state),
    )


def _last_write(directory: RunDirectory) -> float:
    """Return when the run last wrote a file, in seconds since 1970."""
    times = [directory.path.stat().st_mtime]
    for path in (directory.metrics_file, directory.events_file, *directory.logs.glob("*.log")):
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    return max(times[1:] or times)


def _last_log_line(directory: RunDirectory) -> str:
    """Return the supervisor's last line of log without its date and level."""
    for raw in reversed(last_lines(directory.log_file("supervisor"), LINES_BACK)):
        header = HEADER.fullmatch(raw.decode(errors="replace"))
        if header:
            return header[2].partition(" ")[2]  # without its level
    return ""
