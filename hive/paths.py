"""Paths as users write them: `~` where no shell has replaced it, and relative ones in a folder that was deleted."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

from hive.errors import UsageError

SESSION_FILE = "session.py"
"""The file of a run's directory with the classes and functions of the program that started the run."""

GIVEN = "given"
"""The folder of a run's directory with the checkpoints of other runs that it needs."""


def user_path(text: str | os.PathLike[str]) -> Path:
    """Return a path that a user has written, with `~` and `~name` replaced, as units of systemd and Dockerfiles need.

    Raises UsageError if there is no such user or no home folder.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError(f"`{text}`: {str(error).rstrip('.').lower()}", hint="write the whole path") from None


def short_reference(text: str) -> str:
    """Return a reference to a class or function for people: without the folder of its file, or the run's `session.py`.

    `/home/me/runs/coin-ppo-1/session.py:Coin` is `Coin`, and `/home/me/envs.py:Coin` is `envs.py:Coin`.
    """
    place, _, name = text.rpartition(":")
    file = PurePath(place).name
    return f"{file}:{name}".removeprefix(f"{SESSION_FILE}:") if file.endswith(".py") else text


def current_folder() -> Path | None:
    """Return the current folder; None if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def check_current_folder() -> None:
    """Raise UsageError if the current folder was deleted: relative paths lead nowhere, and no process can start."""
    if current_folder() is None:
        raise UsageError("the current folder was deleted", hint="change to another folder, then repeat the command")
