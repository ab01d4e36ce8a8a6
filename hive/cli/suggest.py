"""Suggests the closest known name for a misspelled one, and lists names, in the errors of commands.

Errors of the config have their own suggestions (hive.config.load), which are shown beside marks in the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "listed"]

LONGEST_WORD = 80  # characters of a word that are compared: comparing megabytes would take too long
NAMES_SHOWN = 20  # maximum names in a list, a few lines of a terminal: a run can have hundreds of actors


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of an error about `word`: "; did you mean `x`?", or "" if no known word is close."""
    near = difflib.get_close_matches(word[:LONGEST_WORD], known, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Join the names with commas; of more than NAMES_SHOWN, only the first ones and the number of the others."""
    every = list(names)
    more = f" and {len(every) - NAMES_SHOWN} more" if len(every) > NAMES_SHOWN else ""
    return ", ".join(every[:NAMES_SHOWN]) + more
