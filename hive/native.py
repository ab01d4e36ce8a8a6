"""Finds the native part, `hive._native`, and says what to do where it is missing or does not fit.

An installed hive has it beside these files, built from the same release. In the source folder `scripts/build` puts it
there: it may be missing, or older than the C++ files next door, which behave otherwise than the tests of today think.
So a build carries the digest of its sources, and in the source folder the two are compared when it is first loaded.

It builds nothing.
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from types import ModuleType

from hive.errors import PlatformError

__all__ = ["load_native", "sources_digest"]

HOME = Path(__file__).resolve().parent
SOURCES = HOME.parent / "native"  # in the source folder
FOLDERS = ("include", "src")
BUILD = "run scripts/build (it needs cmake and a compiler for C++20)"


def load_native() -> ModuleType:
    """The module `hive._native`. Raises PlatformError."""
    try:
        module = importlib.import_module("hive._native")
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError):
            raise PlatformError(f"the native part of hive cannot be loaded: {error}", hint=BUILD) from None
        raise PlatformError(
            f"the native part of hive is not built: there is none in {HOME}",
            hint=f"in another folder the hive that is installed is found; to work on this one, {BUILD}",
        ) from None
    if _in_source_folder() and sources_digest(SOURCES) != module.SOURCES:
        raise PlatformError(f"the native part of hive in {HOME} was built from other sources", hint=BUILD)
    return module


def _in_source_folder() -> bool:
    return (SOURCES / "include" / "hive").is_dir()


def sources_digest(folder: Path) -> str:
    """SHA-256 over those of the files in the folder's `include` and `src`, in the order of their paths.

    native/CMakeLists.txt makes the same.
    """
    parts = []
    for name in FOLDERS:
        files = sorted((folder / name).rglob("*.[ch]pp"), key=str)
        parts += [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    return hashlib.sha256("".join(parts).encode()).hexdigest()
