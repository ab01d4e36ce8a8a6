"""`hive down`: ends a run and waits until it has ended. Ctrl-C ends the command, but does not cancel the request."""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any

from hive.cli.parts.arguments import ONLY_LIVE_RUN, add_run
from hive.errors import HiveError, UsageError
from hive.launch.control import POLL_S, WaitReporter, connected, late_actors, print_to_stderr
from hive.launch.run_report import kept
from hive.launch.select_run import live_run, name_from_here
from hive.records import (
    RunDirectory,
    RunFacts,
    Summary,
    is_alive,
    list_checkpoints,
    read_run_facts,
    run_state,
)
from hive.records.owner import owner_of
from hive.runtime.process.pidfds import has_exited, opened, send_signal
from hive.runtime.process.spawning import is_supervisor
from hive.runtime.run.control import ControlClient, control_path


def add_down(commands: Any) -> None:
    down = commands.add_parser(
        "down",
        description="End a run and wait until it has ended. It finishes the work in progress and saves its state, so "
        "`hive resume` can continue it.",
        epilog="example: hive down cartpole-ppo-1",
    )
    add_run(down, ONLY_LIVE_RUN)
    down.add_argument("--now", action="store_true", help="kill all processes at once; nothing is saved")
    down.set_defaults(run=run_down)


def run_down(options: argparse.Namespace) -> int:
    directory = live_run(options.run_name)
    facts = read_run_facts(directory)
    if is_alive(facts) and not control_path(Path(facts.socket_folder)).exists():
        _end_by_signal(directory, facts, options.now)
    else:
        with connected(directory) as client:
            client.down("hive down", now=options.now)
            waits = WaitReporter()
            while is_alive(facts) or owner_of(directory) is not None:
                waits.wait(lambda: _draining(client) or "the supervisor")
    summary = Summary.read(directory.summary_file) if directory.summary_file.exists() else None
    print(f"{directory.name} {summary.state if summary else run_state(directory)}")
    if summary is not None and summary.state == "stopped":
        saved = list_checkpoints(directory.checkpoints)
        more = f" · to continue it: hive resume {name_from_here(directory)}" if saved else ""
        print_to_stderr(kept(summary, saved).removeprefix(";").strip() + more)
    if summary is not None and summary.state == "failed":  # while it ended, its final state may not have been saved
        print_to_stderr(f"error: {summary.error or summary.stop_reason}")
        return HiveError.exit_code
    return 0


def _end_by_signal(directory: RunDirectory, facts: RunFacts, now: bool) -> None:
    """End a run whose socket folder was removed by signals to its supervisor; a second one ends it at once.

    Raises UsageError if run.json, which may be anybody's, names another process.
    """
    if not is_supervisor(facts.pid):
        raise UsageError(f"{directory.run_file} names process {facts.pid}, which is no supervisor of hive")
    print_to_stderr(f"the socket folder of {directory.name} is gone: ending its supervisor ({facts.pid}) by SIGTERM")
    waits = WaitReporter()
    if (pidfd := opened(facts.pid, lambda: is_alive(facts))) is not None:
        send_signal(pidfd, signal.SIGTERM)
        while now and not has_exited(pidfd, POLL_S):  # signals that arrive together count as one
            send_signal(pidfd, signal.SIGTERM)
        os.close(pidfd)
    while is_alive(facts):
        waits.wait(lambda: "the supervisor")


def _draining(client: ControlClient) -> str:
    """Return the actors that have not stopped yet as text; "" if the supervisor does not answer."""
    try:
        return late_actors(client.status())
    except UsageError:
        return ""  # the run is ending
