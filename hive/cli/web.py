"""The command `web`: serves the web page of runs (hive.web) until Ctrl-C. It never affects a run.

The packages of the extra `web` are imported only here and only when the command is called.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from hive.cli.monitor import NICE
from hive.cli.parts.arguments import add_runs
from hive.distribution import pip_install
from hive.errors import UsageError
from hive.launch.select_run import live_elsewhere, named_run
from hive.records import RunDirectory, find_runs, home_folder
from hive.versions import check_versions

LOOPBACK = "127.0.0.1"
EXTRA = ("starlette", "uvicorn", "anyio", "h11", "click")  # packages of the extra `web`, and what these need


def add_web(commands: Any) -> None:
    web = commands.add_parser(
        "web",
        description="Serve a web page of runs: overview, learning curves, actors, logs, configs and evaluations. "
        "Ctrl-C ends the page; runs continue. The printed URL contains a token, which only actions need.",
        epilog="example: hive web cartpole-ppo-1 cartpole-ppo-2",
    )
    add_runs(web, "all runs, also those that start later")
    web.add_argument("--port", type=int, metavar="N", help="port to listen at (default 4483, or a free one)")
    web.add_argument(
        "--host",
        default=LOOPBACK,
        help="address to listen at (default 127.0.0.1); at others all requests need the token",
    )
    web.set_defaults(run=run_web)


def run_web(options: argparse.Namespace) -> int:
    find = _finder(options.runs)
    check_versions(["starlette", "uvicorn"])
    try:
        from hive.web.server import PORT, bind, serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        raise UsageError("`hive web` needs Starlette and uvicorn", hint=pip_install("web")) from error
    listener = bind(options.host, options.port)
    if options.port is None and listener.getsockname()[1] != PORT:
        print(f"port {PORT} is taken by another program: using a free one", file=sys.stderr)
    os.nice(max(NICE - os.nice(0), 0))  # the page must not take CPU time from the runs
    serve(listener, options.host, find, lambda url: print(url, flush=True))
    return 0


def _finder(names: Sequence[str]) -> Callable[[], Sequence[RunDirectory]]:
    """Return a function that returns the runs to serve, newest last. Raises UsageError for an unknown name."""
    if names:
        chosen = [named_run(name) for name in names]
        return lambda: chosen
    return lambda: [*live_elsewhere(), *find_runs(home_folder())]
