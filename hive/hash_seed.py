"""One hash seed for all processes of a run: Python salts the hashes of texts, and iterates sets of them in that order.

An observation that is made in the order of a set would mean something else in each process. So hive sets PYTHONHASHSEED
to SEED wherever it starts Python for users' code, unless the caller has set it. Supervisors and the web server, which
read names that strangers chose, keep a salt of their own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "PYTHONHASHSEED"
SEED = "0"
OTHER_SEED = "1"  # `hive check --env` plays an environment with it, too, because a difference shows that hashes matter
DEFAULT = {VARIABLE: SEED}  # for the environment of a process, before os.environ
PROGRAM_FILE = "program.json"  # in the directory of a run (hive.records.program)
IMPORTING = ("init", "check", "eval", "export", "play", "record")  # commands that import users' code themselves


def seed_of(run: Path) -> str:
    """Return the hash seed of the run in a directory, for a process that must not wait for the records."""
    try:
        seed = json.loads((run / PROGRAM_FILE).read_text())["hash_seed"]
    except (OSError, ValueError, LookupError, TypeError):
        return SEED
    return seed if isinstance(seed, str) and (seed == "random" or seed.isdecimal()) else SEED


def is_command(words: Sequence[str]) -> bool:
    """Whether a process with this command line is the command `hive`, and no program that calls its functions."""
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    return os.path.basename(script) == "hive"  # also `python -m hive`


def settle(words: Sequence[str]) -> None:
    """Execute the command `hive` anew with the hash seed, if these words name one that imports users' code."""
    if words and (words[0] in IMPORTING or "--inline" in words) and VARIABLE not in os.environ:
        execute_with(SEED)


def execute_with(seed: str) -> None:
    """Execute the command `hive` anew with this hash seed; do nothing in other programs, and if it has it already."""
    if not is_command(sys.orig_argv) or os.environ.get(VARIABLE) == seed:
        return
    os.environ[VARIABLE] = seed
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
