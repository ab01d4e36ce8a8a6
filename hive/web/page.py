"""A Snapshot as the page shows it: the words and numbers of the terminal monitor, made by the same functions.

Shares that the page draws as bars are numbers between 0 and 1; everything else is text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hive.monitor.bound_by import stuck_actors
from hive.monitor.drawing import amount, duration, share, size
from hive.monitor.environments import (
    ENVIRONMENTS,
    down_text,
    environments_text,
    failures,
    running_text,
    step_text,
)
from hive.monitor.history import TOTALS, WINDOWS
from hive.monitor.overview import NAMES
from hive.monitor.rows import ActorRow, ChannelRow, main_phases, mean, missing
from hive.monitor.snapshot import Snapshot
from hive.records.environments import LEFT_OUT, median_step_s, worst_step_s
from hive.records.return_text import return_text
from hive.records.standings import PolicyStanding

KINDS = ("busy", "runtime", "wait_in", "wait_out")


def page_document(snapshot: Snapshot) -> dict[str, Any]:
    """Return the page of a snapshot as data for JSON."""
    return {
        "run": snapshot.run,
        "state": snapshot.state,
        "reason": snapshot.reason,
        "supervisor": snapshot.supervisor,
        "bound_by": snapshot.bound_by,
        "warnings": [warning.line for warning in snapshot.active_warnings],
        **_progress(snapshot),
        "policies": [_policy(one, snapshot) for one in snapshot.policies],
        "rates": _rates(snapshot),
        "facts": _facts(snapshot),
        "groups": [_group(name, rows, snapshot) for name, rows in snapshot.groups.items()],
        "others": [_channel(name, c) for name, c in snapshot.channels.items() if c.source not in snapshot.groups],
        "trouble": _trouble(snapshot),
        "actors": [_actor(row) for row in (*snapshot.helpers, *snapshot.actors)],
    }


def _progress(snapshot: Snapshot) -> dict[str, Any]:
    goal, left = snapshot.goal_steps, ""
    if snapshot.state == "running" and snapshot.steps_per_s and goal:
        left = duration(max(goal - snapshot.env_steps, 0) / snapshot.steps_per_s)
    return {
        "elapsed": duration(max((snapshot.t or snapshot.started) - snapshot.started, 0.0)),
        "steps": amount(snapshot.env_steps),
        "goal": amount(goal) if goal else "",
        "done": min(snapshot.env_steps / goal, 1.0) if goal else None,
        "done_text": f"{snapshot.env_steps / goal:.0%}" if goal else "",
        "left": left,
        "restarts": snapshot.restarts,
    }


def _rates(snapshot: Snapshot) -> list[list[str]]:
    """Return the table of rates: a heading, then a row for each total."""
    heading = ["", *(f"{window} s" if window < 60 else f"{window // 60} min" for window in WINDOWS)]
    return [heading] + [
        [NAMES[name], *(amount(snapshot.rates.get(name, {}).get(window)) for window in WINDOWS)] for name in TOTALS
    ]


def _facts(snapshot: Snapshot) -> list[list[str]]:
    """Return (name, value) of the run's other numbers."""
    returns = [[f"return of {one.name}", return_text(one.mean_return)] for one in snapshot.policies]
    facts = [
        *(returns or [["return", return_text(snapshot.mean_return)]]),
        ["updates", amount(snapshot.updates)],
        ["episodes", amount(snapshot.episodes)],
        ["lag", str(snapshot.lag)],
        ["dropped", amount(snapshot.dropped)],
    ]
    if snapshot.cores_busy is not None:
        facts.append(["cores busy", f"{snapshot.cores_busy:.1f} of {snapshot.cores}"])
    replay = snapshot.replay
    if replay.get("steps"):
        facts += [
            ["replay memory", f"{amount(replay['steps'])} ({replay['fill']:.0%})"],
            ["drawn", f"×{replay['draws_per_step']:.3g}"],
            ["age", f"{amount(replay['age_steps'])} steps"],
        ]
    return facts + [[name, amount(value)] for name, value in snapshot.info.items()]


def _policy(policy: PolicyStanding, snapshot: Snapshot) -> dict[str, Any]:
    """Return the curve of returns of one of several policies; the first one's is the run's, which has its own."""
    points = snapshot.policy_returns.get(policy.name, ())
    return {"name": policy.name, "steps": [steps for steps, _ in points], "values": [value for _, value in points]}


