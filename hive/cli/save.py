"""`hive save`: writes a checkpoint of a running run now, or the replay memory of any run to a file.

    $ hive save cartpole-dqn-1
    runs/cartpole-dqn-1/checkpoints/005230
    $ hive save cartpole-dqn-1 --replay memory.npz          # of a live run, of a checkpoint that is written now
    memory.npz: 10,000 transitions, 0.6 MB

hive.records.transitions describes the file.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hive.cli.parts.arguments import add_run
from hive.cli.parts.transitions_file import checked_file, written_text
from hive.errors import UsageError
from hive.launch.control import WaitReporter, connected, print_to_stderr
from hive.launch.select_run import chosen_run, live_run, say_default
from hive.paths import user_path
from hive.records import RunDirectory, policies_of, run_state
from hive.records.directory import POLICIES
from hive.records.jsonl import parse_line
from hive.records.tail import Tail

WHICH = "run directory or unique part of its name (default: the only live run; with --replay the newest run)"


def add_save(commands: Any) -> None:
    save = commands.add_parser(
        "save",
        description="Write a checkpoint of a running run now, and print its path. The run continues. With --replay, "
        "write the transitions in the replay memory of a run, live or ended, to a file.",
        epilog="example: hive save cartpole-dqn-1 --replay memory.npz",
    )
    add_run(save, WHICH)
    save.add_argument(
        "--replay",
        type=user_path,
        metavar="FILE",
        help="write the transitions in the replay memory to FILE.npz, from the newest checkpoint of a run that has "
        "ended, or from one of a live run that is written now",
    )
    save.set_defaults(run=run_save)


def run_save(options: argparse.Namespace) -> int:
    if options.replay is not None:
        return _save_replay(options)
    directory, waits = live_run(options.run_name), WaitReporter()
    print(*_saved_now(directory, waits), sep="\n")
    return 0


def _saved_now(directory: RunDirectory, waits: WaitReporter) -> list[str]:
    """Let a live run write a checkpoint of each policy and return their paths, the first policy's first.

    Raises UsageError if it cannot.
    """
    policies, paths = max(1, len(policies_of(directory))), list[str]()
    event_log = Tail(directory.events_file, 0)
    event_log.skip()
    with connected(directory) as client:
        client.save()
    while True:
        alive = run_state(directory) == "running"  # must be read before the events, or the last events could be missed
        for event in filter(None, map(parse_line, event_log.lines())):
            if event.get("by_hand") is False or event.get("method", "save") != "save":
                continue  # a checkpoint that was due then, or another request
            if event.get("kind") == "saved":
                paths.append(str(event.get("path", "")))
            if event.get("kind") in ("not saved", "not done"):
                raise UsageError(f"{directory.name} was not saved: {event.get('text')}")
        if len(paths) >= policies:
            return sorted(paths, key=lambda path: f"/{POLICIES}/" in path.removeprefix(str(directory.path)))
        if not alive:
            raise UsageError(f"{directory.name} ended before it was saved")
        waits.wait(lambda: "the recorder")


def _save_replay(options: argparse.Namespace) -> int:
    """Write the transitions of a run's memory; return the exit code."""
    file: Path = checked_file(options.replay)
    run = chosen_run(options.run_name)
    say_default(options.run_name, run)
    from hive.config import load_config

    if load_config(run.resolved_file).replay_shape is None:
        raise UsageError(
            f"{run.name} has no replay memory", hint="`hive record ENV --policy RUN -o FILE` plays its policy instead"
        )
    place = _saved_now(run, WaitReporter())[0] if run_state(run) in ("running", "paused") else str(run.path)
    from hive.policy.transitions import fields_of  # these import torch, which takes a second
    from hive.records.transitions import write_transitions
    from hive.training.update.given_rows import saved_transitions

    transitions, observation, action = saved_transitions(place, lambda text: print_to_stderr(f"warning: {text}"))
    write_transitions(file, fields_of(transitions, observation, action))
    print(written_text(file, len(transitions)))
    return 0
