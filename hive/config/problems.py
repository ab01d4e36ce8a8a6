"""What is wrong with a config, and how all of it is told at once.

A *source* is what a value was read from: the file, or one `--set`. It knows how to point at a value in an
error and how to name it as an origin. `config_error` makes one error of all problems, those of the file
first, by line:

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

from hive.config.positions import Mark, Path, Positions
from hive.config.values import SHOWN_LENGTH, printable, toml_key
from hive.errors import ConfigError

__all__ = ["FileSource", "Override", "Problem", "Source", "config_error", "dotted"]

PROBLEMS_SHOWN = 50  # more than a screen or two helps nobody; the rest is counted

HINT = "`hive init CartPole-v1` writes a config that works; `hive config` on it shows every key"


@dataclass(frozen=True)
class Problem:
    """One problem, at `where`: `FILE:LINE` or `--set KEY=VALUE`. `note` stands beside the last mark."""

    order: tuple[int, int]
    where: str
    message: str
    marks: tuple[Mark, ...] = ()
    note: str = ""

    def text(self) -> str:
        """The lines that tell it."""
        if not self.marks:
            return f"{self.where}: {self.message}" + (f"; {self.note}" if self.note else "")
        lines = [f"{self.where}: {self.message}"]
        for mark in self.marks:
            if mark.text:
                lines += [f"{mark.line:>6} | {printable(mark.text)}"]
            lines += [f"{'':>6} | {' ' * mark.column}{'^' * mark.length}"]
        lines[-1] += (" " if self.marks[-1].text else "") + self.note
        return "\n".join(line.rstrip() for line in lines)


class Source(Protocol):
    """What values were read from."""

    def origin(self, path: Path) -> str:
        """Where the value came from, in a word."""

    def spell(self, section: str, name: str) -> str:
        """A key as one would write it at this place, for "did you mean"."""

    def problem(self, path: Path, message: str, *, note: str = "", at_key: bool = False) -> Problem:
        """A problem with the value at `path`, or with the key itself."""


class FileSource:
    """The file `name` with these positions."""

    def __init__(self, name: str, positions: Positions) -> None:
        self.name = name
        self.positions = positions

    def origin(self, path: Path) -> str:
        return f"{self.name}:{self.positions.key(path).line}"

    def spell(self, section: str, name: str) -> str:
        return name

    def problem(self, path: Path, message: str, *, note: str = "", at_key: bool = False) -> Problem:
        mark = self.positions.key(path) if at_key else self.positions.value(path)
        where = f"{self.name}:{mark.line}"
        return Problem((0, mark.line), where, f"{dotted(path)}: {message}", (mark,), note)

    def missing(self, section: str, name: str, example: str) -> Problem:
        """A key without a default that the file lacks; `example` is a line to add."""
        problem = self.problem((section,), "missing key", at_key=True)
        table = "" if problem.marks[0].text else f"`[{section}]` and "
        return replace(problem, message=f"{section}.{name}: missing key", note=f"add {table}`{example}`")


class Override:
    """The `index`-th `--set`, with its text."""

    def __init__(self, index: int, text: str) -> None:
        self.index = index
        self.text = text

    def origin(self, path: Path) -> str:
        return "--set"

    def spell(self, section: str, name: str) -> str:
        return f"{section}.{name}"

    def problem(self, path: Path, message: str, *, note: str = "", at_key: bool = False) -> Problem:
        return Problem((1, self.index), f"--set {printable(self.text, SHOWN_LENGTH)}", message, (), note)


def dotted(path: Path) -> str:
    """`collection.envs`; the items of an array are not told apart."""
    keys = [toml_key(step) for step in path if isinstance(step, str)]
    return printable(".".join(keys), SHOWN_LENGTH)


def config_error(name: str, problems: Sequence[Problem]) -> ConfigError:
    """The error that tells all problems of the config file `name`."""
    ordered = sorted(problems, key=lambda problem: problem.order)
    texts = [problem.text() for problem in ordered[:PROBLEMS_SHOWN]]
    if len(ordered) > PROBLEMS_SHOWN:
        texts.append(f"... and {len(ordered) - PROBLEMS_SHOWN} more")
    kinds = {problem.order[0] for problem in ordered}
    places = " and ".join((f"`{name}`", "`--set`")[kind] for kind in sorted(kinds))
    count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
    return ConfigError("\n\n".join([f"{count} in {places}", *texts]), hint=HINT)
