"""The command `join`: makes this machine a host of a run whose head is another machine."""

from __future__ import annotations

import argparse
import math
from typing import Any

from hive.errors import UsageError
from hive.launch.control import print_to_stderr
from hive.paths import user_path

WAIT_S = 300.0  # longer than a restart of the head, shorter than an allocation that should not be wasted


def add_join(commands: Any) -> None:
    join = commands.add_parser(
        "join",
        description="Run collectors of a run whose head is another machine. FILE is `hosts/<name>.join` in the "
        "directory of the run; it holds the address and the keys of the host `<name>`. The command ends with the run, "
        "and joins again after the connection was lost.",
        epilog="example: hive join runs/pong-1/hosts/left.join",
    )
    join.add_argument("file", type=user_path, metavar="FILE", help="the join file of this host")
    join.add_argument(
        "--wait",
        type=float,
        default=WAIT_S,
        metavar="SECONDS",
        help=f"how long to try to reach the head (default {WAIT_S:.0f})",
    )
    join.set_defaults(run=run_join)


def run_join(options: argparse.Namespace) -> int:
    if not options.wait >= 0 or math.isinf(options.wait):
        raise UsageError(f"--wait {options.wait} is not a number of seconds")
    from hive.hosts.agent import run_agent
    from hive.hosts.files import JoinFile

    return run_agent(JoinFile.read(options.file), options.wait, print_to_stderr)
