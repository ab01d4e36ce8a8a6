"""What the results of a process depend on beyond the config: users' modules, versions, and the kernels of its CPU.

A process that imports users' code says so in an event "code". The supervisor compares it with what earlier ones said:
another host, a resume and a restarted collector may have found other files.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import platform
import site
import sys
import sysconfig
import types
from collections.abc import Iterable, Mapping
from pathlib import Path

from hive.distribution import HOME

OURS = ("hive", "hive_trainer")  # the packages of this distribution
CODE = "code"  # kind of the event
DIGITS = 16  # of a SHA-256: 64 bits
COMPARED = ("torch", "numpy", "gymnasium")  # packages whose versions change results


def code_of_process(references: Iterable[str]) -> dict[str, str]:
    """Return name -> digest or version, of all that a process has imported.

    references: "module:Name" or "file.py:Name" of users' code that another process may have imported instead.
    """
    files = {f"module {name}": file for name, file in _own_files(len(sys.modules)).items()}
    for reference in references:
        name, colon, _ = reference.partition(":")
        if colon and (file := _file_of(name)) is not None:
            files.setdefault(f"module {Path(name).stem if name.endswith('.py') else name}", file)
    found = {name: digest for name, file in files.items() if (digest := _digest(file))}
    found["Python"] = platform.python_version()
    for package in COMPARED:
        if (version := getattr(sys.modules.get(package), "__version__", None)) is not None:
            found[package] = str(version)
    if (torch := sys.modules.get("torch")) is not None:
        found["CPU kernels"] = str(torch.backends.cpu.get_cpu_capability())
    return found


def differences(known: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return the names of what both have, and differs."""
    return [name for name, value in found.items() if known.get(name, value) != value]


def is_installed(module: types.ModuleType) -> bool:
    """Whether a module belongs to Python, to hive or to an installed package, so that every process finds it."""
    place = place_of_module(module)
    ours = module.__name__.partition(".")[0] in OURS
    return ours or any(place.is_relative_to(one) for one in installed_folders())


@functools.lru_cache(maxsize=1)
def _own_files(imported: int) -> dict[str, Path]:
    """Return the files of the imported modules that are not installed.

    imported: how many modules there are. Collectors that share a process look at thousands of them only once.
    """
    # Of thousands of modules nearly all lie in these folders as they are named, which needs no look at the disk.
    plainly = tuple({f"{folder}/" for folder in (*map(str, installed_folders()), *named_folders(), HOME)})
    found = {}
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or file.startswith(plainly) or name in ("__main__", "__mp_main__"):
            continue
        if isinstance(module, types.ModuleType) and not is_installed(module):
            found[name] = Path(file)
    return found


def _file_of(name: str) -> Path | None:
    """Return the file of a module that need not be imported, if it is not installed."""
    if name.endswith(".py"):
        return Path(name)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or not spec.origin or not spec.has_location:
        return None
    place = Path(spec.origin).resolve()
    ours = name.partition(".")[0] in OURS
    return None if ours or any(place.is_relative_to(one) for one in installed_folders()) else place


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()[:DIGITS]
    except OSError:
        return ""


def place_of_module(module: types.ModuleType) -> Path:
    """Return the folder of the package of a module, or the file of a module outside of packages."""
    top = sys.modules.get(module.__name__.partition(".")[0], module)
    folders = list(getattr(top, "__path__", ()))
    return Path(folders[0] if folders else getattr(top, "__file__", None) or sysconfig.get_paths()["stdlib"]).resolve()


def named_folders() -> list[str]:
    """Return the folders of Python itself and of installed packages; not sys.prefix, where a project may lie, too."""
    paths = sysconfig.get_paths()
    folders = [paths["stdlib"], paths["platstdlib"], *site.getsitepackages(), site.getusersitepackages()]
    return folders + [one for one in sys.path if one.endswith(("site-packages", "dist-packages"))]  # of a .pth file


@functools.cache
def installed_folders() -> tuple[Path, ...]:
    """Return the folders of `named_folders`, without links."""
    return tuple(Path(one).resolve() for one in named_folders())
