"""The command line. `main` parses arguments, calls the command, and turns errors into text and exit codes.

    0 finished, or stopped on request     1 the run failed     2 usage or config     3 platform
    130 interrupted by Ctrl-C, or ended at once     143, 129 `up` and `resume` by SIGTERM, SIGHUP before the run began

Each command is a function in a module of this package, built on the functions that scripts call. No module here imports
torch, and only the module of the given command is loaded, so that `hive --help` and `hive ps` are fast. Data goes to
stdout, messages go to stderr.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from contextlib import ExitStack
from typing import Any, NoReturn

from hive import __version__
from hive.errors import HiveError, PlatformError, UsageError
from hive.hash_seed import settle
from hive.paths import check_current_folder, current_folder
from hive.printable import printable_output
from hive.versions import check_versions

__all__ = ["main", "parser"]

# Purpose -> command -> the module of this package whose `add_COMMAND` declares it, and its help text, in the order of
# `hive --help`.
GROUPS = {
    "train": {
        "init": ("init", "write a commented config that works"),
        "check": ("check", "check a config: build and draw its topology, and run it briefly"),
        "config": ("config", "show every key of a config and where its value comes from"),
        "up": ("up", "start a run"),
        "resume": ("resume", "continue a run that is paused or has ended"),
    },
    "watch and control": {
        "ls": ("ls", "list runs"),
        "ps": ("ps", "list the processes of a run"),
        "monitor": ("monitor", "show a live view of a run"),
        "web": ("web", "serve a web page of runs"),
        "logs": ("logs", "show the logs of a run, merged by time"),
        "stack": ("live", "show what actors are executing now"),
        "history": ("history", "show the last transitions and events of actors"),
        "pause": ("live", "pause a run and keep its state in memory"),
        "set": ("live", "change hyperparameters of a running run"),
        "scale": ("live", "change the number of workers of a running run"),
        "save": ("save", "write a checkpoint of a running run, or its replay memory"),
        "down": ("down", "end a run: drain it, save its state and stop it"),
    },
    "results": {
        "eval": ("evaluate", "measure the policy of a run by playing whole episodes"),
        "play": ("play", "watch the policy of a run in a window, or record it to a video"),
        "record": ("record", "play a policy and write its transitions to a file"),
        "compare": ("compare", "compare the results of runs over seeds"),
        "plot": ("plot", "draw learning curves as PNG or SVG"),
        "export": ("export", "write the policy of a run to a file for other programs"),
    },
    "machine": {
        "doctor": ("doctor", "find problems with this machine or with a run"),
        "prune": ("prune", "delete surplus checkpoints, leftovers and runs that never began"),
        "join": ("join", "make this machine a host of a run on another machine"),
        "completion": ("completion", "print a script that completes hive's commands in a shell"),
    },
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}

# Commands that use environments and policies.
PLAYING = ("init", "check", "up", "join", "resume", "eval", "export", "play", "record")

# Commands that start processes, or whose arguments are files; the others only need the folder of runs.
IN_A_FOLDER = (*PLAYING, "config", "save", "compare", "plot")

EXAMPLES = """examples:
  hive init CartPole-v1                   write a config: cartpole-ppo.toml
  hive up cartpole-ppo.toml               train in the foreground
  hive up cartpole-ppo.toml -d; hive ps   train in the background
"""


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports errors as all of hive does: one `error:` line, a hint, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=_hint_for_option(message) or f"`{self.prog} --help` shows its usage")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices and action.dest == "command":
            from hive.launch.suggest import command_meant

            meant = command_meant(str(value), action.choices)
            raise UsageError(f"no command `{value}`{meant}", hint="" if meant else "`hive --help` lists the commands")
        super()._check_value(action, value)


def _hint_for_option(message: str) -> str:
    """Return the hint for an unknown argument that is a key of the config, such as `--lr` or `lr=1`; else ""."""
    if setting := re.match(r"unrecognized arguments: ([\w.]+=\S+)", message):
        return f"keys of the config are given as `--set {setting[1]}`"
    option = re.match(r"unrecognized arguments: --([\w-]+)", message)
    if option is None:
        return ""
    from hive.config.other_names import note_on

    note = note_on(option[1].replace("-", "_"))
    return note and f"{note}; keys of the config are given as `--set KEY=VALUE`"


class _Commands(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Adds commands with their help texts from COMMANDS."""

    def add_parser(self, name: str, **options: Any) -> Any:
        return super().add_parser(name, help=COMMANDS[name][1], **options)


