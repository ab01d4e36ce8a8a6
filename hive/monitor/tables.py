"""The three tables of the monitor (groups of actors, channels, actors): their columns and rows (hive.table)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hive.monitor.drawing import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    PLAIN,
    SECOND,
    TITLE,
    WARN,
    Spans,
    amount,
    bar,
    duration,
    level,
    share,
    size,
)
from hive.monitor.environments import down_text, failures, running_text, step_text
from hive.monitor.rows import ActorRow, BoardRow, ChannelRow, main_phases, mean, missing
from hive.monitor.snapshot import Snapshot
from hive.records.environments import median_step_s, worst_step_s
from hive.table import GAP, Column, Table, TableCell

RECENT_S = 10.0  # seconds for which a restart colors the row of its group: ten updates of the screen
SLOW_S = 3.0  # seconds in one busy phase after which it is colored
BAR = 10  # width in cells of the bar of a group's busy share
MOST_LEVELS = 64  # actors of a group that have a cell each


def table_lines(table: Table, *, indent: int = 1) -> list[Spans]:
    """Draw the table as text: a line of titles, and one for each row."""
    lines: list[Spans] = [[(" " * indent, PLAIN), ((" " * GAP).join(table.titles), TITLE)]]
    for row in table.rows.values():
        line: Spans = [(" " * indent, PLAIN)]
        for cell in row:
            line += [(cell.text, cell.style), (" " * GAP, PLAIN)]
        lines.append(line)
    return lines


# --- groups of actors


@dataclass(frozen=True)
class ActorGroup:
    """The actors of one group, and the exit of one of them in the last `RECENT_S` seconds, if there was one."""

    name: str
    rows: Sequence[ActorRow]
    exit_text: str = ""
    exit_s: float = 0.0  # seconds since this exit

    @property
    def missing(self) -> list[ActorRow]:
        """The actors that should run and do not."""
        return missing(self.rows)

    def mean(self, name: str) -> float | None:
        return mean([getattr(row, name) for row in self.rows])


def groups_of(snapshot: Snapshot) -> dict[str, ActorGroup]:
    """Return the groups in the order of the topology."""
    recent = [
        event
        for event in snapshot.events
        if event.get("kind") == "died"
        and isinstance(t := event.get("t"), int | float)
        and 0 <= snapshot.t - t < RECENT_S
    ]
    groups = {}
    for name, rows in snapshot.groups.items():
        names = {row.name for row in rows} | {row.process for row in rows}
        exits = [event for event in recent if event.get("actor") in names]
        last = (_cause(exits[-1]), snapshot.t - exits[-1]["t"]) if exits else ("", 0.0)
        groups[name] = ActorGroup(name, rows, *last)
    return groups


def _cause(event: Mapping[str, object]) -> str:
    """Return the actor and the cause of its exit, without what it was doing: `collector-0: killed by SIGKILL`."""
    text = str(event.get("text", ""))
    cause = text.partition(": ")[2].partition(";")[0]
    return f"{event.get('actor')}: {cause}" if cause else text


def _row_style(group: ActorGroup) -> str:
    """Return the style of a whole row: an actor is missing, or one has exited a moment ago."""
    return BAD if group.missing and _live(group) else WARN if group.exit_text else ""


def _live(group: ActorGroup) -> bool:
    """Return whether the group's run is live: the rows of an ended run all have the state of the run."""
    return any(row.state not in ("stopped", "failed", "lost") or row.pid for row in group.rows)


def _of_group(text: Callable[[ActorGroup], str], style: str = PLAIN) -> Callable[[ActorGroup], TableCell]:
    return lambda group: TableCell(text(group), _row_style(group) or style)


def _note(group: ActorGroup) -> TableCell:
    """Name missing actors, else the last exit, else environments that are down, else the phases that take most time."""
    if (absent := group.missing) and _live(group):
        more = f" and {len(absent) - 2} more" if len(absent) > 2 else ""
        return TableCell(", ".join(f"{row.name} {row.state}" for row in absent[:2]) + more, BAD)
    if group.exit_text:
        return TableCell(f"{duration(group.exit_s)} ago {group.exit_text}", WARN)
    if down := down_text([one for row in group.rows for one in row.environments]):
        return TableCell(down, WARN)
    if group.mean("busy") is None:
        return TableCell(", ".join(dict.fromkeys(row.state for row in group.rows)), DIM)
    return TableCell("  ".join(f"{name} {share(part)}" for name, part in main_phases(group.rows)), DIM)


