"""Reports problems with keys that only user code can check, in the same form as all other problems.

The code that finds them has a `Config` but not its file, so the file is read once more to locate the keys.
"""

from __future__ import annotations

from pathlib import Path

from hive.config import syntax
from hive.config.positions import Path as KeyPath
from hive.config.problems import FileSource, Problem, config_error, dotted
from hive.errors import ConfigError

__all__ = ["ConfigProblems"]


class ConfigProblems:
    """Collects problems; `raise_all` raises them as one ConfigError.

    file: the config file as given; None for a config that was not read from a file.
    """

    def __init__(self, file: Path | None) -> None:
        self.name = "the config" if file is None else file.name
        self.problems: list[Problem] = []
        self.document: object = {}
        self.source: FileSource | None = None
        if file is not None:
            try:
                self.document, self.source = syntax.parse(syntax.read(file, file.name), file.name)
            except ConfigError:
                pass  # the file was changed after the run started: problems are reported without places

    def add(self, path: KeyPath, message: str, note: str = "") -> None:
        """Add a problem with the value at `path`; `note` is shown beside its mark."""
        if self.source is not None and self._is_in_file(path):
            self.problems.append(self.source.problem(path, message, note=note))
        else:  # the key was given by `--set`
            self.problems.append(Problem((1, len(self.problems)), dotted(path), message, (), note))

    def _is_in_file(self, path: KeyPath) -> bool:
        here = self.document
        for step in path:
            if not isinstance(here, dict) or step not in here:
                return False
            here = here[step]
        return True

    def raise_all(self) -> None:
        """Raise ConfigError if any problem was added."""
        if self.problems:
            raise config_error(self.name, self.problems)
