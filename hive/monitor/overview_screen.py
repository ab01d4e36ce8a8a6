"""The first screen, an overview: how the run learns, how fast it is, what its actors do, and its bottleneck.

    header · return curve beside rates · topology: a line for each group and each of its channels · bound by · events

The part "topology" lists the groups and channels of the run's topology, so it includes user-defined actors and
channels. All functions draw one Snapshot into a given number of columns and lines.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from hive.monitor.chart import Drawn, chart
from hive.monitor.drawing import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    PLAIN,
    SECOND,
    TITLE,
    WARN,
    Line,
    Span,
    amount,
    bar,
    beside,
    clock,
    fitted,
    level,
    rule,
    share,
    span_of_time,
    width_of,
)
from hive.monitor.groups import main_phases, mean, missing
from hive.monitor.history import TOTALS, WINDOWS
from hive.monitor.rows import ActorRow, ChannelRow
from hive.monitor.snapshot import Snapshot
from hive.records.run_warnings import WARNING

__all__ = ["header", "overview"]

RATES = 38  # width in cells of the table of rates
NAME = 18  # width in cells of a group's name
BAR = 10  # width in cells of the bar of a group's busy share
LEAST_CHART = 5  # lines below which a chart shows nothing useful
MOST_CHART = 14  # lines above which a chart would be mostly empty
WARNINGS = 2  # warnings that are shown in full
EVENTS = 3  # lines reserved for events; more if there is room
STATE_STYLES = {"running": GOOD, "finished": GOOD, "failed": BAD, "lost": BAD}
NAMES = {"env_steps": "env steps/s", "updates": "updates/s", "episodes": "episodes/s"}


def header(snapshot: Snapshot, width: int) -> list[Line]:
    """Draw the run's name, state and progress; further lines report a silent supervisor and warnings."""
    end = snapshot.t or snapshot.started
    line: Line = [(f" {snapshot.run} ", BOLD), (f" {snapshot.state}", STATE_STYLES.get(snapshot.state, WARN))]
    line.append((f" {span_of_time(max(end - snapshot.started, 0.0))}", PLAIN))
    steps = f"   {amount(snapshot.env_steps)}"
    if snapshot.goal_steps:
        steps += f" / {amount(snapshot.goal_steps)} steps ({snapshot.env_steps / snapshot.goal_steps:.0%})"
    line.append((steps, PLAIN))
    if snapshot.state == "running" and snapshot.steps_per_s and snapshot.goal_steps:
        left = max(snapshot.goal_steps - snapshot.env_steps, 0) / snapshot.steps_per_s
        line.append((f"   left {span_of_time(left)}", PLAIN))
    if snapshot.restarts:
        line.append((f"   restarts {snapshot.restarts}", WARN))
    if snapshot.state not in ("running", "starting") and snapshot.reason:
        line.append((f"   {snapshot.reason}", DIM))
    lines = [fitted(line, width)]
    if snapshot.supervisor:
        lines.append(fitted([(f" supervisor {snapshot.supervisor}", BAD)], width))
    return [*lines, *_warnings(snapshot, width)]


def _warnings(snapshot: Snapshot, width: int) -> list[Line]:
    """Draw the warnings that hold, each in one or two lines."""
    warnings = snapshot.active_warnings
    texts: list[str] = []
    for warning in warnings[:WARNINGS]:
        texts += textwrap.wrap(warning.line, max(width - 2, 20), max_lines=2, placeholder=" …")
    if len(warnings) > WARNINGS:
        texts.append(f"and {', '.join(warning.kind for warning in warnings[WARNINGS:])}")
    return [fitted([(f" {text}", WARN)], width) for text in texts]


