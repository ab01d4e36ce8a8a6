"""The content of the overview: how the run learns, how fast it is, what its actors do, and its bottleneck.

    header · return curve beside rates · groups of actors · channels and boards · bound by · events

Consecutive checkpoints are one line of the events, so that rarer ones stay in sight.

Groups and channels are those of the run's topology, so they include user-defined actors and channels. The terminal UI
puts these parts into widgets (hive.monitor.terminal.overview_pane); `overview` prints them all, one below the other.
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
    Spans,
    amount,
    clock,
    counted,
    duration,
    fitted,
    printable_line,
    rule,
    width_of,
)
from hive.monitor.history import TOTALS, WINDOWS
from hive.monitor.snapshot import Snapshot
from hive.monitor.tables import CHANNELS, GROUPS, channels_of, groups_of, table_lines
from hive.records.return_text import return_text
from hive.records.run_warnings import WARNING
from hive.records.standings import returns_text
from hive.table import lay_out

CURVE = 8  # lines of the curve that `overview` prints
EVENTS = 5  # events that `overview` prints
SAVED = "saved"  # the kind of the event of a checkpoint
WARNINGS = 2  # warnings that are shown in full
STATE_STYLES = {"running": GOOD, "finished": GOOD, "failed": BAD, "lost": BAD}
NAMES = {"env_steps": "env steps/s", "updates": "updates/s", "episodes": "episodes/s"}


def header(snapshot: Snapshot, width: int, *, readonly: bool = False) -> list[Spans]:
    """Draw the run's name, state and progress; further lines report a silent supervisor, hosts and warnings.

    Where the line is too long, the number of steps and then the time since the start are left out.
    """
    line, steps, took = _progress(snapshot), _steps(snapshot), _duration(snapshot)
    end: Spans = [("   readonly", WARN)] if readonly else []
    if snapshot.state not in ("running", "starting") and snapshot.reason:
        by = "by " if snapshot.reason.startswith("hive ") else ""  # a command ended the run
        end.append((f"   {by}{snapshot.reason}", DIM))
    name: Spans = [(f" {snapshot.run} ", BOLD), (f" {snapshot.state}", STATE_STYLES.get(snapshot.state, WARN))]
    forms = ([*name, *took, *steps, *line, *end], [*name, *took, *line, *end], [*name, *line, *end])
    lines = [fitted(next((form for form in forms if width_of(form) <= width), forms[-1]), width)]
    if snapshot.supervisor:
        lines.append(fitted([(f" supervisor {snapshot.supervisor}", BAD)], width))
    hosts = [fitted([(f" {host.line}", PLAIN if host.joined else WARN)], width) for host in snapshot.hosts]
    gpus = [fitted([(f" gpu {number}: {gpu}", PLAIN)], width) for number, gpu in enumerate(snapshot.gpus)]
    return [*lines, *gpus, *hosts, *_warnings(snapshot, width)]


def _duration(snapshot: Snapshot) -> Spans:
    """Draw how long the run takes or took; nothing where the files of a lost run lack its start."""
    end = snapshot.t or snapshot.started
    return [(f" {duration(max(end - snapshot.started, 0.0))}", PLAIN)] if snapshot.started else []


def _steps(snapshot: Snapshot) -> Spans:
    goal = f" / {amount(snapshot.goal_steps)}" if snapshot.goal_steps else ""
    return [(f"   {amount(snapshot.env_steps)}{goal} steps", PLAIN)]


def _progress(snapshot: Snapshot) -> Spans:
    """Draw the share of the steps that is done, the time left and the number of restarts."""
    line: Spans = []
    if snapshot.goal_steps:
        line.append((f"   {snapshot.env_steps / snapshot.goal_steps:.0%}", PLAIN))
    if snapshot.state == "running" and snapshot.steps_per_s and snapshot.goal_steps:
        left = max(snapshot.goal_steps - snapshot.env_steps, 0) / snapshot.steps_per_s
        line.append((f"   {duration(left)} left", PLAIN))
    if snapshot.restarts:
        line.append((f"   {counted(snapshot.restarts, 'restart')}", WARN))
    return line


def _warnings(snapshot: Snapshot, width: int) -> list[Spans]:
    """Draw the warnings that hold, each in one or two lines."""
    warnings = snapshot.active_warnings
    texts: list[str] = []
    for warning in warnings[:WARNINGS]:
        texts += textwrap.wrap(warning.line, max(width - 2, 20), max_lines=2, placeholder=" …")
    if len(warnings) > WARNINGS:
        texts.append(f"and {', '.join(warning.kind for warning in warnings[WARNINGS:])}")
    return [fitted([(f" {text}", WARN)], width) for text in texts]


def sentence(snapshot: Snapshot, width: int) -> list[Spans]:
    """Draw the sentence of `bound_by` in at most three lines."""
    head = " bound by: "
    texts = textwrap.wrap(snapshot.bound_by or "–", max(width - len(head) - 1, 20), max_lines=3, placeholder=" …")
    indent = (" " * len(head), PLAIN)
    return [[indent if number else (head, TITLE), (text, BOLD)] for number, text in enumerate(texts)]


def curve_lines(snapshot: Snapshot, width: int, height: int) -> list[Spans]:
    """Draw the return of the last 100 episodes, or the reason why there is none yet."""
    if not snapshot.returns:
        since = f"{duration(snapshot.train_s)} since the first update"
        reason = "no metrics recorded yet" if snapshot.episodes else "no episode has ended yet"
        text = f"{reason} - {since}" if snapshot.updates else "no update yet"
        return [[], [(f"   {text}", DIM)]]
    others = [Drawn(list(points), SECOND) for points in snapshot.policy_returns.values()]
    return chart([Drawn(list(snapshot.returns), GOOD), *others], width, height, unit="steps")


def curve_title(snapshot: Snapshot) -> Spans:
    """Return the heading of the curve; it names the policies in the colors of their curves."""
    title: Spans = [("return (last 100 episodes)", DIM)]
    for number, one in enumerate(snapshot.policies):
        title.append((f" {one.name}", SECOND if number else GOOD))
    return printable_line(title)


def rates(snapshot: Snapshot) -> list[Spans]:
    """Draw the rates over each window, and the run's main numbers."""
    lines: list[Spans] = [[(" " * 13, PLAIN), ("".join(f"{_window(window):>8}" for window in WINDOWS), DIM)]]
    for name in TOTALS:
        values: Mapping[int, float | None] = snapshot.rates.get(name, {})
        cells = "".join(f"{amount(values.get(window)):>8}" for window in WINDOWS)
        lines.append([(f" {NAMES[name]:<12}", PLAIN), (cells, BOLD)])
    lines += _returns(snapshot)
    lines.append([(" updates     ", PLAIN), (f"{amount(snapshot.updates):>8}", BOLD)])
    lines.append([(" lag         ", PLAIN), (f"{snapshot.lag:>8}", WARN if snapshot.lag > 4 else BOLD)])
    lines.append(
        [(" dropped     ", PLAIN), (f"{amount(snapshot.dropped):>8}", WARN if snapshot.dropped else BOLD)],
    )
    lines.append([(" cores busy  ", PLAIN), (f"{_cores(snapshot):>8}", BOLD)])
    return lines + _replay(snapshot.replay)


