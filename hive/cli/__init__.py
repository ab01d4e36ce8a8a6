"""The command line. `main` parses, dispatches, and turns errors into text and exit codes.

    0 finished, or stopped on request     1 the run failed     2 usage or config     3 platform     130 stopped at once

Thin: every command is a function of a module beside this one that calls what scripts call. Nothing here imports torch,
and of the modules only the one that has the command is loaded, so that `hive --help` and `hive ps` answer at once.
stdout carries data, stderr carries talk.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any, NoReturn

from hive import __version__
from hive.errors import HiveError, PlatformError, UsageError

__all__ = ["main", "parser"]

# Every command: the module beside this one whose `add_COMMAND` declares it, and what it does. Run, look, care.
COMMANDS = {
    "init": ("files", "write a commented config that works"),
    "check": ("check", "build everything, draw it, try it for a moment"),
    "config": ("files", "every key of a config, with its origin"),
    "up": ("up", "start a run from a config"),
    "down": ("control", "end a run: drain, save, stop"),
    "pause": ("control", "let a run stand still, with all that it has in memory"),
    "resume": ("up", "go on with a paused run, or with an ended one"),
    "set": ("control", "change a hyper-parameter of a running run"),
    "scale": ("control", "change the numbers of workers of a running run"),
    "save": ("control", "write a checkpoint of a running run now"),
    "eval": ("evaluate", "play whole episodes with the policy of a run: how good is it"),
    "ls": ("listing", "runs"),
    "ps": ("listing", "the processes of a run"),
    "monitor": ("monitor", "look at a run live"),
    "logs": ("listing", "logs of a run, merged by time"),
    "stack": ("inspect", "what actors are executing right now"),
    "story": ("inspect", "how actors came to be as they are"),
    "doctor": ("doctor", "what is wrong with this machine, or with a run"),
}

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
            from hive.cli.suggest import did_you_mean

            raise UsageError(
                f"no command `{value}`{did_you_mean(str(value), action.choices)}",
                hint="`hive --help` lists the commands",
            )
        super()._check_value(action, value)


class _Commands(argparse._SubParsersAction):  # type: ignore[type-arg]
    """The commands; what each does is said in the table above, and nowhere else."""

    def add_parser(self, name: str, **options: Any) -> Any:
        return super().add_parser(name, help=COMMANDS[name][1], **options)


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """All commands and their options; with `only`, the options of that one, and of the others the names."""
    top = _Parser(
        prog="hive",
        description="Reinforcement learning on one machine with many processes.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"hive {__version__}")
    commands = top.add_subparsers(action=_Commands, dest="command", metavar="COMMAND", parser_class=_Parser)
    for name, (module, _) in COMMANDS.items():
        if only is None or name == only:
            getattr(importlib.import_module(f"hive.cli.{module}"), f"add_{name}")(commands)
        else:
            commands.add_parser(name)
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
        words = sys.argv[1:] if arguments is None else arguments
        known = parser(only=words[0] if words else "")
        try:
            options = known.parse_args(words)
            if options.command is None:
                from hive.cli.listing import run_nothing

                sys.exit(run_nothing(known))
            from hive.runtime.folders import sweep

            # doctor says itself what is wrong with the folder of sockets
            swept = sweep() if options.command != "doctor" else []
            if swept:
                from hive.cli.select_run import say_swept

                say_swept(swept)
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
