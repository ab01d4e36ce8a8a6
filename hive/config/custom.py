"""Reports problems with keys that only user code can check, in the same form as all other problems.

The code that finds them has a `Config` but not its file, so the file is read once more to locate the keys.
"""

from __future__ import annotations

import functools
from pathlib import Path

from hive.config import syntax
from hive.config.positions import KeyPath
from hive.config.problems import FileSource, Problem, config_error, dotted
from hive.errors import ConfigError


class ConfigProblems:
    """Collects problems; `raise_all` raises them as one ConfigError.

    file: the config file as given; None for a config that was not read from a file.
    """

    def __init__(self, file: Path | None) -> None:
        self.name = "the config" if file is None else file.name
        self.file = file
        self.problems: list[Problem] = []

    @functools.cached_property
    def _parsed(self) -> tuple[object, FileSource | None]:
        """The document and its source, which only a problem needs; without a source if it cannot be read any more."""
        try:
            return syntax.parse(syntax.read(self.file, self.name), self.name) if self.file is not None else ({}, None)
        except ConfigError:
            return {}, None  # the file was changed after the run started: problems are reported without places

    def add(self, path: KeyPath, message: str, note: str = "") -> None:
        """Add a problem with the value at `path`; `note` is shown beside its mark."""
        document, source = self._parsed
        if source is not None and _has(document, path):
            self.problems.append(source.problem(path, message, note=note))
        else:  # the key was given by `--set`
            self.problems.append(Problem((1, len(self.problems)), dotted(path), message, (), note))

    def raise_all(self) -> None:
        """Raise ConfigError if any problem was added."""
        if self.problems:
            raise config_error(self.name, self.problems)


def _has(document: object, path: KeyPath) -> bool:
    for step in path:
        if not isinstance(document, dict) or step not in document:
            return False
        document = document[step]
    return True