def _listed_commands() -> str:
    """Return all commands with their help texts, by purpose. argparse itself knows one list only."""
    width = max(map(len, COMMANDS))
    lines = []
    for purpose, commands in GROUPS.items():
        lines += ["", f"{purpose}:", *(f"  {name:<{width}}  {text}" for name, (_, text) in commands.items())]
    return "\n".join(lines)


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands. With `only`, just that command has its options, the others only names."""
    top = _Parser(
        prog="hive",
        usage="hive COMMAND ...",
        description=f"Reinforcement learning on one machine with many processes.\n{_listed_commands()}",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"hive {__version__}")
    commands = top.add_subparsers(
        action=_Commands, dest="command", prog="hive", help=argparse.SUPPRESS, parser_class=_Parser
    )
    for name, (module, _) in COMMANDS.items():
        if only is None or name == only:
            getattr(importlib.import_module(f"hive.cli.{module}"), f"add_{name}")(commands)
        else:
            commands.add_parser(name)
    return top


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the `hive` command with `arguments` (default: those of the process) and exit with its exit code."""
    if arguments is None:
        settle(sys.argv[1:])
    with ExitStack() as at_last, printable_output():
        _main(arguments, at_last)


def _main(arguments: list[str] | None, at_last: ExitStack) -> NoReturn:
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions, by the script of `hive completion`
        from hive.cli.completion import complete

        complete(parser)
    try:
        words = sys.argv[1:] if arguments is None else arguments
        _check_surroundings(words)
        if words[:1] in (["up"], ["resume"]):
            from hive.launch import early_start
            from hive.launch.interrupts import raising_interrupts

            at_last.enter_context(raising_interrupts())
            at_last.callback(early_start.abandon)  # after an error has been shown
            early_start.begin(words)
        try:
            sys.exit(_run(words))
        finally:
            sys.stdout.flush()  # here and not at exit, so that a closed pipe raises BrokenPipeError below
    except HiveError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt as interrupt:
        sys.exit(getattr(interrupt, "exit_code", 130))
    except BrokenPipeError:  # the reader stopped reading, as in `hive logs | head`: not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # receives the rest when Python flushes at exit
        sys.exit(0)


def _check_surroundings(words: list[str]) -> None:
    """Make modules of the current folder importable.

    Raises PlatformError, also for packages that are too old for hive, and UsageError for a folder that is gone.
    """
    if sys.platform != "linux":
        raise PlatformError(
            f"hive runs on Linux only, and this platform is {sys.platform}",
            hint="use a container or a virtual machine with Linux",
        )
    folder = current_folder()
    if folder is not None and str(folder) not in sys.path:
        # For custom "package.module:Class". The current folder comes last, so that it cannot hide other modules.
        sys.path.append(str(folder))
    elsewhere = os.environ.get("HIVE_HOME", "").startswith(("/", "~"))
    if folder is None and words[:1] != ["--version"] and (not elsewhere or not words or words[0] in IN_A_FOLDER):
        check_current_folder()
    if words and words[0] in PLAYING:
        check_versions()


def _run(words: list[str]) -> int:
    """Run the command that these words name; return its exit code."""
    known = parser(only=words[0] if words else "")
    options = known.parse_args(words)
    if options.command is None:
        from hive.cli.ls import run_without_command

        return run_without_command(known)
    from hive.runtime.process.user_code.user_exits import raising_on_exit
    from hive.runtime.run.folders import sweep

    # `doctor` reports problems with the folder of sockets itself, where `sweep` would raise.
    if options.command != "doctor" and (swept := sweep()):
        from hive.launch.select_run import report_swept

        report_swept(swept)
    with raising_on_exit():
        return int(options.run(options))