def _returns(snapshot: Snapshot) -> list[Spans]:
    """Draw the mean return: a line, or one for each of several policies."""
    if not snapshot.policies:
        return [[(" return      ", PLAIN), (f"{return_text(snapshot.mean_return):>8}", BOLD)]]
    lines: list[Spans] = []
    for number, one in enumerate(snapshot.policies):
        label = f"{'       ' if number else ' return'} {one.name}".ljust(13)
        value = return_text(one.mean_return).rjust(20 - len(label))
        lines.append(printable_line([(label, PLAIN), (f" {value}", BOLD), (f" {one.algorithm}", DIM)]))
    return lines


def rates_line(snapshot: Snapshot) -> Spans:
    """Draw the main numbers in one line, for a terminal without room for `rates`."""
    known = snapshot.rates.get("env_steps", {}).get(WINDOWS[0])
    return [
        (f" {amount(known)}", BOLD),
        (" steps/s   return ", PLAIN),
        (returns_text(snapshot.policies) or return_text(snapshot.mean_return), BOLD),
        (f"   lag {snapshot.lag}   cores {_cores(snapshot)}", PLAIN),
        (f"   dropped {amount(snapshot.dropped)}" if snapshot.dropped else "", WARN),
    ]


def _window(seconds: int) -> str:
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min"


