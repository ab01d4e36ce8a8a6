"""Bound by: the one sentence that says what a run is waiting for, and the config key that would help.

Who waits for whom can be read. Every wait is a phase of its own, named after its channel, and a channel has two ends:

    "wait rollouts", a wait for something to come      is the fault of those who make rollouts
    "wait rollouts", a wait for room to put it         is the fault of those who take them
    "wait weights", a wait for a board's next version  is the fault of its writer

So from the actors whose results are the run's (where nobody says, from those that wait most) the reasons are followed:
whom they wait for, whom these wait for, and so on, along every wait of at least 5 % of the last seconds. Of all groups
on the way, the one with the actor that waits least is what everybody waits for: had it been faster, the others would
have waited less. Groups that nobody on the way waits for (a recorder, an evaluator) bind nothing, however busy.

What is said of it, the first that is true:

    an actor of it is not there, or stopped       its name, and its last words
    an actor has been at one thing for long       its name, in what, since when: an environment that hangs
    one of several works while the others wait    its name, and that it holds up the rest
    even it waits more than it works              two groups take turns: synchronous, lag 0
    it works                                      its name, at what, for how much of its time

The key is known for the trainer's own roles; of other actors only the sentence can be said. Where every core
is busy, with this run or something else, there is none: more processes would only share the same cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hive.monitor.rows import ActorRow, BoardRow, ChannelRow
    from hive.monitor.snapshot import Snapshot

__all__ = ["NOTHING_YET", "bound_by"]

NOTHING_YET = "nothing yet"

LEAST_S = 0.5  # of looking, before anything is said: some rounds of a fast run
LEAST_WAIT = 0.05  # of the time: a shorter wait has no reason worth following
LONG_S = 3.0  # at one thing: a hundred times what a step or an update takes
ALONE = 0.4  # by how much one actor works more than the others of its group that wait for it
HALF = 0.55  # of the time at work: with less, the run takes turns
FULL = 0.95  # of the cores
PHASE_BYTES = 23  # of a phase's name on a status page: a longer one is cut
THERE = ("running", "draining")

# (role, what it does most) -> the key; "" stands for whatever else.
KEYS = {
    ("collector", "policy"): "collection.envs",
    ("collector", ""): "collection.workers",
    ("gradient-worker", ""): "gradients.workers",
    ("learner", ""): "gradients.bootstrap_rounds",
}
WORK = ("busy", "runtime")  # an actor that names no phases of its own is at `runtime` when it works
TURNS = {"collector": "collection.communication", "gradient-worker": "gradients.communication"}


def bound_by(snapshot: Snapshot) -> str:
    """The sentence, without "bound by:"; `NOTHING_YET` where there is too little to judge by."""
    if snapshot.state in ("starting", ""):
        return NOTHING_YET
    if snapshot.state != "running":
        return f"nothing, the run {_ended(snapshot.state)}"
    groups = {name: [row for row in rows if row.state != "finished"] for name, rows in snapshot.groups.items()}
    groups = {name: rows for name, rows in groups.items() if rows}
    if snapshot.window_s < LEAST_S or not groups:
        return NOTHING_YET
    met = _followed(snapshot, groups, _start(snapshot, groups))
    name = max(met, key=lambda group: max(map(_rank, groups[group])))
    rows = groups[name]
    first = max(rows, key=_rank)
    if first.state not in THERE:
        return f"{first.name} ({first.state}{f': {first.last_words}' if first.last_words else ''})"
    if stuck := _stuck(rows):
        return f"{stuck.name} (in `{stuck.activity}` for {stuck.since_s:.1f} s) - supervision.phase_limit_s"
    if first.own < HALF:
        return _turns(snapshot, groups, met) or NOTHING_YET
    return _at_work(snapshot, name, rows, first)


def _ended(state: str) -> str:
    return {"draining": "is ending", "paused": "is paused"}.get(state, f"is {state}")


def _rank(row: ActorRow) -> tuple[bool, float]:
    """Of two, the one with the higher rank is what the others wait for."""
    return row.state not in THERE, row.own


def _start(snapshot: Snapshot, groups: dict[str, list[ActorRow]]) -> str:
    """The group whose results are the run's; else the one that waits most."""
    for name, rows in groups.items():
        if any(row.name == snapshot.results_actor for row in rows):
            return name
    return max(groups, key=lambda name: sum(1 - row.own for row in groups[name]) / len(groups[name]))


