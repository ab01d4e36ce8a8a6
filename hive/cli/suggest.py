"""Slips of the keyboard: what a word that names nothing was meant to be.

The configuration has its own (hive.config.load), beside its marks in the file; this is what commands say.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "listed"]

LONGEST_WORD = 80  # of which a likeness is sought: nobody waits for a comparison of megabytes
NAMES_SHOWN = 20  # a few lines of a terminal; a run of hundreds of actors has as many logs


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error about `word`: "; did you mean `x`?", or an empty string where nothing is near."""
    near = difflib.get_close_matches(word[:LONGEST_WORD], known, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def listed(names: Iterable[str]) -> str:
    """All names with commas between them, or the first few and how many more there are."""
    every = list(names)
    more = f" and {len(every) - NAMES_SHOWN} more" if len(every) > NAMES_SHOWN else ""
    return ", ".join(every[:NAMES_SHOWN]) + more
