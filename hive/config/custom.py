"""Problems with keys that only code of a user's own knows, told like all others.

Whoever finds them has a `Config`, not its file; the file is read once more for the places.
"""

from __future__ import annotations

from pathlib import Path

from hive.config import syntax
from hive.config.positions import Path as KeyPath
from hive.config.problems import FileSource, Problem, config_error, dotted
from hive.errors import ConfigError

__all__ = ["ConfigProblems"]


class ConfigProblems:
    """Collects problems; `raise_all` raises them as one ConfigError. `file`: the config as it was given."""

    def __init__(self, file: Path | None) -> None:
        self.name = "the config" if file is None else file.name
        self.problems: list[Problem] = []
        self.document: object = {}
        self.source: FileSource | None = None
        if file is not None:
            try:
                self.document, self.source = syntax.parse(syntax.read(file, file.name), file.name)
            except ConfigError:
                pass  # it has been changed since the run began

    def add(self, path: KeyPath, message: str, note: str = "") -> None:
        """A problem with the value at `path`."""
        if self.source is not None and self._is_there(path):
            self.problems.append(self.source.problem(path, message, note=note))
        else:  # given by `--set`
            self.problems.append(Problem((1, len(self.problems)), dotted(path), message, (), note))

    def _is_there(self, path: KeyPath) -> bool:
        here = self.document
        for step in path:
            if not isinstance(here, dict) or step not in here:
                return False
            here = here[step]
        return True

    def raise_all(self) -> None:
        if self.problems:
            raise config_error(self.name, self.problems)