def _followed(snapshot: Snapshot, groups: dict[str, list[ActorRow]], start: str) -> list[str]:
    """All groups that somebody waits for, beginning with `start`."""
    met = [start]
    for name in met:  # which grows
        for phase, kind in _waits(groups[name]):
            edge = _edge(snapshot, phase)
            blamed = () if edge is None else (edge.source,) if kind == "wait_in" else edge.targets
            met += [group for group in blamed if group in groups and group not in met]
    return met


def _waits(rows: Sequence[ActorRow]) -> dict[tuple[str, str], float]:
    """(phase, kind) -> share, of each wait that takes some of the group's time."""
    shares: dict[tuple[str, str], float] = {}
    for row in rows:
        for phase, share in row.phases.items():
            kind = row.kinds.get(phase, "")
            if kind in ("wait_in", "wait_out"):
                shares[phase, kind] = shares.get((phase, kind), 0.0) + share / len(rows)
    return {wait: share for wait, share in shares.items() if share >= LEAST_WAIT}


def _edge(snapshot: Snapshot, phase: str) -> ChannelRow | BoardRow | None:
    """The channel or board that a wait is named after."""
    edges: dict[str, ChannelRow | BoardRow] = {**snapshot.channels, **snapshot.boards}
    for name, edge in edges.items():
        if phase in (f"wait {name}"[:PHASE_BYTES], f"wait peers {name}"[:PHASE_BYTES]):
            return edge
    return None


def _stuck(rows: Sequence[ActorRow]) -> ActorRow | None:
    """Who has worked at one thing for long: longest."""
    busy = [row for row in rows if row.kinds.get(row.activity) in WORK and row.since_s >= LONG_S]
    return max(busy, key=lambda row: row.since_s, default=None)


def _turns(snapshot: Snapshot, groups: dict[str, list[ActorRow]], met: Sequence[str]) -> str:
    """Everybody waits for everybody else: those that work most, in turn."""
    work = {name: sum(row.own for row in groups[name]) / len(groups[name]) for name in met}
    most = sorted(met, key=lambda name: -work[name])[:2]
    if len(most) < 2:
        return ""
    # Who waits for a version waits for the others to be through with the last one: more lag would end that.
    waits = {name: _waits_for_boards(snapshot, groups[name]) for name in met if groups[name][0].role in TURNS}
    sentence = f"{most[0]} and {most[1]} in turn ({_percent(work[most[0]])} and {_percent(work[most[1]])} of the time)"
    if not any(waits.values()):
        return sentence
    return f"{sentence} - {TURNS[groups[max(waits, key=lambda name: waits[name])][0].role]}"


def _waits_for_boards(snapshot: Snapshot, rows: Sequence[ActorRow]) -> float:
    """The share of a group's time in which it waits for versions."""
    boards = snapshot.boards.values()
    return sum(share for (phase, _), share in _waits(rows).items() if _edge(snapshot, phase) in boards)


def _at_work(snapshot: Snapshot, name: str, rows: Sequence[ActorRow], first: ActorRow) -> str:
    others = [row.own for row in rows if row is not first]
    if others and first.own - sum(others) / len(others) >= ALONE:
        what, share = _most([first])
        sentence = f"{first.name} ({what}{_percent(share)} of its time, while the others wait)"
        key = "collection.fraction_workers" if first.role == "collector" else ""
    else:
        what, share = _most(rows)
        whose = "their" if name.endswith("s") else "its"
        sentence = f"{name} ({what}{_percent(share)} of {whose} time)"
        key = KEYS.get((first.role, what.split()[0]), KEYS.get((first.role, ""), ""))
        if snapshot.cores_busy is not None and snapshot.cores_busy >= FULL * snapshot.cores:
            return f"{sentence}, and all {snapshot.cores} cores are busy"
    return f"{sentence} - {key}" if key else sentence


def _most(rows: Sequence[ActorRow]) -> tuple[str, float]:
    """What these do most, with a blank, and for what share of their time: the one or two phases that are most of it."""
    shares: dict[str, float] = {}
    for row in rows:
        for phase, share in row.phases.items():
            if row.kinds.get(phase) == "busy":
                shares[phase] = shares.get(phase, 0.0) + share / len(rows)
    own = sum(row.own for row in rows) / len(rows)
    first = sorted(shares, key=lambda name: -shares[name])[:2]
    for phases in (first[:1], first):
        share = sum(shares[phase] for phase in phases)
        if phases and share >= own / 2:
            return f"{' and '.join(phases)} ", share
    return "at work ", own


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
