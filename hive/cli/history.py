"""`hive history`: shows the last transitions, which only a live supervisor has, and the events of actors."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from hive.cli.parts.arguments import add_json, add_run
from hive.launch.control import connected
from hive.launch.select_run import chosen_actors, chosen_run, say_default, unknown_actor
from hive.monitor.line import event_text
from hive.records import RunDirectory, read_jsonl, run_state
from hive.records.documents import json_text

EVENTS_SHOWN = 50  # default number of events shown: one or two screens


def add_history(commands: Any) -> None:
    history = commands.add_parser(
        "history",
        description="Show the last state transitions of actors (live runs only) and the events of the run's event log.",
        epilog="example: hive history cartpole-ppo-1 collector-0",
    )
    add_run(history)
    history.add_argument("actor", nargs="?", metavar="ACTOR", help="only this actor (default: all)")
    history.add_argument(
        "-n",
        "--tail",
        type=int,
        default=EVENTS_SHOWN,
        metavar="N",
        help=f"show the last N events (default {EVENTS_SHOWN})",
    )
    add_json(history)
    history.set_defaults(run=run_history)


def run_history(options: argparse.Namespace) -> int:
    directory = chosen_run(options.run_name)
    say_default(options.run_name, directory)
    transitions = _transitions(directory, options.actor)
    events = [event for event in read_jsonl(directory.events_file) if _concerns(event, options.actor)]
    events = events[max(len(events) - options.tail, 0) :]
    if options.actor is not None and not transitions and not events:
        names = sorted(path.stem for path in directory.logs.glob("*.log"))
        if options.actor not in names:
            raise unknown_actor(directory, options.actor, names)
    if options.json:
        print(json_text({"transitions": transitions, "events": events}, indent=2))
        return 0
    for name, history in transitions.items():
        print(f"{name}  {history[-1].partition('-> ')[2] if history else 'starting'}")
        for line in history:
            print(f"    {line}")
    for event in events:
        print(event_text(event))
    return 0


def _transitions(directory: RunDirectory, actor: str | None) -> dict[str, list[str]]:
    """Return actor -> its last transitions; empty for an ended run, because only the supervisor stores them."""
    if run_state(directory) != "running":
        return {}
    with connected(directory) as client:
        rows = client.status()["actors"]
        if actor is not None and actor not in ("supervisor", "fork-server"):
            rows = chosen_actors(directory, rows, actor)
        elif actor is not None:
            return {}
        return {row["name"]: [*client.inspect(row["name"], stack=False)[1]] for row in rows}


def _concerns(event: Mapping[str, Any], actor: str | None) -> bool:
    """Whether an event is about this actor. Events that name no actor or process are the supervisor's."""
    named = [event[key] for key in ("actor", "process") if key in event]
    return actor is None or actor in named or (actor == "supervisor" and not named)