def _levels(group: ActorGroup) -> str:
    """Draw the busy share of each actor in one cell."""
    return "".join(level(row.busy) for row in group.rows[:MOST_LEVELS]) if len(group.rows) > 1 else ""


def _bar(group: ActorGroup) -> str:
    busy = group.mean("busy")
    return "" if busy is None else bar(busy, BAR)


GROUPS: tuple[Column[ActorGroup], ...] = (
    Column("GROUP", _of_group(lambda g: g.name, BOLD), left=True, least=16),
    Column("ACTORS", _of_group(lambda g: str(len(g.rows))), 3),
    Column("RESTARTS", _of_group(lambda g: str(sum(row.restarts for row in g.rows))), 5),
    Column("BUSY", _of_group(lambda g: share(g.mean("busy")), BOLD), least=4),
    Column("", _of_group(_bar, GOOD), 4, left=True, least=BAR),
    Column("IN", _of_group(lambda g: share(g.mean("wait_in"))), 1, least=4),
    Column("OUT", _of_group(lambda g: share(g.mean("wait_out"))), 1, least=4),
    Column("EACH", _of_group(_levels, SECOND), 6, left=True),
    Column("WORK", _note, 2, rest=True),
)


# --- channels and boards


class Edge(NamedTuple):
    """A channel or a board, and its name."""

    name: str
    row: ChannelRow | BoardRow


def channels_of(snapshot: Snapshot) -> dict[str, Edge]:
    """Return the channels and boards, each after the group that fills it. A key is a name that begins with its kind."""
    edges: dict[str, Edge] = {f"channel {name}": Edge(name, row) for name, row in snapshot.channels.items()}
    edges |= {f"board {name}": Edge(name, row) for name, row in snapshot.boards.items()}
    order = {name: number for number, name in enumerate(snapshot.groups)}
    return dict(sorted(edges.items(), key=lambda item: order.get(item[1].row.source, len(order))))


def _held(channel: Edge) -> TableCell:
    row = channel.row
    if isinstance(row, BoardRow):
        return TableCell(
            f"v{row.version}" if row.version is not None and row.version >= 0 else "no version yet", SECOND
        )
    full = row.occupancy
    style = WARN if full is not None and full >= 0.99 and row.carrier in ("slots", "zmq") else PLAIN
    return TableCell(
        f"{level(full)} {row.in_flight}/{row.capacity}" if row.capacity else f"{row.in_flight} held", style
    )


def _carried(channel: Edge) -> TableCell:
    row = channel.row
    if row.rate is not None:
        return TableCell(f"{amount(row.rate)}/s")
    return TableCell("–" if isinstance(row, BoardRow) else f"{amount(row.produced)} in all")


def _dropped(channel: Edge) -> TableCell:
    lost = {} if isinstance(channel.row, BoardRow) else {why: n for why, n in channel.row.dropped.items() if n}
    if not lost:
        return TableCell("")
    reasons = ", ".join(f"{reason} {amount(n)}" for reason, n in lost.items())
    return TableCell(f"{amount(sum(lost.values()))} ({reasons})", WARN)


CHANNELS: tuple[Column[Edge], ...] = (
    Column("CHANNEL", lambda c: TableCell(c.name), left=True, least=16),
    Column("BY", lambda c: TableCell("board" if isinstance(c.row, BoardRow) else c.row.carrier, DIM), 3, left=True),
    Column("FROM", lambda c: TableCell(c.row.source, DIM), 4, left=True),
    Column("TO", lambda c: TableCell(", ".join(c.row.targets), DIM), 2, left=True),
    Column("HELD", _held, least=6),
    Column("RATE", _carried, least=8),
    Column("DROPPED", _dropped, 1, rest=True),
)


# --- actors


