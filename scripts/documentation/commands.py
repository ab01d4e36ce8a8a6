"""The page on commands, made from the parsers of the command line."""

from __future__ import annotations

import argparse
import re

from hive.cli import COMMANDS, GROUPS, parser


def escaped(text: str) -> str:
    """Return text for a cell of a table."""
    return re.sub(r"\s+", " ", text.replace("|", "\\|")).strip()


def subparsers(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the subcommands, by name."""
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def names_of(action: argparse.Action) -> str:
    """Return how an argument is written: `-o FILE`, `--output FILE`."""
    value = action.metavar if isinstance(action.metavar, str) else action.dest
    if action.choices is not None and action.metavar is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return f"`{value}`"
    shown = value if action.metavar or action.choices else value.upper()
    return ", ".join(f"`{option}`" if action.nargs == 0 else f"`{option} {shown}`" for option in action.option_strings)


def section_of(name: str, command: argparse.ArgumentParser) -> str:
    """Return the section of one command."""
    rows = [
        f"| {escaped(names_of(action))} | {escaped((action.help or '') % {**vars(action), 'prog': command.prog})} |"
        for action in command._actions
        if action.help is not argparse.SUPPRESS and "--help" not in action.option_strings
    ]
    parts = [f"### hive {name}", escaped(command.description or COMMANDS[name][1])]
    if rows:
        parts.append("\n".join(["| argument | meaning |", "|---|---|", *rows]))
    if command.epilog:
        parts.append(f"```text\n{command.epilog.strip()}\n```")
    return "\n\n".join(parts)


def commands_page() -> str:
    """Return the page: every command with its arguments, by purpose."""
    known = subparsers(parser())
    parts = [
        "# Commands",
        "<!-- Made by `scripts/docs --write` from hive/cli. -->",
        "`hive COMMAND --help` prints the same. Exit codes: 0 done or stopped on request, 1 failed, 2 wrong usage or "
        "config, 3 hive cannot run on this machine, 130 interrupted.",
    ]
    for purpose, commands in GROUPS.items():
        parts.append(f"## {purpose.capitalize()}")
        parts += [section_of(name, known[name]) for name in commands]
    return "\n\n".join(parts) + "\n"
