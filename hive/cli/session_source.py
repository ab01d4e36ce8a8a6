"""Writes a function of a notebook or of an interactive session as a module that other processes can import.

    source_of(topology) -> "import hive\\n\\n\\nclass Counter(hive.Actor): ...\\n\\n\\ndef topology(config): ..."

The module consists of the function and of all that it refers to, directly or not: imports, functions and classes as
the session defined them, and constants with their present values. Nothing is pickled and no cell is executed again. The
sources are those that the session keeps for tracebacks, in `linecache`: notebooks and IPython do.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import inspect
import linecache
import symtable
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from hive.errors import TopologyError

__all__ = ["source_of"]

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
AT_ONCE = ("listcomp", "setcomp", "dictcomp", "genexpr")  # functions for the compiler that run where they are defined


def source_of(function: Callable[..., Any]) -> str | None:
    """Return the source of a module that defines `function`; None if the session keeps no source of it.

    Raises TopologyError if it refers to an object that has no source.
    """
    name, code = getattr(function, "__name__", ""), getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or getattr(function, "__qualname__", "") != name:
        return None
    session = _Session(function.__globals__)
    if session.definition(name, function) is None:
        return None
    session.collect(name)
    return session.text()


class _Session:
    """The namespace of a session, its cells, and what is collected from them for the module."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace
        self.cells = list(_cells())
        self.imports: dict[str, None] = {}  # in the order of their first use
        self.constants: dict[str, str] = {}
        self.definitions: dict[str, str] = {}
        self.needs: dict[str, list[str]] = {}  # name of a definition -> names that must be defined before it

    def definition(self, name: str, value: object) -> str | None:
        """Return the source of a function or class that the session defined at its top level."""
        if getattr(value, "__module__", None) != self.namespace.get("__name__"):
            return None
        files = [file for file, _, _ in self.cells]
        codes = [(file, line) for file, line in _codes(value) if file in files]
        if not codes and not isinstance(value, type):
            return None
        for file, source, tree in reversed(self.cells):
            lines = {line for code_file, line in codes if code_file == file}
            for node in reversed(tree.body):
                if isinstance(node, Definition) and node.name == name:
                    first, last = _first(node), node.end_lineno or node.lineno
                    if not codes or any(first <= line <= last for line in lines):
                        return "\n".join(source.splitlines()[first - 1 : last])
        return None

    def collect(self, name: str) -> None:
        """Collect the definition `name`, a constant or an import, and all that it refers to."""
        if name in self.definitions or name in self.constants or name not in self.namespace:
            return  # a name that is nowhere is a builtin, or an error of the user's code, which names it when it runs
        value = self.namespace[name]
        source = self.definition(name, value) if callable(value) else None
        if source is not None:
            self.definitions[name] = source
            at_once, later = _names(source)
            self.needs[name] = at_once
            for used in (*at_once, *later):
                self._collect_for(name, used)
        elif (literal := _literal(value)) is not None:
            self.constants[name] = literal
        elif imports := self._imports(name):
            self.imports.update(dict.fromkeys(imports))
        else:
            raise ValueError(name)

    def _collect_for(self, user: str, name: str) -> None:
        try:
            self.collect(name)
        except ValueError:
            raise TopologyError(
                f"`{user}` uses `{name}`, an object of this session that other processes cannot import, of type "
                f"`{type(self.namespace[name]).__name__}`",
                hint=f"make `{name}` inside a function, put the code into a file, or pass inline=True",
            ) from None

    def _imports(self, name: str) -> list[str]:
        """Return the import statements of the session that bind `name`; `import a.b` and `import a.c` both bind `a`."""
        found = []
        for _, _, tree in self.cells:
            for node in tree.body:
                if isinstance(node, ast.Import):
                    bound = [a for a in node.names if (a.asname or a.name.partition(".")[0]) == name]
                    found += [ast.unparse(ast.Import([alias])) for alias in bound]
                elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
                    bound = [a for a in node.names if (a.asname or a.name) == name]
                    found += [ast.unparse(ast.ImportFrom(node.module, [alias], node.level)) for alias in bound]
        return found

    def text(self) -> str:
        lazy = self.namespace.get("annotations") is __future__.annotations
        head = ["from __future__ import annotations\n"] if lazy else []
        constants = [f"{name} = {value}" for name, value in self.constants.items()]
        parts = ["\n".join([*head, *self.imports, *([""] if constants else []), *constants])]
        return "\n\n\n".join([*parts, *(self.definitions[name] for name in self._ordered())]).lstrip() + "\n"

    def _ordered(self) -> list[str]:
        """Return the definitions so that each follows its base classes, decorators and defaults."""
        ordered: dict[str, None] = {}

        def visit(name: str, above: tuple[str, ...]) -> None:
            for needed in self.needs[name]:
                if needed in self.definitions and needed not in above and needed not in ordered:
                    visit(needed, (*above, name))
            ordered.setdefault(name)

        for name in reversed(self.definitions):  # what was found later is used by what was found earlier
            visit(name, (name,))
        return list(ordered)


def _cells() -> Iterator[tuple[str, str, ast.Module]]:
    """Yield name, source and syntax tree of each cell that the session keeps, in the order of their execution."""
    for file in list(linecache.cache):
        source = "" if Path(file).is_file() else "".join(linecache.getlines(file))
        with contextlib.suppress(SyntaxError, ValueError):  # a tool may have stored text that is not Python
            yield file, source, compile(source, file, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def _codes(value: object) -> list[tuple[str, int]]:
    """Return file and first line of a function, or of the functions in the body of a class."""
    members = [value, *(vars(value).values() if isinstance(value, type) else ())]
    functions = [getattr(member, "__func__", getattr(member, "fget", member)) for member in members]
    codes = [getattr(inspect.unwrap(function), "__code__", None) for function in functions]
    return [(code.co_filename, code.co_firstlineno) for code in codes if isinstance(code, CodeType)]


def _first(node: Definition) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _names(source: str) -> tuple[list[str], list[str]]:
    """Return the global names that a definition uses when it is executed, and those that its functions use later."""
    at_once: dict[str, None] = {}
    later: dict[str, None] = {}

    def visit(table: symtable.SymbolTable, deferred: bool, top: bool) -> None:
        names = [s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())]
        (later if deferred else at_once).update(dict.fromkeys(names))
        for child in table.get_children():
            visit(child, deferred or (child.get_type() == "function" and child.get_name() not in AT_ONCE), False)

    visit(symtable.symtable(source, "<session>", "exec"), False, True)
    return list(at_once), list(later)


def _literal(value: object) -> str | None:
    """Return a constant as source, None for a value that no literal can express."""
    text = repr(value)
    try:
        same = ast.literal_eval(text) == value
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        same = False
    return text if same is True else None