def _since(row: ActorRow) -> TableCell:
    slow = row.kinds.get(row.activity) in ("busy", "runtime") and row.since_s >= SLOW_S
    return TableCell(duration(row.since_s) if row.activity else "–", BAD if slow else PLAIN)


def _state(row: ActorRow) -> TableCell:
    alive = {"running": GOOD, "draining": WARN, "finished": DIM, "paused": WARN}
    return TableCell(row.state, alive.get(row.state, BAD if row.group else DIM))


def _environments(row: ActorRow) -> TableCell:
    text = running_text(row.environments)
    return TableCell(text, WARN if "/" in text else DIM)


def _failures(row: ActorRow) -> TableCell:
    failed = failures(row.environments)
    return TableCell(str(failed) if row.environments else "", WARN if failed else DIM)


def _median(row: ActorRow) -> float | None:
    return median_step_s(row.environments)


def _worst(row: ActorRow) -> float | None:
    return worst_step_s(row.environments)


def _restarts(row: ActorRow) -> TableCell:
    return TableCell(str(row.restarts), WARN if row.restarts else DIM)


ACTORS: tuple[Column[ActorRow], ...] = (
    Column("NAME", lambda r: TableCell(r.name, BOLD), left=True, least=12, order=lambda r: r.name),
    Column("STATE", _state, left=True, least=8, order=lambda r: r.state),
    Column("ACTIVITY", lambda r: TableCell(r.activity or "–"), 1, left=True, least=14, order=lambda r: r.activity),
    Column("SINCE", _since, 4, least=6, order=lambda r: r.since_s),
    Column("CPU", lambda r: TableCell(share(r.cpu)), 3, least=4, order=lambda r: r.cpu or 0.0),
    Column("MEMORY", lambda r: TableCell(size(r.memory_bytes)), 8, order=lambda r: r.memory_bytes or 0),
    Column(
        "RATE",
        lambda r: TableCell(f"{amount(r.rate)}/s" if r.rate is not None else "–"),
        7,
        least=8,
        order=lambda r: r.rate or 0.0,
    ),
    Column("BUSY", lambda r: TableCell(share(r.busy), BOLD), 0, least=4, order=lambda r: r.busy or 0.0),
    Column("IN", lambda r: TableCell(share(r.wait_in)), 2, least=4, order=lambda r: r.wait_in or 0.0),
    Column("OUT", lambda r: TableCell(share(r.wait_out)), 2, least=4, order=lambda r: r.wait_out or 0.0),
    Column(
        "VERSION",
        lambda r: TableCell(str(r.version) if r.version is not None else "–"),
        9,
        order=lambda r: r.version or 0,
    ),
    Column("LAG", lambda r: TableCell(str(r.lag) if r.lag is not None else "–"), 6, order=lambda r: r.lag or 0),
    Column("RESTARTS", _restarts, 5, order=lambda r: r.restarts),
    Column("ENVS", _environments, 4, order=lambda r: len(r.environments)),
    Column("FAILURES", _failures, 4, order=lambda r: failures(r.environments)),
    Column("MEDIAN", lambda r: TableCell(step_text(_median(r))), 6, least=8, order=lambda r: _median(r) or 0.0),
    Column("WORST", lambda r: TableCell(step_text(_worst(r))), 5, least=8, order=lambda r: _worst(r) or 0.0),
    Column("PID", lambda r: TableCell(str(r.pid) if r.pid else "–", DIM), 10, least=7, order=lambda r: r.pid),
    Column(
        "EXIT REPORT",
        lambda r: TableCell(r.last_words.removeprefix(f"{r.name} "), BAD),
        7,
        rest=True,
        order=lambda r: r.last_words,
    ),
)


def sorted_rows(snapshot: Snapshot, column: int, reverse: bool) -> dict[str, ActorRow]:
    """Return a row for each process of the run by its name, sorted by `column`.

    column: index into `ACTORS`; -1 keeps the order of the topology, helpers first.
    """
    rows = [*snapshot.helpers, *snapshot.actors]
    order = ACTORS[column].order if column >= 0 else None
    if order is not None:
        rows = sorted(rows, key=order, reverse=reverse)
    elif reverse:
        rows = rows[::-1]
    return {row.name: row for row in rows}
