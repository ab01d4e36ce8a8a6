"""`hive stack`: shows what actors are executing now, even if they are stuck.

The supervisor sends a signal, on which a process writes the stacks of its threads. That takes it a millisecond, stops
no process and needs no permission to trace processes.
"""

from __future__ import annotations

import argparse
from typing import Any

from hive.cli.parts.arguments import ONLY_LIVE_RUN, add_json, add_run
from hive.launch.control import connected
from hive.launch.select_run import chosen_actors, live_run, say_default
from hive.records.documents import json_text


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


def run_stack(options: argparse.Namespace) -> int:
    directory = live_run(options.run_name)
    say_default(options.run_name, directory)
    with connected(directory) as client:
        rows = chosen_actors(directory, client.status()["actors"], options.actor)
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