def overview(snapshot: Snapshot, width: int, height: int) -> list[Line]:
    """Draw the screen in at most `height` lines of `width` cells."""
    top = header(snapshot, width)
    topology = _topology(snapshot, width)
    rates = _rates(snapshot)
    sentence = _sentence(snapshot, width)
    room = height - len(top) - 2 - len(sentence)  # 2: lines of the two headings
    chart_lines = max(min(room - len(topology) - EVENTS, MOST_CHART), LEAST_CHART, len(rates))
    events = _events(snapshot, max(room - chart_lines - len(topology), 0), width)
    most = max(room - chart_lines - len(events), 0)
    if len(topology) > most:
        hidden = len(topology) - most + 1
        topology = [*topology[: max(most - 1, 0)], [(f"   … {hidden} more lines", DIM)]][:most]
    left = max(width - RATES - 1, 20)
    heading = [*fitted(rule("return (last 100 episodes)", left), left), (" ", PLAIN), *_rates_heading()]
    curve = _curve(snapshot, left, chart_lines)
    lines = [*top, fitted(heading, width), *(fitted(line, width) for line in beside(curve, rates, left + 1))]
    lines.append(rule("topology", width))
    lines += [fitted(line, width) for line in topology]
    return [*lines, *sentence, *events][:height]


def _sentence(snapshot: Snapshot, width: int) -> list[Line]:
    """Draw the sentence of `bound_by` in one or two lines."""
    head = " bound by: "
    texts = textwrap.wrap(snapshot.bound_by or "–", max(width - len(head) - 1, 20), max_lines=2, placeholder=" …")
    heads = [(head, TITLE), (" " * len(head), PLAIN)]
    return [fitted([heads[number], (text, BOLD)], width) for number, text in enumerate(texts)]


def _curve(snapshot: Snapshot, width: int, height: int) -> list[Line]:
    if not snapshot.returns:
        since = f"{span_of_time(snapshot.train_s)} since the first update"
        reason = "no metrics recorded yet" if snapshot.episodes else "no episode has ended yet"
        text = f"{reason} - {since}" if snapshot.updates else "no update yet"
        return [[], [(f"   {text}", DIM)], *([[]] * (height - 2))]
    return chart([Drawn(list(snapshot.returns), GOOD)], width, height, unit="steps")


def _rates_heading() -> Line:
    cells = "".join(f"{_window(window):>7}" for window in WINDOWS)
    return [("─ ", DIM), ("rates ", TITLE), (f"{'':─<6}{cells}", DIM)]


def _window(seconds: int) -> str:
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} m"


def _rates(snapshot: Snapshot) -> list[Line]:
    lines: list[Line] = []
    for name in TOTALS:
        rates: Mapping[int, float | None] = snapshot.rates.get(name, {})
        cells = "".join(f"{amount(rates.get(window)):>7}" for window in WINDOWS)
        lines.append([(f" {NAMES[name]:<12}", PLAIN), (f" {cells}", BOLD)])
    mean = "–" if snapshot.mean_return is None else f"{snapshot.mean_return:.1f}"
    lines.append([(" return      ", PLAIN), (f" {mean:>7}", BOLD), (f"  updates {amount(snapshot.updates)}", DIM)])
    lag_style, dropped_style = (WARN if snapshot.lag > 4 else PLAIN), (WARN if snapshot.dropped else PLAIN)
    lines.append(
        [
            (f" lag {snapshot.lag}", lag_style),
            (f"   dropped {amount(snapshot.dropped)}", dropped_style),
            (f"   cores {_cores(snapshot)}", PLAIN),
        ]
    )
    return lines + _replay(snapshot.replay)


def _replay(values: Mapping[str, float]) -> list[Line]:
    """Draw how full the replay memory is, how often a step is drawn, and the ages and priorities of drawn steps."""
    if not values.get("steps"):
        return []
    held, drawn = f"{amount(values['steps'])} ({values['fill']:.0%})", f"{values['draws_per_step']:.3g}"
    line: Line = [(" replay ", PLAIN), (held, BOLD), (f"  drawn ×{drawn}", DIM)]
    spread = f"   priorities {values['priority_share']:.0%}" if values["priority_share"] < 1 else ""
    return [line, [(f"   age {amount(values['age_steps'])} steps{spread}", DIM)]]


def _cores(snapshot: Snapshot) -> str:
    return "–" if snapshot.cores_busy is None else f"{snapshot.cores_busy:.1f}/{snapshot.cores}"


# --- the topology: groups and channels


