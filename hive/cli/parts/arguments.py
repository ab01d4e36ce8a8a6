"""Arguments that several commands share, declared once.

A shell that completes a command waits for this module, so it imports nothing of the parts that commands work with.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from hive.errors import UsageError
from hive.paths import user_path

RUN = "name, unique prefix of a name, path or `latest`"

# The run that a command takes without RUN (hive.launch.select_run).
DEFAULT_RUN = "the live run in $HIVE_HOME, else the newest run there"
ONLY_LIVE_RUN = "the only live run in $HIVE_HOME"

SETTING = re.compile(r"[A-Za-z_][\w.]*=")  # how KEY=VALUE begins; names of runs have no `=`

RUNS = """runs:
  cartpole-ppo-3        one run: a name, a unique prefix of a name, a path or `latest`
  cartpole-ppo          all runs cartpole-ppo-<n> in $HIVE_HOME
  'cartpole-*'          all runs in $HIVE_HOME whose names match
  slow='cartpole-[45]'  runs as one group named `slow`
Other runs are grouped by config without seed, and by name without number."""

THEMES = ("light", "dark")  # those of hive.comparison.picture, which `hive --help` must not import


def add_run(command: argparse.ArgumentParser, default: str = DEFAULT_RUN) -> None:
    """Add an optional RUN; the parsed options have it as `run_name`. `default`: what the command takes without it."""
    command.add_argument("run_name", nargs="?", metavar="RUN", help=f"{RUN}; default: {default}")


def add_run_and_settings(command: argparse.ArgumentParser, metavar: str, help: str) -> None:
    """Add an optional RUN and one setting KEY=... or more, which `run_and_settings` returns."""
    add_run(command, ONLY_LIVE_RUN)
    command.add_argument("sets", nargs="+", metavar=metavar, help=help)


def run_and_settings(options: argparse.Namespace) -> tuple[str | None, list[str]]:
    """Return RUN, None without one, and the settings. argparse takes the first of several words for RUN.

    Raises UsageError if a setting has no `=`, such as a RUN without settings.
    """
    name: str | None = options.run_name
    settings: list[str] = options.sets
    if name is not None and SETTING.match(name):
        settings = [name, *settings]
        name = None
    if wrong := [word for word in settings if "=" not in word]:
        raise UsageError(f"`{wrong[0]}` is not a setting", hint="give RUN first, if at all, and then KEY=VALUE")
    return name, settings


def add_runs(command: argparse.ArgumentParser, default: str = DEFAULT_RUN) -> None:
    """Add any number of RUN; the parsed options have them as a list `runs`."""
    command.add_argument("runs", nargs="*", metavar="RUN", help=f"{RUN}; default: {default}")


def add_which(command: argparse.ArgumentParser, every: bool = False) -> None:
    """Add `--which`, the checkpoint of a run. `every`: whether the command also takes `all`."""
    command.add_argument(
        "--which",
        default="latest",
        help="latest (default): the newest checkpoint; best: the best policy by evaluation or training return; "
        f"{'all: every checkpoint; ' if every else ''}or the number of an update, as in checkpoints/",
    )


def add_policy(command: argparse.ArgumentParser) -> None:
    """Add `--policy`, the name of one of the policies of a run whose environment has several agents."""
    command.add_argument(
        "--policy", metavar="NAME", help="one of the policies of a run with several (default: the first)"
    )


def add_config_file(command: argparse.ArgumentParser, nargs: str | None = None) -> None:
    command.add_argument("config", type=user_path, nargs=nargs, help="a TOML file; `hive init ENV` writes one")


def add_topology(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--topology", metavar="FILE.py[:FUNCTION]", help="a custom topology; the same as --set run.topology=..."
    )


def add_overrides(command: argparse.ArgumentParser, help: str = "override a key of the config (repeatable)") -> None:
    """Add `-s KEY=VALUE`, `--set KEY=VALUE`; the parsed options have the texts as a list `set`."""
    command.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help=help)


def add_start(command: argparse.ArgumentParser, exact: str) -> None:
    """Add how a run is started, in the view or without one. `exact`: the help of `--exact`."""
    command.add_argument("--exact", action="store_true", help=exact)
    command.add_argument("-d", "--detach", action="store_true", help="return as soon as the run is running")
    command.add_argument(
        "--inline",
        action="store_true",
        help="run everything in this process, for debugging: breakpoints work, actors are not restarted",
    )
    add_overrides(command)
    command.add_argument(
        "--strict",
        action="append_const",
        dest="set",
        const="supervision.strict=true",
        help="end at the first error of an actor or a sink, with its traceback; as --set supervision.strict=true",
    )
    add_json(command, "a snapshot every 5 s as one JSON object a line")


def check_start(options: argparse.Namespace) -> None:
    """Raise UsageError for `--json` without a view whose snapshots could be printed."""
    if options.json and options.detach:
        raise UsageError(
            "--json cannot be combined with --detach: it prints snapshots until the run ends",
            hint="`hive ps --json` and `hive monitor --json` describe a run in the background",
        )


def add_json(command: argparse._ActionsContainer, what: str = "one JSON object") -> None:
    command.add_argument("--json", action="store_true", help=f"print {what}")


def whole_number(what: str, least: int, most: int | None = None) -> Callable[[str], int]:
    """Return the type of an option that is a whole number in this range. `what` is its name, for errors."""
    limits = f">= {least}" if most is None else f"from {least} to {most}"

    def read(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else -1
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"invalid {what} `{text}`: expected a whole number {limits}")
        return value

    return read


def add_theme(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--theme", choices=THEMES, default=THEMES[0], help=f"colors of the picture (default {THEMES[0]})"
    )
