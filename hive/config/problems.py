"""Collects the problems of a config and formats them as one error.

A *source* is the origin of a value: the file, or one `--set`. A source can point at a value in an error and can name
itself as an origin. `config_error` joins all problems in one error: first those of the file, sorted by line, then
those of `--set`:

    2 problems in `bad.toml` and `--set`

    bad.toml:9: collection.evns: unknown key
         9 | evns = 8
           | ^^^^ did you mean `envs`?

    --set run.seed=-1: expected an integer >= 0, got -1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hive.config.positions import KeyPath, Mark, Positions
from hive.config.values import SHOWN_LENGTH, toml_key
from hive.errors import ConfigError
from hive.printable import printable

PROBLEMS_SHOWN = 50  # maximum problems in an error, about two screens; the others are counted

HINT = "`hive init CartPole-v1` writes a config that works; `hive config` on it shows every key"


@dataclass(frozen=True)
class Problem:
    """One problem at `where` (`FILE:LINE` or `--set KEY=VALUE`). `note` is shown beside the last mark.

    lost: whether it looks as if the user has not seen a config of hive, so that an example is what helps.
    """

    order: tuple[int, int]
    where: str
    message: str
    marks: tuple[Mark, ...] = ()
    note: str = ""
    lost: bool = False

    def text(self) -> str:
        """Return the problem as lines of text, with the marked lines of the file."""
        if not self.marks:
            return f"{self.where}: {self.message}" + (f"; {self.note}" if self.note else "")
        lines = [f"{self.where}: {self.message}"]
        for mark in self.marks:
            if mark.text:
                lines += [f"{mark.line:>6} | {printable(mark.text)}"]
            lines += [f"{'':>6} | {' ' * mark.column}{'^' * mark.length}"]
        lines[-1] += (" " if self.marks[-1].text else "") + self.note
        return "\n".join(line.rstrip() for line in lines)


class ValueSource(Protocol):
    """The origin of values: the config file or one `--set`."""

    def origin(self, path: KeyPath) -> str:
        """Return a short name for the origin of the value at `path`."""

    def spell(self, section: str, name: str) -> str:
        """Return a key as a user writes it in this source, for "did you mean"."""

    def problem(self, path: KeyPath, message: str, *, note: str = "", at_key: bool = False) -> Problem:
        """Return a problem with the value at `path`, or with its key if `at_key`."""


class FileSource:
    """The config file `name`, with the positions of its keys and values."""

    def __init__(self, name: str, positions: Positions) -> None:
        self.name = name
        self.positions = positions

    def origin(self, path: KeyPath) -> str:
        return f"{self.name}:{self.positions.key(path).line}"

    def spell(self, section: str, name: str) -> str:
        return name

    def problem(self, path: KeyPath, message: str, *, note: str = "", at_key: bool = False) -> Problem:
        mark = self.positions.key(path) if at_key else self.positions.value(path)
        where = f"{self.name}:{mark.line}"
        return Problem((0, mark.line), where, f"{dotted(path)}: {message}", (mark,), note)

    def missing(self, section: str, name: str, example: str) -> Problem:
        """Return the problem of a missing key without a default; `example` is a line that would add it."""
        problem = self.problem((section,), "missing key", at_key=True)
        table = "" if problem.marks[0].text else f"`[{section}]` and "
        return replace(problem, message=f"{section}.{name}: missing key", note=f"add {table}`{example}`", lost=True)


class Override:
    """The `index`-th `--set` of the command line; `text` is its `KEY=VALUE`."""

    def __init__(self, index: int, text: str) -> None:
        self.index = index
        self.text = text

    def origin(self, path: KeyPath) -> str:
        return "--set"

    def spell(self, section: str, name: str) -> str:
        return f"{section}.{name}"

    def problem(self, path: KeyPath, message: str, *, note: str = "", at_key: bool = False) -> Problem:
        return Problem((1, self.index), f"--set {printable(self.text, SHOWN_LENGTH)}", message, (), note)


class OfPolicy:
    """A row of [policies], whose tables stand for those of the run; problems are marked in the row."""

    def __init__(self, source: ValueSource, policy: str) -> None:
        self.source = source
        self.policy = policy

    def origin(self, path: KeyPath) -> str:
        return self.source.origin(("policies", self.policy))

    def spell(self, section: str, name: str) -> str:
        return name

    def problem(self, path: KeyPath, message: str, *, note: str = "", at_key: bool = False) -> Problem:
        return self.source.problem(("policies", self.policy, *path), message, note=note, at_key=at_key)


def dotted(path: KeyPath) -> str:
    """Return a path as text: `collection.envs`. Indices of array items are left out."""
    keys = [toml_key(step) for step in path if isinstance(step, str)]
    return printable(".".join(keys), SHOWN_LENGTH)


def config_error(name: str, problems: Sequence[Problem]) -> ConfigError:
    """Return one error with all problems of the config file `name` and of `--set`."""
    ordered = sorted(problems, key=lambda problem: problem.order)
    texts = [problem.text() for problem in ordered[:PROBLEMS_SHOWN]]
    if len(ordered) > PROBLEMS_SHOWN:
        texts.append(f"... and {len(ordered) - PROBLEMS_SHOWN} more")
    kinds = {problem.order[0] for problem in ordered}
    places = " and ".join((f"`{name}`", "`--set`")[kind] for kind in sorted(kinds))
    count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
    lost = any(problem.lost and not problem.note for problem in ordered)
    return ConfigError("\n\n".join([f"{count} in {places}", *texts]), hint=HINT if lost else "")