def _topology(snapshot: Snapshot, width: int) -> list[Line]:
    if not snapshot.actors:
        text = "the actors are starting" if snapshot.state == "starting" else "no data about its actors"
        return [[(f"   {text}", DIM)]]
    lines: list[Line] = []
    drawn = set()
    for group, rows in snapshot.groups.items():
        lines.append(_group(group, rows, width))
        for name, channel in snapshot.channels.items():
            if channel.source == group:
                drawn.add(name)
                lines.append(_channel(name, channel))
        boards: Line = []
        for name, board in snapshot.boards.items():
            if board.source == group:
                version = f"v{board.version}" if board.version >= 0 else "no version yet"
                span = (f"   ▒ {name} {version} ▒▶ {', '.join(board.targets)}", SECOND)
                if boards and width_of([*boards, span]) > width:
                    lines.append(boards)
                    boards = []
                boards.append(span)
        lines += [boards] if boards else []
    lines += [_channel(name, channel) for name, channel in snapshot.channels.items() if name not in drawn]
    return lines


def _group(group: str, rows: Sequence[ActorRow], width: int) -> Line:
    """Draw ` collectors ×2   ████████▍   84%  in   3%  out   1%  env 74% policy 10%` and a cell for each actor."""
    name = f"{group} ×{len(rows)}" if len(rows) > 1 else group
    line: Line = [(f" {name:<{NAME}}", BOLD)]
    busy = mean([row.busy for row in rows])
    if busy is None:
        return [*line, (f" {', '.join(dict.fromkeys(row.state for row in rows))}", DIM)]
    line += [
        (f" {bar(busy, BAR)}", GOOD),
        (f" {share(busy):>4}", BOLD),
        (f"  in {share(mean([r.wait_in for r in rows])):>4}", PLAIN),
        (f"  out {share(mean([r.wait_out for r in rows])):>4} ", PLAIN),
        _missing(rows) or (f" {' '.join(f'{name} {share(part)}' for name, part in main_phases(rows))}", DIM),
    ]
    if 1 < len(rows) <= width - width_of(line) - 2:
        line.append((f"  {''.join(level(row.busy) for row in rows)}", SECOND))
    return line


def _missing(rows: Sequence[ActorRow]) -> Span | None:
    """Return the names and states of actors that should run and do not, at most two; None if there are none."""
    absent = missing(rows)
    if not absent:
        return None
    more = f" and {len(absent) - 2} more" if len(absent) > 2 else ""
    return f" {', '.join(f'{row.name} {row.state}' for row in absent[:2])}{more}", BAD


def _channel(name: str, channel: ChannelRow) -> Line:
    """Draw `   ══ rollouts ▆ 3/4  120/s ══▶ gradient-workers`."""
    full = channel.occupancy
    style = WARN if full is not None and full >= 0.99 and channel.carrier in ("slots", "zmq") else PLAIN
    held = f"{channel.in_flight}/{channel.capacity}" if channel.capacity else f"{channel.in_flight} held"
    rate = f"{amount(channel.rate)}/s" if channel.rate is not None else f"{amount(channel.produced)} in all"
    dash = {"slots": "══", "zmq": "╍╍"}.get(channel.carrier, "──")
    line: Line = [(f"   {dash} ", DIM), (f"{name:<11}", PLAIN), (f" {level(full)} {held:<6}", style)]
    line.append((f" {rate:>10}", PLAIN))
    if channel.targets:
        line += [(f" {dash}▶ ", DIM), (", ".join(channel.targets), PLAIN)]
    lost = sum(channel.dropped.values())
    if lost:
        reasons = ", ".join(f"{reason} {amount(n)}" for reason, n in channel.dropped.items() if n)
        line.append((f"   dropped {amount(lost)} ({reasons})", WARN))
    return line


def _events(snapshot: Snapshot, count: int, width: int) -> list[Line]:
    """Draw the last `count` entries of the event log."""
    lines: list[Line] = []
    for event in snapshot.events[len(snapshot.events) - count :] if count else ():
        kind = event.get("kind")
        style = BAD if kind in ("died", "lost", "not finite") else WARN if kind == WARNING else DIM
        who = str(event.get("actor", "supervisor"))
        text = str(event.get("text", ""))
        lines.append(fitted([(f" {clock(event.get('t', 0.0))} {who:<18} {text}", style)], width))
    return lines
