"""A run that has no supervisor any more, from its directory: metrics, diary, summary.

What only lived in memory is gone: what each actor was doing, its shares, the occupancy of channels. Totals, curves,
accounts of channels, restarts, events and the reason of the end are there. A run without a summary is lost: its
supervisor was killed, and its last words are what it logged last.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from hive.errors import RecordError
from hive.monitor.bound_by import bound_by
from hive.monitor.history import TOTALS, WINDOWS
from hive.monitor.rows import ActorRow, ChannelRow, helper_row
from hive.monitor.snapshot import Extras, Snapshot
from hive.records import RunDirectory, Summary, last_training_line, read_run_facts
from hive.records.jsonl import last_lines
from hive.records.logs import HEADER

__all__ = ["replayed"]

LINES_BACK = 50  # of the supervisor's log, to find its last sign


def replayed(directory: RunDirectory, extras: Extras, goal_steps: int = 0) -> Snapshot:
    """The last snapshot of an ended or a lost run. Raises nothing: what cannot be read is not known."""
    try:
        summary: Summary | None = Summary.read(directory.summary_file)
    except RecordError:
        summary = None
    return _ended(directory, summary, extras, goal_steps) if summary else _lost(directory, extras, goal_steps)


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
            actors=tuple(
                _row(name, summary.state, restarts, extras.events) for name, restarts in summary.restarts.items()
            ),
            channels={
                name: ChannelRow(a["produced"], a["consumed"], a["dropped"], a["in_flight"])
                for name, a in summary.channels.items()
            },
            t=summary.started + summary.wall_s,
            started=summary.started,
            steps_per_s=whole,
            helpers=(helper_row("supervisor", 0, summary.state, None),),
            returns=extras.returns,
            events=extras.events,
        )
    )


def _lost(directory: RunDirectory, extras: Extras, goal_steps: int) -> Snapshot:
    last = last_training_line(directory)
    since = _last_sign(directory)
    try:
        started = read_run_facts(directory).started
    except RecordError:
        started = 0.0
    clock = time.strftime("%H:%M:%S", time.localtime(since))
    words = _last_words(directory)
    return _with_sentence(
        Snapshot(
            run=directory.name,
            state="lost",
            reason="its supervisor is gone",
            env_steps=int(last.get("steps", 0)),
            goal_steps=goal_steps,
            updates=int(last.get("updates", 0)),
            episodes=int(last.get("episodes") or 0),
            mean_return=last.get("return/mean_100"),
            restarts=sum(event.get("kind") == "restarted" for event in extras.events),
            train_s=float(last.get("seconds", 0.0)),
            actors=tuple(
                _row(path.stem, "lost", 0, extras.events)
                for path in sorted(directory.logs.glob("*.log"))
                if path.stem != "supervisor"
            ),
            channels={},
            t=since,
            started=started,
            helpers=(helper_row("supervisor", 0, "gone", None),),
            returns=extras.returns,
            events=extras.events,
            supervisor=f"gone since {clock}" + (f", last words: {words}" if words else ""),
        )
    )


def _with_sentence(snapshot: Snapshot) -> Snapshot:
    unknown: dict[int, float | None] = dict.fromkeys(WINDOWS)
    return dataclasses.replace(snapshot, bound_by=bound_by(snapshot), rates=dict.fromkeys(TOTALS, unknown))


def _row(name: str, state: str, restarts: int, events: tuple[Mapping[str, Any], ...]) -> ActorRow:
    words = [str(e.get("text", "")) for e in events if e.get("kind") == "died" and e.get("actor") == name]
    return ActorRow(
        name=name,
        pid=0,
        state=state,
        restarts=restarts,
        activity="",
        since_s=0.0,
        busy=None,
        wait_in=None,
        wait_out=None,
        version=None,
        lag=None,
        group=name.rpartition("-")[0] or name,
        last_words=words[-1] if words else "",
    )


def _last_sign(directory: RunDirectory) -> float:
    """When anything of the run was written last, seconds since 1970."""
    times = [directory.path.stat().st_mtime]
    for path in (directory.metrics_file, directory.events_file, *directory.logs.glob("*.log")):
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    return max(times[1:] or times)


def _last_words(directory: RunDirectory) -> str:
    """What the supervisor logged last, without date and name."""
    for raw in reversed(last_lines(directory.log_file("supervisor"), LINES_BACK)):
        header = HEADER.fullmatch(raw.decode(errors="replace"))
        if header:
            return header[2].partition(" ")[2]  # without its level
    return ""
