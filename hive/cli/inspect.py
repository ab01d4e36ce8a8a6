"""Commands that look into actors: `stack`, what they are executing right now, and `story`, how they came to be so.

    stack    asks the supervisor, whose signal makes a process write the stacks of its threads, even when it is stuck
    story    transitions, which the supervisor keeps while it lives, and what the diary says, which stays

Stacks cost a process a millisecond; nothing is stopped, and no right to trace processes is needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from hive.cli.control import connected
from hive.cli.select_run import LIVE_RUN, chosen_run, live_run
from hive.cli.suggest import did_you_mean, listed
from hive.errors import UsageError
from hive.monitor.line import event_text
from hive.records import RunDirectory, read_jsonl, run_state
from hive.records.documents import json_text

__all__ = ["add_stack", "add_story"]

STORY = 50  # lines of the diary that are shown: a screen or two


def add_stack(commands: Any) -> None:
    stack = commands.add_parser(
        "stack",
        description="Shows what actors are executing right now, also those that are stuck.",
        epilog="example: hive stack cartpole-1 learner-0",
    )
    stack.add_argument("run_name", nargs="?", metavar="RUN", help=LIVE_RUN)
    stack.add_argument("actor", nargs="?", metavar="ACTOR", help="only this one")
    stack.add_argument("--json", action="store_true", help="one JSON array")
    stack.set_defaults(run=run_stack)


def add_story(commands: Any) -> None:
    story = commands.add_parser(
        "story",
        description="Shows the last transitions of actors, and what the diary says.",
        epilog="example: hive story cartpole-1 collector-0",
    )
    story.add_argument("run_name", nargs="?", metavar="RUN", help=f"{LIVE_RUN}, else the newest")
    story.add_argument("actor", nargs="?", metavar="ACTOR", help="only this one")
    story.add_argument("-n", "--tail", type=int, default=STORY, help=f"so many lines of the diary (default {STORY})")
    story.add_argument("--json", action="store_true", help="one JSON object")
    story.set_defaults(run=run_story)


def run_stack(options: argparse.Namespace) -> int:
    directory = live_run(options.run_name)
    with connected(directory) as client:
        rows = _chosen(directory, client.status()["actors"], options.actor)
        stacks: dict[str, str] = {}  # by process: those who share one share its stack
        for row in rows:
            if row["process"] not in stacks:
                stacks[row["process"]] = client.inspect(row["name"])[0]
    if options.json:
        keys = ("name", "pid", "state", "activity", "since_s")
        told = [{key: row[key] for key in keys} | {"stack": stacks[row["process"]]} for row in rows]
        print(json_text(told, indent=2))
        return 0
    for row in rows:
        doing = f"in {row['activity'] or 'start'} for {row['since_s']:.1f} s"
        print(f"{row['name']} (pid {row['pid']}) {row['state']}, {doing}")
        print(_indented(stacks.pop(row["process"], "as above") or "it cannot say: it is starting, stopped, or gone"))
        print()
    return 0


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())


def _chosen(directory: RunDirectory, rows: list[Mapping[str, Any]], actor: str | None) -> list[Mapping[str, Any]]:
    """The rows of that actor, or of all. Raises UsageError for one that there is not."""
    found = [row for row in rows if actor in (None, row["name"])]
    if actor is not None and not found:
        raise _nobody(directory, actor, [row["name"] for row in rows])
    return found


def _nobody(directory: RunDirectory, actor: str, names: list[str]) -> UsageError:
    from hive.config.values import SHOWN_LENGTH, printable

    return UsageError(
        f"{directory.name} has no actor `{printable(actor, SHOWN_LENGTH)}`{did_you_mean(actor, names)}",
        hint=f"there are: {listed(names)}" if names else "",
    )


def run_story(options: argparse.Namespace) -> int:
    directory = chosen_run(options.run_name)
    transitions = _transitions(directory, options.actor)
    events = [event for event in read_jsonl(directory.events_file) if _concerns(event, options.actor)]
    events = events[max(len(events) - options.tail, 0) :]
    if options.actor is not None and not transitions and not events:
        names = sorted(path.stem for path in directory.logs.glob("*.log"))
        if options.actor not in names:
            raise _nobody(directory, options.actor, names)
    if options.json:
        print(json_text({"transitions": transitions, "events": events}, indent=2))
        return 0
    for name, story in transitions.items():
        print(f"{name}  {story[-1].partition('-> ')[2] if story else 'starting'}")
        for line in story:
            print(f"    {line}")
    for event in events:
        print(event_text(event))
    return 0


def _transitions(directory: RunDirectory, actor: str | None) -> dict[str, list[str]]:
    """Of a live run: actor -> its last transitions. They go with the supervisor; the diary stays."""
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
    """Whether an event is about this actor. Whatever names nobody is the supervisor's."""
    named = [event[key] for key in ("actor", "process") if key in event]
    return actor is None or actor in named or (actor == "supervisor" and not named)
