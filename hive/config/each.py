"""Differences between the environments of a run: placeholders in texts of [env], and the entries of env.each.

    env.options = { port = "{index + 47000}", folder = "/tmp/{run}/{index}" }
    env.each = [{ index = 3, options = { map = "town" } }, { index = [0, 1], reset_options = { level = 2 } }]

Environments are numbered over all collectors of a run; those of its evaluators follow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

PLACEHOLDER = re.compile(r"\{(?:(index|seed|incarnation|run)|index ?([+-]) ?([0-9]{1,9}))\}")
"""A name, or the sign and the number that are added to the index. All other text in braces stays as it is."""

FIELDS = ("options", "reset_options")


def has_placeholders(value: Any) -> bool:
    """Whether a text in `value`, at any depth, has a placeholder."""
    match value:
        case str():
            return PLACEHOLDER.search(value) is not None
        case Mapping():
            return any(map(has_placeholders, value.values()))
        case list() | tuple():
            return any(map(has_placeholders, value))
    return False


def indices_of(entry: Mapping[str, Any]) -> Sequence[int]:
    """Return the indices that an entry of env.each is for."""
    index = entry["index"]
    return index if isinstance(index, list | tuple) else [index]


def are_each(entries: Sequence[Any]) -> bool:
    """Whether each has an index or several, options of one kind at least, and nothing else."""
    for entry in entries:
        if not isinstance(entry, Mapping) or "index" not in entry or not entry.keys() & {*FIELDS}:
            return False
        tables = [value for name, value in entry.items() if name in FIELDS]
        if len(tables) < len(entry) - 1 or not all(isinstance(table, Mapping) for table in tables):
            return False
        indices = indices_of(entry)
        if not indices or not all(type(index) is int and index >= 0 for index in indices):
            return False
    return True


def overridden(each: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the entries of env.each without the options of these names, which are the same for all environments."""
    return tuple(
        {**entry, "options": {name: value for name, value in entry.get("options", {}).items() if name not in options}}
        for entry in each
    )


def training_indices(collectors: int, envs: int) -> range:
    """Return the indices of the environments of all collectors: collector c has c * envs and those that follow."""
    return range(collectors * envs)


def evaluator_indices(training: range, evaluators: int, envs: int) -> range:
    """Return the indices of the environments of all evaluators, which follow those of training."""
    return range(training.stop, training.stop + evaluators * envs)


def outside(entries: Sequence[Mapping[str, Any]], known: Sequence[range]) -> int | None:
    """Return the first index in env.each that no environment has; None if there is none."""
    indices = (index for entry in entries for index in indices_of(entry))
    return next((index for index in indices if not any(index in numbers for numbers in known)), None)
