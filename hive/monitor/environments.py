"""Environments that are stepped by processes, in words: in the row of their actor, one by one, and in `bound_by`.

16 envs · 2 failures · median 0.12 ms · worst 400 ms       the row of a collector
env 3 is being restarted                                   environments that take no steps now
env 3 takes 5 times the median                             one that delays the others of its collector
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from hive.monitor.drawing import BAD, BOLD, DIM, GOOD, WARN, amount, counted
from hive.records.environments import (
    LEFT_OUT,
    RESETTING,
    RUNNING,
    STARTING,
    EnvironmentRow,
    median_step_s,
    worst_step_s,
)
from hive.table import Column, TableCell

SLOW = 3.0  # times the median that the steps of an environment take which is named as slow
MOST_NAMED = 2  # environments that are named together; more are counted


def step_text(seconds: float | None) -> str:
    """Return the time of a step in three digits: `0.12 ms`, `400 ms`, `2.5 s`; "–" for None."""
    if seconds is None:
        return "–"
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{amount(seconds)} s"


def failures(rows: Sequence[EnvironmentRow]) -> int:
    return sum(row.failures for row in rows)


def running_text(rows: Sequence[EnvironmentRow]) -> str:
    """Return how many environments run, and of how many if they are not all: `16`, `15/16`; "" without any."""
    running = sum(row.state == RUNNING for row in rows)
    up = any(row.down or row.state in (RUNNING, LEFT_OUT) for row in rows)  # else their actor has no process
    return "" if not rows else str(len(rows)) if running == len(rows) or not up else f"{running}/{len(rows)}"


def environments_text(rows: Sequence[EnvironmentRow]) -> str:
    """Return the environments of an actor in one line; "" without any."""
    if not rows:
        return ""
    failed = counted(failures(rows), "failure")
    steps = f"median {step_text(median_step_s(rows))} · worst {step_text(worst_step_s(rows))}"
    return f"{running_text(rows)} envs · {failed} · {steps}"


def down_text(rows: Sequence[EnvironmentRow]) -> str:
    """Say which environments take no steps now: `env 3 is being restarted`; "" if there is none."""
    down = sorted((row for row in rows if row.down), key=_doing)
    parts = []
    for doing, group in groupby(down, key=_doing):
        same = [*group]
        names = " and ".join(row.name for row in same) if len(same) <= MOST_NAMED else f"{len(same)} envs"
        parts.append(f"{names} {'is' if len(same) == 1 else 'are'} {doing}")
    return ", ".join(parts)


def all_down(rows: Sequence[EnvironmentRow]) -> bool:
    """Return whether an actor waits for its environments: some will run again, and none runs now."""
    return any(row.down for row in rows) and not any(row.state == RUNNING for row in rows)


def _doing(row: EnvironmentRow) -> str:
    return "being restarted" if row.incarnation else row.state


def slowness(rows: Sequence[EnvironmentRow]) -> float:
    """Return the longest median step of the environments, in multiples of their median; 0 without steps."""
    running = [row for row in rows if row.state == RUNNING]
    median = median_step_s(running)
    return _slowest_s(_slowest(running)) / median if median and median > 0 else 0.0


def slow_text(rows: Sequence[EnvironmentRow]) -> str:
    """Say which environment of an actor takes much longer than the others: `env 3 takes 5 times the median`."""
    times = slowness(rows)
    slowest = _slowest([row for row in rows if row.state == RUNNING]) if times >= SLOW else None
    return f"{slowest.name} takes {times:,.0f} times the median" if slowest else ""


def _slowest(rows: Sequence[EnvironmentRow]) -> EnvironmentRow | None:
    return max(rows, key=_slowest_s, default=None)


def _slowest_s(row: EnvironmentRow | None) -> float:
    return (row.median_step_s or 0.0) if row else 0.0


def _state(row: EnvironmentRow) -> TableCell:
    styles = {RUNNING: GOOD, STARTING: WARN, RESETTING: WARN, LEFT_OUT: BAD}
    return TableCell(row.state, styles.get(row.state, DIM))


# A table of the environments of one actor.
ENVIRONMENTS: tuple[Column[EnvironmentRow], ...] = (
    Column("ENV", lambda r: TableCell(str(r.index), BOLD), least=4),
    Column("STATE", _state, left=True, least=9),
    Column("PID", lambda r: TableCell(str(r.pid) if r.pid else "–", DIM), 4, least=7),
    Column("RESTARTS", lambda r: TableCell(str(r.incarnation), WARN if r.incarnation else DIM), 3),
    Column("FAILURES", lambda r: TableCell(str(r.failures), WARN if r.failures else DIM), 1),
    Column("STEPS", lambda r: TableCell(amount(r.steps)), 2, least=6),
    Column("MEDIAN", lambda r: TableCell(step_text(r.median_step_s)), least=8),
    Column("WORST", lambda r: TableCell(step_text(r.worst_step_s)), least=8),
    Column("LAST FAILURE", lambda r: TableCell(r.last_failure, BAD), 5, rest=True),
)
