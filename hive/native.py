"""Finds the native part, `hive._native`, and says what to do where it is missing or does not fit.

An installed hive has it beside these files, built from the same release. In the source folder `scripts/build` puts it
there: it may be missing, or older than the C++ files next door, which behave otherwise than the Python of today thinks.
So a build carries the digest of its sources. In the source folder a command that starts a run compares the two, and so
do the tests; the processes of a run that lives do not, so that whoever edits C++ beside it does it no harm.

It builds nothing.
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from types import ModuleType

from hive.errors import PlatformError

__all__ = ["check_native", "load_native", "sources_digest"]

HOME = Path(__file__).resolve().parent
SOURCES = HOME.parent / "native"  # in the source folder
FOLDERS = ("include", "src")
BUILD = "run scripts/build (it needs cmake and a compiler for C++20)"
INSTALL = "install hive again, for this Python"


def load_native() -> ModuleType:
    """The module `hive._native`. Raises PlatformError where there is none that can be loaded."""
    try:
        return importlib.import_module("hive._native")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "hive._native":
            hint = f"{BUILD}; in another folder the hive that is installed is found" if _in_source_folder() else INSTALL
            raise PlatformError(f"the native part of hive is not built: there is none in {HOME}", hint=hint) from None
        hint = BUILD if _in_source_folder() else INSTALL
        raise PlatformError(f"the native part of hive cannot be loaded: {error}", hint=hint) from None


def check_native() -> ModuleType:
    """The same, which also fits its sources. Raises PlatformError."""
    module = load_native()
    built_from = getattr(module, "SOURCES", None)  # the first builds did not say
    if _in_source_folder() and built_from != sources_digest(SOURCES):
        raise PlatformError(f"the native part of hive in {HOME} was built from other sources", hint=BUILD)
    return module


def _in_source_folder() -> bool:
    return (SOURCES / "include" / "hive").is_dir()


def sources_digest(folder: Path) -> str:
    """SHA-256 over those of the files in the folder's `include` and `src`, in the order of their paths.

    Hidden files are none of them: editors put theirs there. native/CMakeLists.txt makes the same.
    """
    parts = []
    for name in FOLDERS:
        found = (folder / name).rglob("*.[ch]pp")
        files = sorted((path for path in found if not path.name.startswith(".")), key=str)
        parts += [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    return hashlib.sha256("".join(parts).encode()).hexdigest()