def _replay(values: Mapping[str, float]) -> list[Spans]:
    """Draw how full the replay memory is, how often a step is drawn, and the ages and priorities of drawn steps."""
    if not values.get("steps"):
        return []
    held, drawn = f"{amount(values['steps'])} ({values['fill']:.0%})", f"{values['draws_per_step']:.3g}"
    line: Spans = [(" replay ", PLAIN), (held, BOLD), (f"  drawn ×{drawn}", DIM)]
    spread = f"   priorities {values['priority_share']:.0%}" if values["priority_share"] < 1 else ""
    return [line, [(f"   age {amount(values['age_steps'])} steps{spread}", DIM)]]


def _cores(snapshot: Snapshot) -> str:
    return "–" if snapshot.cores_busy is None else f"{snapshot.cores_busy:.1f}/{snapshot.cores}"


def _event(event: Mapping[str, object], width: int) -> list[Spans]:
    """Draw an entry of the event log in one or more lines."""
    kind, t = event.get("kind"), event.get("t")
    style = BAD if kind in ("died", "lost", "not finite") else WARN if kind == WARNING else DIM
    who = str(event.get("actor", "supervisor"))
    time = clock(t) if isinstance(t, int | float) else "--:--:--"
    head = f" {time} {who:<17} "
    text = str(event.get("text", "")).removeprefix(f"{who} ")
    parts = textwrap.wrap(text, max(width - len(head), 20)) or [""]
    return [printable_line([(f"{' ' * len(head) if n else head}{part}", style)]) for n, part in enumerate(parts)]


def event_lines(events: Sequence[Mapping[str, object]], width: int, count: int) -> list[Spans]:
    """Draw the last events in at most `count` lines, oldest first; of consecutive checkpoints only the last."""
    saved = [event.get("kind") == SAVED for event in events]
    kept = [event for event, *pair in zip(events, saved, [*saved[1:], False], strict=False) if not all(pair)]
    if count <= 0:
        return []
    return [line for event in kept[-count:] for line in _event(event, width)][-count:]


def overview(snapshot: Snapshot, width: int) -> list[Spans]:
    """Draw everything in lines of `width` cells, for a file or a pipe."""
    lines = [*header(snapshot, width), rule("".join(text for text, _ in curve_title(snapshot)), width)]
    lines += [*curve_lines(snapshot, width, CURVE), rule("rates", width), *rates(snapshot)]
    lines.append(rule("groups", width))
    if snapshot.actors:
        lines += table_lines(lay_out(GROUPS, groups_of(snapshot), width - 1))
    else:
        text = "the actors are starting" if snapshot.state == "starting" else "no data about its actors"
        lines.append([(f"   {text}", DIM)])
    if channels := channels_of(snapshot):
        lines += [rule("channels", width), *table_lines(lay_out(CHANNELS, channels, width - 1))]
    lines += [*sentence(snapshot, width), rule("events", width)]
    lines += event_lines(snapshot.events, width, EVENTS)
    return [fitted(line, width) for line in lines]
