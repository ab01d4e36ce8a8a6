"""References: how a config or a command names code of a user's own, and how it is loaded.

    package.module:name      a module on the Python path, or below the folder where the command was given
    path/file.py:name        a file; its folder is on the path while it is imported, and stays there

Loading imports the module, so what it does at import happens; nothing else in hive executes what a file says.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hive.errors import TopologyError

__all__ = ["absolute", "load_reference"]


def absolute(text: str) -> str:
    """The same reference from wherever it is loaded: a file with its whole path."""
    place, colon, name = text.partition(":")
    return f"{Path(place).resolve()}{colon}{name}" if place.endswith(".py") else text


def load_reference(text: str, default: str = "") -> Any:
    """What `text` names; `default` is the name where it has none. Raises TopologyError, and what the module raises."""
    place, _, name = text.partition(":")
    name = name or default
    module = _file(Path(place)) if place.endswith(".py") else _module(place)
    if not hasattr(module, name):
        there = ", ".join(key for key, value in vars(module).items() if callable(value) and key[0] != "_") or "nothing"
        raise TopologyError(f"`{place}` has no `{name}`", hint=f"it has: {there}")
    return getattr(module, name)


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and not name.startswith(error.name):
            raise  # something that the module itself needs
        raise TopologyError(
            f"there is no module `{name}`", hint="it is looked for on the Python path and in this folder"
        ) from None


def _file(path: Path) -> ModuleType:
    """The module of a file, imported once under the name of the file."""
    path = path.resolve()
    if not path.is_file():
        raise TopologyError(f"there is no file `{path}`")
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    main = sys.modules.get("__main__")
    if main is not None and getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == path:
        return main  # the script itself that runs
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = path.stem if known is None else f"{path.stem}_{abs(hash(str(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TopologyError(f"`{path}` is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
