"""Loads the native part, `hive._native`. An error names the command that builds or installs it.

An installed hive contains a native part of the same release. In the source folder `scripts/build` makes it, so it may
be missing, or older than the C++ files beside it and incompatible with the Python code. Therefore a build records the
digest of its sources. In the source folder the tests, and every command that starts a run, compare it with the current
sources. The processes of a run do not, so that editing C++ files does not break restarts in a current run.

A source folder without a build of its own uses that of an installed hive, if it was built from the same C++ sources. So
Python works there after `pip install .`, although it imports hive from the current folder.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from hive.errors import PlatformError

HOME = Path(__file__).resolve().parent
SOURCES = HOME.parent / "native"  # the C++ files; exists in the source folder only
NAME = "hive._native"
FOLDERS = ("include", "src")
BUILD = "run scripts/build (it needs cmake and a compiler for C++20)"
INSTALL = "install hive again, for this Python"
REUSE = "; or `pip install .`, whose native part works here too; or leave this folder to use the installed hive"


def load_native() -> ModuleType:
    """Import `hive._native`. Raises PlatformError if it is missing or cannot be loaded."""
    try:
        return _import()
    except ImportError as error:
        hint = BUILD if source_folder() else INSTALL
        if isinstance(error, ModuleNotFoundError) and error.name == NAME:
            hint += REUSE if source_folder() else ""
            raise PlatformError(f"the native part of hive is not built: {HOME} contains none", hint=hint) from None
        raise PlatformError(f"the native part of hive cannot be loaded: {error}", hint=hint) from None


def check_native() -> ModuleType:
    """Import `hive._native` and compare it with its sources. Raises PlatformError also if they differ."""
    module = load_native()
    built_from = getattr(module, "SOURCES", None)  # early builds lack it
    if source_folder() and built_from != sources_digest(SOURCES):
        raise PlatformError(f"the native part of hive in {HOME} was built from other sources", hint=BUILD)
    return module


def include_folder() -> str:
    """Return the folder for a compiler's option -I, so that it finds hive/env.h."""
    return str(HOME.parent)


def source_folder() -> Path | None:
    """Return the source folder that this hive belongs to, None for an installed hive."""
    return HOME.parent if (SOURCES / "include" / "hive").is_dir() else None


def _import() -> ModuleType:
    """Import the build in this package, else an installed one that fits. Raises ImportError."""
    try:
        return importlib.import_module(NAME)
    except ModuleNotFoundError as error:
        file = _installed() if error.name == NAME and source_folder() else None
        if file is None:
            raise
    spec = spec_from_file_location(NAME, file)
    assert spec is not None  # the suffix of the file is that of extension modules
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[NAME] = module
    return module


def _installed() -> Path | None:
    """Return the native part of an installed hive that was built from the sources of this source folder.

    A file is searched for the digest before it is loaded: code for other sources must not run here.
    """
    digest = sources_digest(SOURCES).encode()
    for folder in sys.path:
        for suffix in EXTENSION_SUFFIXES:
            file = Path(folder, "hive", f"_native{suffix}")
            if file.is_file() and digest in file.read_bytes():
                return file
    return None


def sources_digest(folder: Path) -> str:
    """Return the SHA-256 of the SHA-256 digests of the C++ files in `include` and `src`, and of hive/env.h.

    Files are in the order of their paths. Hidden files are skipped, because editors create some. native/CMakeLists.txt
    computes the same digest.
    """
    parts = []
    for name in FOLDERS:
        found = (folder / name).rglob("*.[ch]pp")
        files = sorted((path for path in found if not path.name.startswith(".")), key=str)
        parts += [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    interface = folder.parent / "hive" / "env.h"
    if interface.exists():
        parts.append(hashlib.sha256(interface.read_bytes()).hexdigest())
    return hashlib.sha256("".join(parts).encode()).hexdigest()
