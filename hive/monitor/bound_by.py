"""Find the bottleneck of a run: one sentence that names it, and the config key that would help.

The phases of actors show which group waits for which. Each wait is a phase named after its channel or board:

    phase "wait rollouts", waiting for input    is caused by the producers of `rollouts`
    phase "wait rollouts", waiting for room     is caused by the consumers of `rollouts`
    phase "wait weights", waiting for a version is caused by the writer of the board `weights`

The search starts at the actor whose results are the run's, or at the group that waits most if no actor is marked so. It
follows every wait of at least 5 % of the last seconds to the group that causes it, and repeats from there. Among the
groups that it reaches, the bottleneck is the one with the actor that waits least: had that actor been faster, the
others would have waited less. A group that the search does not reach (a recorder, an evaluator) is never the
bottleneck, however busy it is.

The sentence reports the first of these that is true of the bottleneck:

    one of its actors is stopped or not running   the actor's name and its exit report
    all environments of one are down              its name, and that they are being restarted
    one has been in the same phase for long       its name, the phase and since when: an environment that hangs
    one works while the others of its group wait  its name, and that it delays the rest
    the link to another host carries too little   the host, and what waits there or the round trip
    even its busiest actor mostly waits           two groups alternate: synchronous, lag 0
    it works                                      its name, its main phases and their share of the time, or the
                                                  environment whose steps take several times the median

A config key is suggested for the trainer's own roles only. None is suggested where every core is busy, with this run or
another program: more processes would only share the same cores. Where other programs have at least `OTHERS` of the
cores, the sentence says how many this run gets.
"""

from __future__ import annotations

from collections.abc import Sequence

from hive.monitor.environments import all_down, down_text, slow_text, slowness
from hive.monitor.rows import ActorRow, BoardRow, ChannelRow, HostRow, mean
from hive.monitor.snapshot import Snapshot

NOTHING_YET = "nothing yet"

LEAST_S = 0.5  # seconds observed before a bottleneck is named: some rounds of a fast run
LEAST_WAIT = 0.05  # smallest share of the time for which the cause of a wait is followed
LONG_S = 3.0  # seconds in one phase that count as long: a hundred times a step or an update
ONE_ACTOR = 0.4  # by how much the share of work of one actor exceeds that of the others of its group, which wait for it
HALF = 0.55  # share of work of the busiest actor below which groups alternate
FULL = 0.95  # share of the cores that counts as all of them
OTHERS = 0.2  # share of all cores which, used by other programs, is reported: less is the noise of one second
PHASE_BYTES = 23  # length at which a status page cuts the name of a phase
ALIVE = ("running", "draining")

POLICY = "policy"  # the phase in which a collector acts
# (role, main phase) -> config key; "" matches every other phase.
KEYS = {
    ("collector", POLICY): "collection.envs",
    ("collector", ""): "collection.workers",
    ("gradient-worker", ""): "gradients.workers",
    ("learner", ""): "gradients.bootstrap_rounds",
}
WORK = ("busy", "runtime")  # an actor that names no phases itself works in `runtime`
# Role -> config key that ends the alternation of two groups.
ALTERNATION = {"collector": "collection.communication", "gradient-worker": "gradients.communication"}


def bound_by(snapshot: Snapshot) -> str:
    """Return the sentence without "bound by:", or `NOTHING_YET` where the snapshot covers too little time."""
    if snapshot.state in ("starting", ""):
        return NOTHING_YET
    if snapshot.state != "running":
        return f"nothing, the run {_ended(snapshot.state)}"
    groups = _unfinished(snapshot)
    if snapshot.window_s < LEAST_S or not groups:
        return NOTHING_YET
    reached = _reached(snapshot, groups, _start(snapshot, groups))
    name = max(reached, key=lambda group: max(map(_rank, groups[group])))
    rows = groups[name]
    first = max(rows, key=_rank)
    if first.state not in ALIVE:
        return f"{first.name} ({first.state}{f': {first.last_words}' if first.last_words else ''})"
    if all_down(first.environments):
        return f"{first.name} (waits for its environments: {down_text(first.environments)})"
    if stuck := stuck_actors(rows):
        return f"{stuck[0].name} (in `{stuck[0].activity}` for {stuck[0].since_s:.1f} s) - supervision.phase_limit_s"
    if link := _link(snapshot, groups):
        return link
    if first.own < HALF:
        return _alternating(snapshot, groups, reached) or NOTHING_YET
    return _at_work(snapshot, name, rows, first)


