"""`hive check`: builds everything that a run would, draws it, and tries it for a moment in this one process.

    config -> topology -> plan, drawn -> 200 steps of all actors, in memory and in a folder that goes

What a run would stumble over in its first seconds is found here, where a debugger works. It starts no process and
leaves no run behind.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from hive.cli.drawing import lines_of, svg_of
from hive.cli.starting import new_run
from hive.config import load_config
from hive.errors import ActorFailed, UsageError
from hive.records import Summary, read_jsonl
from hive.runtime.error_location import place_in
from hive.runtime.plan import Plan

__all__ = ["add_check"]

STEPS = 200  # of environments: a round of everything
LIMIT_S = 8.0  # of a topology that does not end by itself; with the start it stays under ten seconds
GRACE_S = 4.0  # from being asked to stop: the longest step of a healthy environment that is worth waiting for here


def add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        description="Checks config, environment, network and topology.",
        epilog="example: hive check cartpole.toml --svg cartpole.svg",
    )
    check.add_argument("config", type=Path)
    check.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key (repeat)")
    check.add_argument("--svg", type=Path, metavar="FILE", help="draw it as a picture too")
    check.add_argument("--draw", action="store_true", help="only draw it, try nothing")
    check.add_argument("--json", action="store_true", help="one JSON object")
    check.set_defaults(run=run_check)


def run_check(options: argparse.Namespace) -> int:
    """Builds the topology in this process, by name: the schemes need torch, the command line does not."""
    from hive.runtime.building import build

    config = load_config(options.config, options.set)
    plan = build(config, Path("runs") / config.run.name, options.config).plan()
    if options.svg is not None:
        try:
            options.svg.write_text(svg_of(plan, config.run.name))
        except OSError as error:
            raise UsageError(f"cannot write `{options.svg}`: {error.strerror}") from None
    if not options.json:
        print("\n".join(lines_of(plan)))
    tried = None if options.draw else _try(options.config, options.set)
    if options.json:
        print(json.dumps(_as_data(plan) | ({} if tried is None else {"tried": tried}), indent=2))
    elif tried is not None:
        done = f"{tried['env_steps']:,} steps, {tried['updates']:,} updates"
        print(f"tried in this process: {done} in {tried['wall_s']:.1f} s")
    return 0


def _try(config: Path, sets: list[str]) -> dict[str, Any]:
    """Runs all of it inline, for STEPS steps or LIMIT_S. Raises what a run would end with."""
    from hive.runtime.run import run_inline

    home, begun = os.environ.get("HIVE_HOME"), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hive-check-") as folder:
        os.environ["HIVE_HOME"] = folder
        limits = [
            threading.Timer(LIMIT_S, os.kill, (os.getpid(), signal.SIGTERM)),  # which drains a run
            threading.Timer(LIMIT_S + GRACE_S, _give_up, (threading.get_ident(), folder)),
        ]
        try:
            directory = new_run(config, [*sets, f"run.steps={STEPS}", "checkpoint.every={}"])
            for limit in limits:
                limit.start()
            run_inline(directory)
        finally:
            for limit in limits:
                limit.cancel()
            os.environ.pop("HIVE_HOME")
            if home is not None:
                os.environ["HIVE_HOME"] = home
        summary = Summary.read(directory.summary_file)
        faults = [event["text"] for event in read_jsonl(directory.events_file) if event["kind"] == "not finite"]
    if faults and not summary.updates:
        raise ActorFailed(
            f"none of its gradients could be applied: {faults[-1].partition('; its rollouts, inputs and weights')[0]}",
            hint="look for a division by zero, a logarithm of zero, or weights that begin too large",
        )
    if summary.error:
        text, _, hint = summary.error.partition("\n\nhint: ")
        raise ActorFailed(text, hint="" if folder in hint else hint)
    return {
        "state": summary.state,
        "env_steps": summary.env_steps,
        "updates": summary.updates,
        "wall_s": round(time.monotonic() - begun, 3),
    }


def _give_up(thread: int, folder: str) -> None:
    """Ends this process, whose `thread` does not come back from whatever it is in: no signal gets through to it."""
    place = place_in(sys._current_frames()[thread])
    error = ActorFailed(
        f"it has not come back for {GRACE_S:g} s" + (f" from {place}" if place else ""),
        hint="`hive up` gives a step as long as supervision.phase_limit_s, and then shows its stack",
    )
    sys.stdout.flush()
    print(error.render(), file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(error.exit_code)


def _as_data(plan: Plan) -> dict[str, Any]:
    sizes = {s.name: s.plan.bytes for s in plan.segments}
    return {
        "processes": {name: [plan.actors[n].name for n in numbers] for name, numbers in plan.processes.items()},
        "channels": [
            {
                "name": c.name,
                "carrier": c.carrier,
                "source": c.source,
                "targets": list(c.targets),
                "bytes": sum(sizes[s] for s in c.segments),
            }
            for c in plan.channels
        ],
        "bytes": plan.bytes,
    }
