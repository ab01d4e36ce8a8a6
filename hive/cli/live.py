"""Commands that a running run obeys while it continues: `hive pause`, `set`, `scale` and `stack`.

Ctrl-C ends the command, not the request. For `stack` the supervisor sends a signal, on which a process writes the
stacks of its threads. That takes it a millisecond, stops no process and needs no permission to trace processes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

from hive.cli.parts.arguments import ONLY_LIVE_RUN, add_json, add_run, add_run_and_settings, run_and_settings
from hive.errors import UsageError
from hive.launch.control import POLL_S, WaitReporter, connected
from hive.launch.select_run import chosen_actors, live_run, say_default
from hive.launch.suggest import listed
from hive.records.documents import json_text


def add_pause(commands: Any) -> None:
    pause = commands.add_parser(
        "pause",
        description="Pause a run and keep its state in memory. `hive resume` continues it; results stay bit-identical "
        "to those of a run that was not paused.",
        epilog="example: hive pause cartpole-ppo-1",
    )
    add_run(pause, ONLY_LIVE_RUN)
    pause.set_defaults(run=run_pause)


def run_pause(options: argparse.Namespace) -> int:
    directory, waits = live_run(options.run_name), WaitReporter()
    with connected(directory) as client:
        client.pause()
        while (status := client.status())["state"] != "paused":
            if status["state"] != "running":
                raise UsageError(f"{directory.name} did not pause: it is {status['state']} ({status.get('reason')})")
            if status["pausing"] is None:
                raise UsageError(f"{directory.name} did not pause: another command resumed it")
            waits.wait(lambda status=status: listed(status["pausing"]) or "the last messages")  # type: ignore[misc]
    print(f"{directory.name} paused at {_steps(status):,} steps")
    print(f"hint: hive resume {directory.name}", file=sys.stderr)
    return 0


def _steps(status: Mapping[str, Any]) -> int:
    return int(status["results"].get("env_steps", 0))


def add_set(commands: Any) -> None:
    set_ = commands.add_parser(
        "set",
        description="Change keys of [algorithm] of a running run, such as the learning rate, from the next update on.",
        epilog="example: hive set cartpole-ppo-1 algorithm.learning_rate=1e-4",
    )
    add_run_and_settings(set_, "KEY=VALUE", "a key of [algorithm] and its new value")
    set_.set_defaults(run=run_set)


def run_set(options: argparse.Namespace) -> int:
    name, settings = run_and_settings(options)
    directory = live_run(name)
    with connected(directory) as client:
        client.set(settings)
    print(f"{directory.name} continues with {' '.join(settings)}")
    return 0


def add_scale(commands: Any) -> None:
    scale = commands.add_parser(
        "scale",
        description="Change the number of workers of a running run. The run saves its state, restarts its processes "
        "and continues from there.",
        epilog="example: hive scale cartpole-ppo-1 collection.workers=4 gradients.workers=2",
    )
    add_run_and_settings(scale, "KEY=COUNT", "collection.workers=N or gradients.workers=N")
    scale.set_defaults(run=run_scale)


def run_scale(options: argparse.Namespace) -> int:
    """Run `hive scale`. Raises UsageError if the new topology cannot be built; the run then continues unchanged."""
    name, settings = run_and_settings(options)
    directory = live_run(name)
    with connected(directory) as client:
        before, begun = client.status(), time.monotonic()
        client.scale(settings)
        while (status := client.status())["stage"] == before["stage"] or status["state"] in ("starting", "draining"):
            time.sleep(POLL_S)
    if status["refused"]:
        raise UsageError(f"{directory.name} continues unchanged: {status['refused']}")
    counts = " ".join(settings)
    print(f"{directory.name} {status['state']} with {counts} after {time.monotonic() - begun:.1f} s")
    return 0


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