def _link(snapshot: Snapshot, groups: dict[str, list[ActorRow]]) -> str:
    """Say that a link to another host is the bottleneck; "" if none is.

    Collectors there wait for room: the link carries too little. Or they wait for the policy, and the round trip takes
    most of the time between two versions: it is too long for the lag.
    """
    versions = max((board.rate or 0.0 for board in snapshot.boards.values() if board.source == "learner"), default=0.0)
    every = [row for rows in groups.values() for row in rows]
    links = (_link_to(host, [row for row in every if row.host == host.name], versions) for host in snapshot.hosts)
    return next(filter(None, links), "")


def _link_to(host: HostRow, rows: Sequence[ActorRow], versions: float) -> str:
    """Return the sentence about one host and its actors. versions: of the policy, per second."""
    if not rows or not host.joined:
        return ""
    if host.backlog and (mean([row.wait_out or 0.0 for row in rows]) or 0.0) >= HALF:
        return f"the link to {host.name} ({host.backlog} rollouts wait there)"
    share = host.round_trip_ms / 1e3 * versions
    if share < HALF or (mean([row.wait_in or 0.0 for row in rows]) or 0.0) < HALF:
        return ""
    trip = f"its round trip of {host.round_trip_ms:.0f} ms takes {_percent(min(share, 1.0))} of a round"
    return f"the link to {host.name} ({trip}) - collection.max_lag"


def _unfinished(snapshot: Snapshot) -> dict[str, list[ActorRow]]:
    """Return the actors of each group that have not finished, without groups that have."""
    groups = {name: [row for row in rows if row.state != "finished"] for name, rows in snapshot.groups.items()}
    return {name: rows for name, rows in groups.items() if rows}


def _ended(state: str) -> str:
    return {"draining": "is ending", "paused": "is paused"}.get(state, f"is {state}")


def _rank(row: ActorRow) -> tuple[bool, bool, float]:
    """Return a sort key that is greatest for the bottleneck: actors that do not run, or whose environments do not run,
    then those that wait least.
    """
    return row.state not in ALIVE, all_down(row.environments), row.own


def _start(snapshot: Snapshot, groups: dict[str, list[ActorRow]]) -> str:
    """Return the group whose results are the run's, else the one that waits most."""
    for name, rows in groups.items():
        if any(row.name == snapshot.results_actor for row in rows):
            return name
    return max(groups, key=lambda name: sum(1 - row.own for row in groups[name]) / len(groups[name]))


def _reached(snapshot: Snapshot, groups: dict[str, list[ActorRow]], start: str) -> list[str]:
    """Return `start` and the groups that cause its waits, directly or through other groups."""
    reached = [start]
    for name in reached:  # the list grows while it is iterated
        for phase, kind in _waits(groups[name]):
            edge = _edge(snapshot, phase)
            causes = () if edge is None else (edge.source,) if kind == "wait_in" else edge.targets
            reached += [group for group in causes if group in groups and group not in reached]
    return reached


def _waits(rows: Sequence[ActorRow]) -> dict[tuple[str, str], float]:
    """Map (phase, kind) to the group's share of time, for each wait of at least `LEAST_WAIT`."""
    shares: dict[tuple[str, str], float] = {}
    for row in rows:
        for phase, share in row.phases.items():
            kind = row.kinds.get(phase, "")
            if kind in ("wait_in", "wait_out"):
                shares[phase, kind] = shares.get((phase, kind), 0.0) + share / len(rows)
    return {wait: share for wait, share in shares.items() if share >= LEAST_WAIT}


def _edge(snapshot: Snapshot, phase: str) -> ChannelRow | BoardRow | None:
    """Return the channel or board that a wait is named after."""
    edges: dict[str, ChannelRow | BoardRow] = {**snapshot.channels, **snapshot.boards}
    for name, edge in edges.items():
        if phase in (f"wait {name}"[:PHASE_BYTES], f"wait peers {name}"[:PHASE_BYTES]):
            return edge
    return None


