"""The installed distribution: its name, the command that installs an extra, and other distributions in its folder.

The folder `hive/` of site-packages belongs to no one distribution: pip lets two of them write there, and the later one
overwrites files of the earlier. Distributions of others do so (`hive`, `rlhive`), and hive itself was called `hive`
before. `import hive` therefore compares the names in its folder with its own, which takes some 20 microseconds. Only if
there are others does it read which distribution they belong to; `hive doctor` always does. A stranger that was
installed later and has overwritten `hive/__init__.py` cannot be found by that file, so the command `hive` looks before
it imports it (hive_trainer).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

NAME = "hive-trainer"  # of the distribution; the import and the command are `hive`
HOME = os.path.dirname(os.path.abspath(__file__))  # not a Path: importing pathlib takes 8 ms
OWN = {
    *("__init__.py", "__init__.pyi", "__main__.py", "algorithms", "api", "cli", "clock.py", "comparison", "compat"),
    *("config", "cores.py", "declared.py", "distribution.py", "env.h", "envs", "errors.py", "experience"),
    *(
        "free_memory.py",
        "gpus.py",
        "gradients",
        "hash_seed.py",
        "hosts",
        "integrations",
        "launch",
        "lazy.py",
        "learning",
    ),
    *("monitor", "native.py", "networks", "paths.py", "plain_data.py", "policy", "printable.py", "py.typed"),
    *("records", "runtime", "schemes", "session", "table.py", "testing", "training", "tuning.py", "versions.py"),
    *("warning_names.py", "web"),
}  # names in this folder
BUILT = ("__pycache__", "_native.", ".")  # how other names of hive's own begin: compiled, hidden, or of an editor
REMEDY = f"`pip uninstall` it, then install {NAME} again with `pip install --force-reinstall --no-deps`"
WARNED = "HIVE_STRANGERS_NAMED"  # environment variable: this process tree has been warned


def with_extra(extra: str) -> str:
    """Return the requirement of hive with an extra, quoted for a shell."""
    return f"'{NAME}[{extra}]'"


def pip_install(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return f"pip install {with_extra(extra)}"


def strangers(folder: str = HOME) -> Iterator[str]:
    """Yield `name version (first of its files)` of each other distribution that owns files of the package's folder.

    Reads the metadata of all installed distributions: some 20 ms.
    """
    import importlib.metadata

    package = os.path.basename(folder)
    for distribution in importlib.metadata.distributions():
        if _ours(distribution.name) or str(distribution.locate_file(package)) != folder:
            continue
        if files := sorted(file.as_posix() for file in distribution.files or () if file.parts[0] == package):
            yield f"{distribution.name} {distribution.version} ({files[0]})"


def _ours(name: str | None) -> bool:
    return (name or "").lower().replace("_", "-") == NAME  # a broken package has none


def warn_of_strangers(folder: str = HOME) -> None:
    """Issue a RuntimeWarning if another distribution owns files of the package's folder, once per tree of processes."""
    if all(name in OWN or name.startswith(BUILT) for name in os.listdir(folder)) or WARNED in os.environ:
        return
    if found := ", ".join(strangers(folder)):
        import warnings

        os.environ[WARNED] = "1"
        text = f"another distribution owns files of {folder}: {found}; {REMEDY}"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
