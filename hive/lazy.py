"""Names of a package that are imported when they are first used (PEP 562), so that `import hive` loads next to nothing.

The stub beside a module is the only list of its names. Type checkers and editors read it too. It has one name a line:

    from hive.runtime import Actor as Actor         a name, and the module that it comes from
    from hive import algorithms as algorithms       a package of this package

    __getattr__, __dir__ = lazy_names(__name__, __file__)

`__all__`, which `from hive import *` and `help` read, has the same names.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable
from typing import Any

LINE = re.compile(r"^from (\S+) import (\w+) as \2$", re.MULTILINE)


def lazy_names(
    module: str,
    file: str,
    checked: str = "",
    foreign: str = "",
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a module whose stub lists its names.

    file: that of the module; the stub lies beside it. checked: a module whose `check_versions` is called before the
    first use of a name. foreign: a module whose `way_of(module, name)` returns what to use in place of a name that
    there never was.
    """

    @functools.cache  # the stub is read at the first use of a name
    def names() -> dict[str, str]:
        with open(f"{file.removesuffix('.py')}.pyi", encoding="utf-8") as stub:
            return {name: home for home, name in LINE.findall(stub.read())}

    @functools.cache
    def check() -> None:
        if checked:
            importlib.import_module(checked).check_versions()

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(names())
        if f"{module}.{name}" == "hive._native":  # without a build: `load_native` raises a helpful error
            return importlib.import_module("hive.native").load_native()
        if name.startswith("_"):
            raise AttributeError(f"module `{module}` has no attribute `{name}`")
        check()
        home = names().get(name)
        if home is None and foreign and (way := importlib.import_module(foreign).way_of(module, name)):
            error = ImportError(f"{module} has no `{name}`")  # `from module import name` hides the text of others
            error.add_note(f"hint: {way}")
            raise error
        if home is None:
            unknown = f"module `{module}` has no attribute `{name}`"
            raise AttributeError(unknown, name=name, obj=sys.modules[module])  # Python suggests a similar name
        if home == module:
            return importlib.import_module(f"{home}.{name}")
        return getattr(importlib.import_module(home), name)

    def listed() -> list[str]:
        return sorted({*names(), *(name for name in vars(sys.modules[module]) if name.startswith("__"))})

    return get, listed
