"""`hive up`: starts a run and shows its progress (hive.launch.foreground), or continues an ended one.

What starts runs is imported by the command only: a shell that completes its options waits for this module.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hive.cli.parts.arguments import add_config_file, add_start, add_topology, check_start, whole_number
from hive.errors import UsageError

if TYPE_CHECKING:
    from hive.records import RunDirectory


def add_up(commands: Any) -> None:
    up = commands.add_parser(
        "up",
        description="Start a run and show its progress. Leaving the view (key d) does not stop the run; Ctrl-C does, "
        "after saving its state.",
        epilog="example: hive up examples/cartpole-ppo.toml --set collection.workers=2",
    )
    add_config_file(up, nargs="?")
    up.add_argument("--resume", metavar="RUN", help="continue an ended run, as `hive resume RUN` does")
    add_start(up, exact="with --resume: as `hive resume --exact`")
    add_topology(up)
    up.add_argument(
        "--continue",
        action="store_true",
        dest="continues",
        help="continue the newest run of this name and seed if it has not finished; begin it if there is none",
    )
    up.add_argument("--seed", type=int, help="random seed; the same as --set run.seed=SEED")
    up.add_argument("--seeds", metavar="1..5", help="start one run after another with these seeds, and show a table")
    up.add_argument(
        "--jobs",
        type=whole_number("number of jobs", 1),
        metavar="N",
        help="with --seeds: up to N runs at once, each on its share of the cores (default: 1)",
    )
    up.add_argument("-n", "--name", help="name of the run, to which a number is appended; as --set run.name=NAME")
    up.set_defaults(run=run_up)


def run_up(options: argparse.Namespace) -> int:
    from hive.launch.foreground import launch
    from hive.records.owner import descriptor_of

    check_start(options)
    if options.jobs is not None and options.seeds is None:
        raise UsageError("--jobs needs --seeds", hint="hive up CONFIG --seeds 1..5 --jobs 2")
    if options.resume is not None:
        from hive.launch.resuming import prepare

        if options.name is not None:
            raise UsageError("a resumed run keeps its name", hint="hive up --resume RUN, without --name")
        if options.continues:
            raise UsageError("--continue finds the run by its config", hint="hive up CONFIG --continue")
        if options.seeds is not None:
            raise UsageError("a resumed run keeps its seed", hint="hive up --resume RUN, without --seeds")
        sets = [*options.set, *([f"run.seed={options.seed}"] if options.seed is not None else [])]
        directory = prepare(options.resume, exact=options.exact, sets=sets, given=options.config)
        return launch(directory, inline=options.inline, detach=options.detach, json=options.json)
    if options.config is None and options.topology is None:
        raise UsageError("no config given", hint="hive up CONFIG, hive up --topology FILE.py, or hive up --resume RUN")
    keys = {"run.seed": options.seed, "run.name": options.name, "run.topology": options.topology}
    overrides = [*options.set, *(f"{key}={json.dumps(value)}" for key, value in keys.items() if value is not None)]
    if options.seeds is not None:
        from hive.cli.parts.seed_sweep import run_seeds, seeds_of

        _check_seeds_options(options)
        return run_seeds(options.config, overrides, seeds_of(options.seeds), options.jobs or 1, maker=_maker(options))
    directory = _maker(options)(options.config, overrides)
    if descriptor_of(directory) is None:  # it has finished before
        return 0
    return launch(directory, inline=options.inline, detach=options.detach, json=options.json)


def _maker(options: argparse.Namespace) -> Callable[..., RunDirectory]:
    """Return the function that makes the run's directory, or finds it."""
    from hive.launch.continuing import begin_or_continue
    from hive.launch.new_run import new_run

    return begin_or_continue if options.continues else new_run


def _check_seeds_options(options: argparse.Namespace) -> None:
    """Raise UsageError for options that cannot be combined with `--seeds`."""
    others = {
        "--seed": options.seed is not None,
        "--detach": options.detach,
        "--inline": options.inline,
        "--json": options.json,
    }
    if given := [name for name, is_given in others.items() if is_given]:
        raise UsageError(
            f"--seeds cannot be combined with {' and '.join(given)}",
            hint="the command starts several runs, and must keep running to start the next",
        )
