"""Suggests the closest known name for a misspelled one, and lists names, in the errors of commands.

Errors of the config have their own suggestions (hive.config.load), which are shown beside marks in the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

# Word that newcomers type as a command -> what does it.
OTHER_COMMANDS: Mapping[str, str] = {
    "abort": "down --now",
    "attach": "monitor",
    "best": "eval --which best",
    "configure": "init",
    "continue": "resume",
    "create": "init",
    "curves": "plot",
    "dashboard": "monitor",
    "diff": "compare",
    "draw": "plot",
    "end": "down",
    "evaluate": "eval",
    "help": "--help",
    "kill": "down --now",
    "list": "ls",
    "new": "init",
    "quit": "down",
    "restart": "resume",
    "run": "up",
    "runs": "ls",
    "start": "up",
    "status": "ps",
    "stop": "down",
    "tail": "logs --follow",
    "test": "eval",
    "top": "monitor",
    "train": "up",
    "ui": "monitor",
    "unpause": "resume",
    "validate": "check",
    "version": "--version",
    "watch": "monitor",
}
REMOVING = ("clean", "del", "delete", "remove", "rm")  # no command does this

LONGEST_WORD = 80  # characters of a word that are compared: comparing megabytes would take too long
NAMES_SHOWN = 20  # maximum names in a list, a few lines of a terminal: a run can have hundreds of actors


def command_meant(word: str, known: Iterable[str]) -> str:
    """Return the end of an error about the unknown command `word`: what does it in hive, or the closest command."""
    if word in REMOVING:
        from hive.records import home_folder

        return f"; `hive prune` frees disk space; a run is a folder: `rm -r {home_folder()}/RUN` removes one"
    if word in OTHER_COMMANDS:
        return f"; hive calls it `hive {OTHER_COMMANDS[word]}`"
    return did_you_mean(word, known)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of an error about `word`: "; did you mean `x`?", or "" if no known word is close."""
    near = difflib.get_close_matches(word[:LONGEST_WORD], known, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Join the names with commas; of more than NAMES_SHOWN, only the first ones and the number of the others."""
    every = list(names)
    more = f" and {len(every) - NAMES_SHOWN} more" if len(every) > NAMES_SHOWN else ""
    return ", ".join(every[:NAMES_SHOWN]) + more
