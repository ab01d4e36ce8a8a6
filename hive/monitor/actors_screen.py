"""The second screen: every process of the run as a row of a table, and the detail of one actor.

The table shows as many columns as fit the width, the most informative first, and is sorted by one of them. The detail
of an actor shows how it spends its time, its exit report, its current stack (read from outside the process), its
transition history (as the supervisor recorded it) and the end of its log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hive.monitor.drawing import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    PLAIN,
    SECOND,
    SELECTED,
    TITLE,
    WARN,
    Line,
    amount,
    bar,
    fitted,
    rule,
    share,
    size,
    span_of_time,
)
from hive.monitor.rows import ActorRow
from hive.monitor.snapshot import Snapshot

__all__ = ["COLUMNS", "Inspection", "actor_detail", "actors_table", "sorted_rows"]

SLOW_S = 3.0  # seconds in one busy phase after which it is coloured
PHASES_SHOWN = 8
NARROW = 100  # width in cells below which columns are separated by one blank instead of two
REPORT_CELLS = 20  # minimum width of the column of exit reports


@dataclass(frozen=True)
class Column:
    """One column of the table. Columns with a greater `drop_rank` are left out first; rank 0 is never left out."""

    title: str
    width: int  # cells
    text: Callable[[ActorRow], str]
    order: Callable[[ActorRow], float | str]  # sort key
    drop_rank: int
    left: bool = False  # whether cells are aligned to the left


def _since(row: ActorRow) -> str:
    return span_of_time(row.since_s) if row.activity else "–"


def _rate(row: ActorRow) -> str:
    return f"{amount(row.rate)}/s" if row.rate is not None else "–"


COLUMNS = (
    Column("NAME", 18, lambda r: r.name, lambda r: r.name, 0, left=True),
    Column("STATE", 8, lambda r: r.state, lambda r: r.state, 0, left=True),
    Column("ACTIVITY", 14, lambda r: r.activity or "–", lambda r: r.activity, 0, left=True),
    Column("SINCE", 5, _since, lambda r: r.since_s, 0),
    Column("CPU", 4, lambda r: share(r.cpu), lambda r: r.cpu or 0.0, 1),
    Column("MEM", 5, lambda r: size(r.memory_bytes), lambda r: r.memory_bytes or 0, 4),
    Column("RATE", 8, _rate, lambda r: r.rate or 0.0, 3),
    Column("BUSY", 4, lambda r: share(r.busy), lambda r: r.busy or 0.0, 0),
    Column("IN", 4, lambda r: share(r.wait_in), lambda r: r.wait_in or 0.0, 0),
    Column("OUT", 4, lambda r: share(r.wait_out), lambda r: r.wait_out or 0.0, 0),
    Column("VERSION", 8, lambda r: str(r.version) if r.version is not None else "–", lambda r: r.version or 0, 5),
    Column("LAG", 4, lambda r: str(r.lag) if r.lag is not None else "–", lambda r: r.lag or 0, 2),
    Column("RST", 3, lambda r: str(r.restarts), lambda r: r.restarts, 1),
)


def sorted_rows(snapshot: Snapshot, column: int, reverse: bool) -> list[ActorRow]:
    """Return a row for each process of the run, sorted by `column`.

    column: index into `COLUMNS`; -1 keeps the order of the topology, helpers first.
    """
    rows = [*snapshot.helpers, *snapshot.actors]
    if column < 0:
        return rows[::-1] if reverse else rows
    return sorted(rows, key=lambda row: COLUMNS[column].order(row), reverse=reverse)


def actors_table(
    snapshot: Snapshot, width: int, height: int, *, column: int = -1, reverse: bool = False, selected: int = 0
) -> list[Line]:
    """Draw the table in `height` lines of `width` cells, scrolled so that the selected row is visible."""
    shown, gap = _fitting(width), _gap(width)
    rows = sorted_rows(snapshot, column, reverse)
    heading: Line = [(" ", PLAIN)]
    for index in shown:
        title = COLUMNS[index].title
        mark = ("↑" if reverse else "↓") if index == column else ""
        title = (mark + title)[: COLUMNS[index].width]
        heading.append((_cell(COLUMNS[index], title), KEY_STYLE if index == column else TITLE))
        heading.append((" " * gap, PLAIN))
    report_cells = width - sum(COLUMNS[i].width + gap for i in shown) - 1
    if report_cells >= REPORT_CELLS:
        heading.append(("EXIT REPORT", TITLE))
    reports = [] if report_cells >= REPORT_CELLS else _exit_reports(rows[selected : selected + 1])
    room = max(height - 1 - len(reports), 1)
    first = max(0, min(selected - room // 2, len(rows) - room))
    lines = [fitted(heading, width)]
    for number, row in enumerate(rows[first : first + room], first):
        line: Line = [(" ", PLAIN)]
        for index in shown:
            line += [
                (_cell(COLUMNS[index], COLUMNS[index].text(row)), _style(COLUMNS[index].title, row)),
                ("  ", PLAIN),
            ]
        if report_cells >= REPORT_CELLS:
            line.append((row.last_words, BAD))
        line = fitted(line, width)
        lines.append([(text, SELECTED) for text, _ in line] if number == selected else line)
    return [*lines, *(fitted(line, width) for line in reports)]


def _exit_reports(rows: Sequence[ActorRow]) -> list[Line]:
    """Draw exit reports below the table, where the width leaves no column for them."""
    return [[(f" exit report: {row.last_words}", BAD)] for row in rows if row.last_words]


KEY_STYLE = BOLD  # style of the heading that the table is sorted by


def _gap(width: int) -> int:
    return 1 if width < NARROW else 2


def _fitting(width: int) -> list[int]:
    """Return the indices of the columns that fit, leaving out the least informative first."""
    shown = list(range(len(COLUMNS)))
    while sum(COLUMNS[i].width + _gap(width) for i in shown) + 1 > width:
        droppable = [i for i in shown if COLUMNS[i].drop_rank]
        if not droppable:
            break
        shown.remove(max(droppable, key=lambda i: COLUMNS[i].drop_rank))
    return shown


def _cell(column: Column, text: str) -> str:
    if len(text) > column.width:
        text = text[: column.width - 1] + "…"
    return text.ljust(column.width) if column.left else text.rjust(column.width)


def _style(title: str, row: ActorRow) -> str:
    if title == "STATE":
        return {"running": GOOD, "finished": DIM}.get(row.state, BAD if row.state in ("failed", "stopped") else WARN)
    if title in ("ACTIVITY", "SINCE") and row.since_s >= SLOW_S and row.kinds.get(row.activity) == "busy":
        return BAD
    if (title == "RST" and row.restarts) or (title == "LAG" and (row.lag or 0) > 4):
        return WARN
    return DIM if title in ("VERSION", "MEM") else PLAIN


# --- one actor


@dataclass(frozen=True)
class Inspection:
    """The supervisor's reply about one actor; `error` is set where there is none."""

    actor: str
    stack: str = ""  # of all threads, innermost call first
    transitions: tuple[str, ...] = ()  # transition history, oldest first
    error: str = ""


