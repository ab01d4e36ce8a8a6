"""A mutant: the sources of hive with one fault, as text to replace. `faults.toml` lists them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path


class MutantError(Exception):
    """The text of a mutant is not in the sources, or more than once."""


@dataclass(frozen=True)
class Mutant:
    """Replaces `old`, which occurs once in `file` below hive/ or native/, by `new`.

    kind: the class of fault. text: what the mutant does. algorithms: those whose probes must fail. within: where the
    file contains `old` several times, the line after which it is meant; it must be followed by `old` exactly once
    before the next line that begins with `class` or `def`. tests: where no algorithm is named, the file of tests of
    which one must fail, below tests/, or below native/ for a C++ program.
    """

    kind: str
    text: str
    algorithms: tuple[str, ...]
    file: str
    old: str
    new: str
    within: str = ""
    tests: str = ""

    @property
    def native(self) -> bool:
        """Whether the fault is in the C++ part."""
        return self.file.endswith(".cpp")

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind

    def apply(self, package: Path) -> None:
        """Change the file in this copy of the package. Raises MutantError unless the text occurs once."""
        path = package / self.file
        path.write_text(self.applied(path.read_text()))

    def applied(self, source: str) -> str:
        """Return the source with the fault. Raises MutantError unless the text occurs once."""
        begin, end = self._region(source)
        count = source.count(self.old, begin, end)
        if count != 1:
            place = f" after `{self.within}`" if self.within else ""
            raise MutantError(f"{self.name}: {self.file} has {count} times{place}: {self.old}")
        position = source.index(self.old, begin, end)
        return source[:position] + self.new + source[position + len(self.old) :]

    def _region(self, source: str) -> tuple[int, int]:
        if not self.within:
            return 0, len(source)
        if source.count(self.within) != 1:
            raise MutantError(f"{self.name}: {self.file} has {source.count(self.within)} times: {self.within}")
        begin = source.index(self.within)
        ends = [source.find(f"\n{word} ", begin + len(self.within)) for word in ("class", "def")]
        return begin, min((end for end in ends if end >= 0), default=len(source))


FAULTS = tomllib.loads(Path(__file__).with_name("faults.toml").read_text())
UNDETECTABLE: dict[str, str] = FAULTS.pop("undetectable")
"""Faults that no result of learning shows -> why."""

MUTANTS = [
    Mutant(kind, text, tuple(fields.pop("algorithms", ())), **fields)
    for kind, faults in FAULTS.items()
    for text, fields in faults.items()
]
