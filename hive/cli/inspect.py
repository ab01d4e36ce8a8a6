"""Commands that inspect actors: `stack` shows what they are executing now, `history` what happened to them.

    stack      the supervisor sends a signal, on which a process writes the stacks of its threads, even if it is stuck
    history    last transitions, which only a live supervisor has, and events from the event log

Writing stacks takes a process a millisecond. It stops no process and needs no permission to trace processes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from hive.cli.arguments import ONLY_LIVE_RUN, add_json, add_run
from hive.cli.control import connected
from hive.cli.select_run import chosen_run, live_run, say_default
from hive.cli.suggest import did_you_mean, listed
from hive.errors import UsageError
from hive.monitor.line import event_text
from hive.records import RunDirectory, read_jsonl, run_state
from hive.records.documents import json_text

__all__ = ["add_history", "add_stack"]

EVENTS_SHOWN = 50  # default number of events shown: one or two screens


def add_stack(commands: Any) -> None:
    stack = commands.add_parser(
        "stack",
        description="Show the stacks of actors: the code that each is executing now, even if it is stuck.",
        epilog="example: hive stack cartpole-ppo-1 learner-0",
    )
    add_run(stack, ONLY_LIVE_RUN)
    stack.add_argument("actor", nargs="?", metavar="ACTOR", help="only this actor (default: all)")
    add_json(stack, "one JSON array")
    stack.set_defaults(run=run_stack)


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


def run_stack(options: argparse.Namespace) -> int:
    directory = live_run(options.run_name)
    say_default(options.run_name, directory)
    with connected(directory) as client:
        rows = _chosen(directory, client.status()["actors"], options.actor)
        stacks: dict[str, str] = {}  # process -> its stacks, which include those of all actors in it
        for row in rows:
            if row["process"] not in stacks:
                stacks[row["process"]] = client.inspect(row["name"])[0]
    if options.json:
        keys = ("name", "pid", "state", "activity", "since_s")
        print(
            json_text([{key: row[key] for key in keys} | {"stack": stacks[row["process"]]} for row in rows], indent=2)
        )
        return 0
    for row in rows:
        doing = f"in {row['activity'] or 'start'} for {row['since_s']:.1f} s"
        print(f"{row['name']} (pid {row['pid']}) {row['state']}, {doing}")
        stack = stacks.pop(row["process"], "as above") or "no stack: the process is starting, stopped or has exited"
        print(_indented(stack))
        print()
    return 0


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())


def _chosen(directory: RunDirectory, rows: list[Mapping[str, Any]], actor: str | None) -> list[Mapping[str, Any]]:
    """Return the row of `actor`, or all rows if it is None. Raises UsageError for an unknown actor."""
    found = [row for row in rows if actor in (None, row["name"])]
    if actor is not None and not found:
        raise _unknown_actor(directory, actor, [row["name"] for row in rows])
    return found


def _unknown_actor(directory: RunDirectory, actor: str, names: list[str]) -> UsageError:
    from hive.config.values import SHOWN_LENGTH
    from hive.printable import printable

    return UsageError(
        f"{directory.name} has no actor `{printable(actor, SHOWN_LENGTH)}`{did_you_mean(actor, names)}",
        hint=f"its actors are: {listed(names)}" if names else "",
    )


def run_history(options: argparse.Namespace) -> int:
    directory = chosen_run(options.run_name)
    say_default(options.run_name, directory)
    transitions = _transitions(directory, options.actor)
    events = [event for event in read_jsonl(directory.events_file) if _concerns(event, options.actor)]
    events = events[max(len(events) - options.tail, 0) :]
    if options.actor is not None and not transitions and not events:
        names = sorted(path.stem for path in directory.logs.glob("*.log"))
        if options.actor not in names:
            raise _unknown_actor(directory, options.actor, names)
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
            rows = _chosen(directory, rows, actor)
        elif actor is not None:
            return {}
        return {row["name"]: [*client.inspect(row["name"], stack=False)[1]] for row in rows}


def _concerns(event: Mapping[str, Any], actor: str | None) -> bool:
    """Whether an event is about this actor. Events that name no actor or process are the supervisor's."""
    named = [event[key] for key in ("actor", "process") if key in event]
    return actor is None or actor in named or (actor == "supervisor" and not named)
