"""Loads user code that a config or a command refers to.

    package.module:name      a module on the Python path or in the current folder
    path/file.py:name        a file; its folder is appended to the Python path and stays there

Loading imports the module and so executes its top-level code. Nothing else in hive executes the content of a file.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

from hive.errors import TopologyError
from hive.paths import GIVEN, SESSION_FILE, user_path

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

IN_SESSION = re.compile(r'"[^"\n]*?\bsession\.py:')
IN_GIVEN = re.compile(rf'"[^"\\\n]*/(?P<inside>{GIVEN}/[^"\\\n]+)"')

_setup: str | None = None  # run.setup of the run that this process serves
_CALLERS: dict[CodeType, tuple[str, ...]] = {}  # code of a function that calls user code -> keys that name it


def calls_user_code(*keys: str) -> Callable[[AnyFunction], AnyFunction]:
    """Mark a function that calls what these keys of the config name, or, without keys, what its caller was given.

    An error whose traceback has no line of the user, as that of a call with wrong arguments, can then name the key's
    object: hive.runtime.topology.building finds the function in the traceback.
    """

    def mark(function: AnyFunction) -> AnyFunction:
        _CALLERS[cast(FunctionType, function).__code__] = keys
        return function

    return mark


def user_code_keys(code: CodeType) -> tuple[str, ...] | None:
    """Return the keys of a marked function; None if it is not marked."""
    return _CALLERS.get(code)


def why_not_found(reference: str) -> tuple[str, str]:
    """Explain why `reference`, "module:name", was not found in the module, or that module not at all.

    Returns (a clause with the cause, a hint): for a class of the running script, and for a module that another one of
    the same name hides. Both are empty if it is neither.
    """
    module, _, name = reference.rpartition(":")
    top = module.partition(".")[0]
    if top == "__main__":
        return (
            "`__main__` is the script that starts a run, and the processes of the run do not execute that script",
            f"move it into a file of its own, for example custom.py, and name that: custom:{name}",
        )
    found = sys.modules.get(top)
    if found is None:
        return "", ""
    origin = getattr(found, "__file__", None) or next(iter(getattr(found, "__path__", ())), None)
    its = Path(origin).resolve() if origin else None
    for folder in map(Path, sys.path):
        for file in (folder / f"{top}.py", folder / top):
            if not (file.is_file() if file.suffix else any(file.glob("*.py"))):
                continue  # a program of that name, such as `bin/pytest`, is no module
            if its is None or not its.is_relative_to(file.resolve()):
                return (
                    f"`{top}` is {f'the module {its}' if its else 'a module inside Python'}, which hides "
                    f"{file.resolve()}",
                    f"rename {file.name}: the current folder comes last on the Python path, after Python's own and "
                    "installed modules",
                )
    return "", ""


def absolute(text: str) -> str:
    """Return a reference that does not depend on the current folder: a file gets its absolute path."""
    place, colon, name = text.rpartition(":") if ":" in text else (text, "", "")
    return f"{user_path(place).resolve()}{colon}{name}" if place.endswith(".py") else text


def beside(text: str, folder: Path) -> str:
    """Return the TOML of a run's config with all references to `session.py` pointing to that of the run's directory.

    A directory may have been moved or copied since the text was written. References to what is kept in its `given`
    follow it, too.
    """
    place = json.dumps(str(folder.resolve() / SESSION_FILE), ensure_ascii=False)
    return IN_GIVEN.sub(lambda found: _given(found, folder), IN_SESSION.sub(lambda _: f"{place[:-1]}:", text))


def _given(found: re.Match[str], folder: Path) -> str:
    before, now = json.loads(found[0]), folder.resolve() / found["inside"]
    moved = not os.path.lexists(before) and os.path.lexists(now)
    return json.dumps(str(now), ensure_ascii=False) if moved else found[0]


def give_setup(reference: str | None) -> None:
    """Say which function run.setup of the run names that this process serves from now on; None: none.

    `hive.runtime.process.user_code.setup` calls it. Processes that this one forks know it, too.
    """
    global _setup
    _setup = reference


def given_setup() -> str | None:
    """Return the reference that was given last, for a process that is executed for the same run."""
    return _setup


def load_reference(text: str, default: str = "") -> Any:
    """Import and return the object that `text` refers to; `default` is its name if `text` has none.

    Raises TopologyError if the module, file or object does not exist, and any error that importing the module raises.
    """
    place, _, name = text.rpartition(":") if ":" in text else (text, "", "")
    name = name or default
    module = module_of(place)
    if not hasattr(module, name):
        there = ", ".join(key for key, value in vars(module).items() if callable(value) and key[0] != "_") or "nothing"
        clause, hint = why_not_found(f"{place}:{name}")
        raise TopologyError(
            f"`{place}` has no `{name}`" + (f": {clause}" if clause else ""), hint=hint or f"it has: {there}"
        )
    return getattr(module, name)


def module_of(place: str) -> ModuleType:
    """Import `package.module`, or the file `path/file.py`.

    Raises TopologyError if there is no such module or file, and any error that importing it raises.
    """
    return _file(user_path(place)) if place.endswith(".py") else _module(place)


@calls_user_code()
def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and not name.startswith(error.name):
            raise  # the module exists, and one of its own imports is missing
        clause, hint = why_not_found(f"{name}:")
        if clause:
            raise TopologyError(f"there is no module `{name}`: {clause}", hint=hint) from None
        raise TopologyError(
            f"there is no module `{name}`", hint="modules are searched on the Python path and in the current folder"
        ) from None


@calls_user_code()
def _file(path: Path) -> ModuleType:
    """Return the module of a file, which is imported once, under the name of the file."""
    path = path.resolve()
    if not path.is_file():
        raise TopologyError(f"there is no file `{path}`")
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known.__spec__, "origin", None) == str(path):  # a session sets `__file__`
        return known
    main = sys.modules.get("__main__")
    if main is not None and getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == path:
        return main  # the file is the running script, which must not be executed a second time
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = path.stem if known is None else f"{path.stem}_{abs(hash(str(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TopologyError(f"`{path}` is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
