"""The command line. `main` parses, dispatches, and turns errors into text and exit codes.

    0 finished, or stopped on request     1 the run failed     2 usage or config     3 platform     130 stopped at once

Thin: every command is a function of a module beside this one that calls what scripts call. Nothing here imports torch,
so that `hive --help` and `hive ps` answer at once. stdout carries data, stderr carries talk.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from hive import __version__
from hive.cli.check import add_check
from hive.cli.files import add_file_commands
from hive.cli.look import add_look_commands
from hive.cli.monitor import add_monitor_command
from hive.cli.slips import did_you_mean
from hive.cli.up import add_run_commands
from hive.errors import HiveError, PlatformError, UsageError

__all__ = ["main"]

EXAMPLES = """examples:
  hive init CartPole-v1 -o cartpole.toml     write a config
  hive up cartpole.toml                      train, in the foreground
  hive up cartpole.toml -d; hive ps          train in the background, look at it
"""


class _Parser(argparse.ArgumentParser):
    """argparse that speaks hive's way: one `error:` line, a hint, exit 2."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"`{self.prog} --help` shows how it is used")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices and action.dest == "command":
            raise UsageError(
                f"no command `{value}`{did_you_mean(str(value), action.choices)}",
                hint="`hive --help` lists the commands",
            )
        super()._check_value(action, value)


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = _Parser(
        prog="hive",
        description="Reinforcement learning on one machine with many processes.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"hive {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    add_run_commands(commands)
    add_look_commands(commands)
    add_monitor_command(commands)
    add_file_commands(commands)
    add_check(commands)
    return top


def main(arguments: list[str] | None = None) -> NoReturn:
    """The `hive` command."""
    try:
        if sys.platform != "linux":
            raise PlatformError(
                f"hive runs on Linux only, this is {sys.platform}",
                hint="a container or a virtual machine with Linux will do",
            )
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # "package.module:Class" of a user's own; last, so that it hides nothing
        known = parser()
        try:
            options = known.parse_args(sys.argv[1:] if arguments is None else arguments)
            if options.command is None:
                known.print_help()
                sys.exit(0)
            from hive.runtime.folders import sweep

            sweep()
            sys.exit(options.run(options))
        finally:
            sys.stdout.flush()  # now, not when Python ends: a reader that is gone is no error
    except HiveError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `hive logs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # takes what is still to be flushed
        sys.exit(0)
