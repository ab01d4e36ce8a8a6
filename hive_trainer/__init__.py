"""The command `hive`, which looks whether the package `hive` is this distribution's before it imports it.

Another distribution may have overwritten or removed `hive/__init__.py` (hive.distribution). Whatever stands there now
would run first, so this check is outside of that package.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

__all__ = ["main"]

OURS = b"hive-trainer"  # stands in the docstring of hive/__init__.py
AGAIN = "pip install --force-reinstall --no-deps hive-trainer"


def main() -> NoReturn:
    """Run the `hive` command; exit with code 3 if the package `hive` is another distribution's."""
    if problem := _problem():
        hint = f"`pip uninstall` the other one (`hive`, `rlhive`), then `{AGAIN}`"
        sys.stderr.write(f"error: {problem}\n\nhint: {hint}\n")
        sys.exit(3)
    from hive.hash_seed import settle

    settle(sys.argv[1:])
    from hive.cli import main

    main()


def _problem() -> str:
    """Return what is wrong with the package `hive`; "" if it is that of this distribution."""
    spec = find_spec("hive")
    if spec is None or spec.origin is None:
        return "hive/__init__.py is missing: another distribution that owned it too may have been removed"
    if OURS not in Path(spec.origin).read_bytes():
        return f"{spec.origin} belongs to another distribution{_owners(Path(spec.origin))}"
    return ""


def _owners(file: Path) -> str:
    """Return the other distributions that own a file, as `: name version`."""
    import importlib.metadata

    found = [
        f"{one.name} {one.version}"
        for one in importlib.metadata.distributions()
        if one.name != "hive-trainer" and file in [Path(str(part.locate())) for part in one.files or ()]
    ]
    return f": {', '.join(found)}" if found else ""