def stuck_actors(rows: Sequence[ActorRow]) -> list[ActorRow]:
    """Return the actors that have been in one busy phase for `LONG_S` or more, longest first."""
    busy = [row for row in rows if row.kinds.get(row.activity) in WORK and row.since_s >= LONG_S]
    return sorted(busy, key=lambda row: -row.since_s)


def _alternating(snapshot: Snapshot, groups: dict[str, list[ActorRow]], reached: Sequence[str]) -> str:
    """Name the two groups that work most, where each group mostly waits for another."""
    work = {name: sum(row.own for row in groups[name]) / len(groups[name]) for name in reached}
    most = sorted(reached, key=lambda name: -work[name])[:2]
    if len(most) < 2:
        return ""
    # A group that waits for a version waits until others have used the previous one; a greater lag removes the wait.
    waits = {name: _waits_for_boards(snapshot, groups[name]) for name in reached if groups[name][0].role in ALTERNATION}
    sentence = f"{most[0]} and {most[1]} in turn ({_percent(work[most[0]])} and {_percent(work[most[1]])} of the time)"
    if others := _others(snapshot):
        return f"{sentence}, and {others}"
    if not any(waits.values()):
        return sentence
    return f"{sentence} - {ALTERNATION[groups[max(waits, key=lambda name: waits[name])][0].role]}"


def _waits_for_boards(snapshot: Snapshot, rows: Sequence[ActorRow]) -> float:
    """Return the share of a group's time in which it waits for versions of boards."""
    boards = snapshot.boards.values()
    return sum(share for (phase, _), share in _waits(rows).items() if _edge(snapshot, phase) in boards)


def _at_work(snapshot: Snapshot, name: str, rows: Sequence[ActorRow], first: ActorRow) -> str:
    others = [row.own for row in rows if row is not first]
    if others and first.own - sum(others) / len(others) >= ONE_ACTOR:
        what, share = _most([first])
        why = _slow([first], what) or f"{what}{_percent(share)} of its time"
        sentence = f"{first.name} ({why}, while the others wait{_down([first])})"
        key = "collection.fraction_workers" if first.role == "collector" and not snapshot.replay else ""
    else:
        what, share = _most(rows)
        whose = "their" if name.endswith("s") else "its"
        slow = _slow(rows, what)
        sentence = f"{name} ({slow or f'{what}{_percent(share)} of {whose} time'}{_down(rows)})"
        key = "" if slow else KEYS.get((first.role, what.split()[0]), KEYS.get((first.role, ""), ""))
        if snapshot.replay and first.role == "learner":
            key = "algorithm.updates_per_step"
        if full := _full(snapshot):
            return f"{sentence}, and {full}"
    return f"{sentence} - {key}" if key else sentence


def _slow(rows: Sequence[ActorRow], what: str) -> str:
    """Say which environment delays the actors; "" if none does, as where the policy leads the main phases `what`."""
    slowest = max(rows, key=lambda row: slowness(row.environments))
    return "" if what.startswith(POLICY) else slow_text(slowest.environments)


def _down(rows: Sequence[ActorRow]) -> str:
    """Say which environments of the actors are down, after a semicolon; "" if none is."""
    down = down_text([one for row in rows for one in row.environments])
    return f"; {down}" if down else ""


def _full(snapshot: Snapshot) -> str:
    """Say that every core is busy, and with what; "" where one is free."""
    if snapshot.cores_busy is None or snapshot.cores_busy < FULL * snapshot.cores:
        return ""
    busy = f"all {snapshot.cores} cores are busy" if snapshot.cores > 1 else "the only core is busy"
    return _others(snapshot) or busy


def _others(snapshot: Snapshot) -> str:
    """Say how many cores the run gets where other programs have the rest; "" where cores are free, or it has them."""
    busy, ours = snapshot.cores_busy, snapshot.cores_used
    if busy is None or ours is None or busy < FULL * snapshot.cores or busy - ours < OTHERS * snapshot.cores:
        return ""
    cores = f"{snapshot.cores} cores" if snapshot.cores > 1 else "1 core"
    return f"other processes have the cores: this run gets {ours:.1f} of {cores}"


def _most(rows: Sequence[ActorRow]) -> tuple[str, float]:
    """Return (the one or two phases that make up most of the work, with a trailing blank; their share of the time)."""
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