def _group(name: str, rows: Sequence[ActorRow], snapshot: Snapshot) -> dict[str, Any]:
    shares = {kind: mean([getattr(row, kind) for row in rows]) for kind in KINDS}
    return {
        "name": name,
        "count": len(rows),
        "shares": shares,
        "texts": {kind: share(value) for kind, value in shares.items()},
        "phases": [f"{phase} {share(part)}" for phase, part in main_phases(rows)],
        "missing": [f"{row.name} {row.state}" for row in missing(rows)],
        "actors": [{"name": row.name, "state": row.state, "busy": row.busy} for row in rows],
        "channels": [_channel(channel, row) for channel, row in snapshot.channels.items() if row.source == name],
        "boards": [
            {
                "name": board,
                "version": f"v{row.version}" if row.version >= 0 else "no version yet",
                "targets": list(row.targets),
            }
            for board, row in snapshot.boards.items()
            if row.source == name
        ],
    }


def _channel(name: str, channel: ChannelRow) -> dict[str, Any]:
    lost = sum(channel.dropped.values())
    reasons = ", ".join(f"{reason} {amount(n)}" for reason, n in channel.dropped.items() if n)
    return {
        "name": name,
        "carrier": channel.carrier,
        "occupancy": channel.occupancy,
        "held": f"{channel.in_flight}/{channel.capacity}" if channel.capacity else f"{channel.in_flight} held",
        "rate": f"{amount(channel.rate)}/s" if channel.rate is not None else f"{amount(channel.produced)} in all",
        "targets": list(channel.targets),
        "dropped": f"dropped {amount(lost)} ({reasons})" if lost else "",
    }


def _trouble(snapshot: Snapshot) -> list[dict[str, str]]:
    """Return actors that do not run, those with environments that are down, and those in one phase for long."""
    if snapshot.state not in ("running", "draining"):
        return []
    absent = missing(snapshot.actors)
    rows = [{"actor": r.name, "what": r.state, "since": "", "more": r.last_words} for r in absent]
    rows += [_down(row) for row in snapshot.actors if down_text(row.environments)]
    stuck = [row for row in stuck_actors(snapshot.actors) if row not in absent]
    return rows + [
        {"actor": r.name, "what": f"in `{r.activity}`", "since": duration(r.since_s), "more": ""} for r in stuck
    ]


def _down(row: ActorRow) -> dict[str, str]:
    """Return which environments of an actor are down, with the failure of the first one."""
    first = next(one for one in row.environments if one.down)
    return {"actor": row.name, "what": down_text(row.environments), "since": "", "more": first.last_failure}


def _environments(row: ActorRow) -> dict[str, Any] | None:
    """Return the environments that processes step for an actor: in short, and as a table; None without any."""
    each = row.environments
    if not each:
        return None
    lines = [[column.cell(one).text for column in ENVIRONMENTS] for one in each]
    return {
        "text": environments_text(each),
        "running": running_text(each),
        "failures": failures(each),
        "median": step_text(median_step_s(each)),
        "worst": step_text(worst_step_s(each)),
        "heading": [column.title.lower() for column in ENVIRONMENTS],
        "rows": lines,
        "troubled": [one.down or one.state == LEFT_OUT for one in each],
    }


def _actor(row: ActorRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "state": row.state,
        "pid": str(row.pid or "–"),
        "activity": row.activity or "–",
        "since": duration(row.since_s) if row.activity else "–",
        "cpu": share(row.cpu),
        "memory": size(row.memory_bytes),
        "rate": f"{amount(row.rate)}/s" if row.rate is not None else "–",
        "rate_of": row.rate_of,
        "shares": {kind: getattr(row, kind) for kind in KINDS},
        "texts": {kind: share(getattr(row, kind)) for kind in KINDS},
        "version": "–" if row.version is None else str(row.version),
        "lag": "–" if row.lag is None else str(row.lag),
        "restarts": row.restarts,
        "environments": _environments(row),
        "report": row.last_words,
        "counters": [[name, amount(value)] for name, value in row.counters.items() if ":" not in name],
        "phases": [
            {"name": phase, "share": part, "text": share(part), "kind": row.kinds.get(phase, "")}
            for phase, part in sorted(row.phases.items(), key=lambda item: -item[1])
        ],
    }