def actor_detail(
    row: ActorRow, inspected: Inspection | None, log: Sequence[str], width: int, height: int, *, scrolled: int = 0
) -> tuple[list[Line], int]:
    """Draw one actor; return (at most `height` lines from line `scrolled` on, the largest useful `scrolled`)."""
    lines = [*_facts(row, width), *_time(row, width)]
    counters = [f"{name} {amount(value)}" for name, value in row.counters.items() if ":" not in name]
    if counters:
        lines += [rule("counters", width), [(f"  {'   '.join(counters)}", PLAIN)]]
    lines.append(rule("stack, innermost call first", width))
    if inspected is None or inspected.actor != row.name:
        lines.append([("  waiting for the reply …", DIM)])
    elif inspected.error:
        lines.append([(f"  {inspected.error}", BAD)])
    else:
        stack = inspected.stack.splitlines() or ["no stack: its process is stopped, gone, or the supervisor's"]
        lines += [[(f"  {text}", PLAIN)] for text in stack]
        lines.append(rule("transition history, newest first", width))
        lines += [[(f"  {text}", PLAIN)] for text in reversed(inspected.transitions)]
    lines.append(rule("log", width))
    lines += [[(f"  {text}", PLAIN)] for text in log] or [[("  nothing yet", DIM)]]
    most = max(len(lines) - height, 0)
    begin = min(scrolled, most)
    return [fitted(line, width) for line in lines[begin : begin + height]], most


def _facts(row: ActorRow, width: int) -> list[Line]:
    doing: Line = [(f" {row.name} ", BOLD), (f" {row.state}", _style("STATE", row))]
    if row.activity:
        doing.append((f"  in `{row.activity}` since {span_of_time(row.since_s)}", _style("SINCE", row)))
    facts = [f"pid {row.pid}", f"cpu {share(row.cpu)}", f"memory {size(row.memory_bytes)}"]
    if row.version is not None:
        facts += [f"version {row.version}", f"lag {row.lag}"]
    facts.append(f"restarts {row.restarts}")
    if row.rate is not None:
        facts.append(f"{amount(row.rate)} {row.rate_of}/s")
    lines: list[Line] = [doing, [(f" {' · '.join(facts)}", PLAIN)]]
    if row.last_words:
        lines.append([(f" exit report: {row.last_words}", BAD)])
    return lines


def _time(row: ActorRow, width: int) -> list[Line]:
    """Draw the phases that take most of the actor's time."""
    if not row.phases:
        return []
    lines = [rule("time", width)]
    for phase, part in sorted(row.phases.items(), key=lambda item: -item[1])[:PHASES_SHOWN]:
        kind = row.kinds.get(phase, "")
        style = GOOD if kind == "busy" else SECOND if kind == "runtime" else DIM
        lines.append([(f"  {phase:<24}", PLAIN), (bar(part, 20), style), (f" {share(part):>4}  {kind}", DIM)])
    return lines
