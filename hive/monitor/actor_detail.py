"""The detail of one actor: how it spends its time, its exit report, its environments, its stack, its history, its log.

The stack is read from outside the process, and the transition history is as the supervisor recorded it; both come from
the supervisor on request (`ActorInspection`). An ended run has neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hive.monitor.drawing import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    PLAIN,
    SECOND,
    Spans,
    amount,
    bar,
    counted,
    duration,
    printable_line,
    rule,
    share,
    size,
)
from hive.monitor.environments import ENVIRONMENTS, environments_text
from hive.monitor.rows import ActorRow
from hive.monitor.tables import table_lines
from hive.records.environments import EnvironmentRow
from hive.table import lay_out

PHASES_SHOWN = 8
TROUBLED_SHOWN = 4  # environments in the summary, which the end of the log shares
KINDS = {"wait_in": "waits for input", "wait_out": "waits for room", "runtime": "hive itself"}


@dataclass(frozen=True)
class ActorInspection:
    """The supervisor's reply about an actor, or the reason why there is none."""

    actor: str
    stack: str = ""
    transitions: Sequence[str] = ()
    error: str = ""


def actor_detail(row: ActorRow, inspected: ActorInspection | None, log: Sequence[str], width: int) -> list[Spans]:
    """Draw one actor in lines whose headings are `width` cells wide. inspected: None while the reply is awaited."""
    lines = [*_state(row, width), *_environments(row, row.environments, width)]
    lines.append(rule("stack, innermost call first", width))
    if inspected is None:
        lines.append([("  waiting for the reply …", DIM)])
    elif inspected.error:
        lines.append([(f"  {inspected.error}", BAD)])
    else:
        stack = inspected.stack.splitlines() or ["no stack: its process is stopped, gone, or the supervisor's"]
        lines += [[(f"  {text}", PLAIN)] for text in stack]
        lines.append(rule("transition history, newest first", width))
        lines += [[(f"  {text}", PLAIN)] for text in reversed(inspected.transitions)]
    return [printable_line(line) for line in [*lines, *_log(log, width)]]


def actor_summary(row: ActorRow, log: Sequence[str], width: int, height: int) -> list[Spans]:
    """Draw what is known about an actor without a request, in at most `height` lines: the end of its log comes last."""
    troubled = [one for one in row.environments if one.failures or one.down][:TROUBLED_SHOWN]
    lines = [*_state(row, width), *_environments(row, troubled, width)]
    room = height - len(lines) - 1
    if room > 0:
        lines += _log(log[-room:], width)
    return [printable_line(line) for line in lines[:height]]


def _state(row: ActorRow, width: int) -> list[Spans]:
    lines = [*_facts(row), *_time(row, width)]
    counters = [f"{_words(name)} {amount(value)}" for name, value in row.counters.items() if ":" not in name]
    if counters:
        lines += [rule("counters", width), [(f"  {'   '.join(counters)}", PLAIN)]]
    return lines


def _environments(row: ActorRow, shown: Sequence[EnvironmentRow], width: int) -> list[Spans]:
    """Draw the environments that processes step for the actor: all in one line, and some of them one by one."""
    if not row.environments:
        return []
    lines: list[Spans] = [rule("environments", width), [(f" {environments_text(row.environments)}", PLAIN)]]
    named = {str(one.index): one for one in shown}
    return [*lines, *table_lines(lay_out(ENVIRONMENTS, named, width - 1))] if named else lines


def _log(log: Sequence[str], width: int) -> list[Spans]:
    lines: list[Spans] = [[(f"  {text}", PLAIN)] for text in log] or [[("  nothing yet", DIM)]]
    return [rule("log", width), *lines]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _facts(row: ActorRow) -> list[Spans]:
    doing: Spans = [
        (f" {row.name} ", BOLD),
        (f" {row.state}", GOOD if row.state in ("running", "finished") else BAD),
    ]
    if row.activity:
        doing.append((f"  in `{row.activity}` since {duration(row.since_s)}", PLAIN))
    facts = [f"pid {row.pid}"] if row.pid else []
    facts += [f"cpu {share(row.cpu)}", f"memory {size(row.memory_bytes)}"] if row.memory_bytes is not None else []
    if row.version is not None:
        facts += [f"version {row.version}", f"lag {row.lag}"]
    facts.append(counted(row.restarts, "restart"))
    if row.rate is not None:
        facts.append(f"{amount(row.rate)} {_words(row.rate_of)}/s")
    lines: list[Spans] = [doing, [(f" {' · '.join(facts)}", PLAIN)]]
    if row.last_words:
        lines.append([(f" exit report: {row.last_words}", BAD)])
    return lines


def _time(row: ActorRow, width: int) -> list[Spans]:
    """Draw the phases that take most of the actor's time."""
    if not row.phases:
        return []
    lines = [rule("time", width)]
    for phase, part in sorted(row.phases.items(), key=lambda item: -item[1])[:PHASES_SHOWN]:
        kind = row.kinds.get(phase, "")
        style = GOOD if kind == "busy" else SECOND if kind == "runtime" else DIM
        lines.append(
            [(f"  {phase:<24}", PLAIN), (bar(part, 20), style), (f" {share(part):>4}  {KINDS.get(kind, kind)}", DIM)]
        )
    return lines
