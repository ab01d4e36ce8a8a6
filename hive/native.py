"""Loads the native part, `hive._native`. An error names the command that builds or installs it.

An installed hive contains a native part of the same release. In the source folder `scripts/build` makes it, so it may
be missing, or older than the C++ files beside it and incompatible with the Python code. Therefore a build records the
digest of its sources. In the source folder the tests, and every command that starts a run, compare it with the current
sources. The processes of a run do not, so that editing C++ files does not break restarts in a current run.
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from types import ModuleType

from hive.errors import PlatformError

__all__ = ["check_native", "load_native", "sources_digest"]

HOME = Path(__file__).resolve().parent
SOURCES = HOME.parent / "native"  # the C++ files; exists in the source folder only
FOLDERS = ("include", "src")
BUILD = "run scripts/build (it needs cmake and a compiler for C++20)"
INSTALL = "install hive again, for this Python"


def load_native() -> ModuleType:
    """Import `hive._native`. Raises PlatformError if it is missing or cannot be loaded."""
    try:
        return importlib.import_module("hive._native")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "hive._native":
            hint = f"{BUILD}; or leave this folder to use the installed hive" if _in_source_folder() else INSTALL
            raise PlatformError(f"the native part of hive is not built: {HOME} contains none", hint=hint) from None
        hint = BUILD if _in_source_folder() else INSTALL
        raise PlatformError(f"the native part of hive cannot be loaded: {error}", hint=hint) from None


def check_native() -> ModuleType:
    """Import `hive._native` and compare it with its sources. Raises PlatformError also if they differ."""
    module = load_native()
    built_from = getattr(module, "SOURCES", None)  # early builds lack it
    if _in_source_folder() and built_from != sources_digest(SOURCES):
        raise PlatformError(f"the native part of hive in {HOME} was built from other sources", hint=BUILD)
    return module


def _in_source_folder() -> bool:
    return (SOURCES / "include" / "hive").is_dir()


def sources_digest(folder: Path) -> str:
    """Return the SHA-256 of the SHA-256 digests of the C++ files in `include` and `src`, in the order of their paths.

    Hidden files are skipped, because editors create some. native/CMakeLists.txt computes the same digest.
    """
    parts = []
    for name in FOLDERS:
        found = (folder / name).rglob("*.[ch]pp")
        files = sorted((path for path in found if not path.name.startswith(".")), key=str)
        parts += [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    return hashlib.sha256("".join(parts).encode()).hexdigest()
