"""Finds the source of a class or function in the files and cells of a session.

A cell's source is the one that the session keeps for tracebacks, in `linecache`; notebooks, IPython and the prompt of
Python 3.13 do. A script is read from its file, and the code that runs is compared with it: a file that was edited after
the script started has another class.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType
from typing import Any

from hive.errors import UsageError

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
WRAPPED = 8  # most decorators, each inside the closure of the next, through which a function is searched


@dataclass(eq=False)
class SourceText:
    """A file or a cell: its name for the compiler, text and syntax tree. order: its place among all cells."""

    file: str
    text: str
    tree: ast.Module
    order: int
    definitions: Mapping[int, tuple[str, tuple[Definition, ...]]] = field(init=False)  # by id(node): name, around it

    def __post_init__(self) -> None:
        self.definitions = dict(_definitions(self.tree, "", ()))

    @functools.cached_property
    def nodes(self) -> list[tuple[str, Definition, tuple[Definition, ...]]]:
        """Qualified name of each definition, the definition, and those around it."""
        by_id = {id(node): node for node in ast.walk(self.tree) if isinstance(node, Definition)}
        return [(name, by_id[key], around) for key, (name, around) in self.definitions.items()]

    @functools.cached_property
    def codes(self) -> list[CodeType]:
        """All code objects of the text, compiled as the session compiles them."""
        found = [compile(self.text, self.file, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)]
        for code in found:
            found += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        return found


@dataclass(frozen=True)
class Found:
    """The definition of an object. around: the functions and classes in which it stands, from the outside inwards.

    functions: those of the object that were compiled from it. bare: the object is what its decorators were given.
    """

    source: SourceText
    node: Definition
    around: tuple[Definition, ...]
    functions: tuple[FunctionType, ...] = ()
    bare: bool = False

    @property
    def first(self) -> int:
        """The line of the definition or of its first decorator."""
        if self.bare:
            return self.node.lineno
        return first_line(self.node)

    @property
    def last(self) -> int:
        """The last line of the definition."""
        return self.node.end_lineno or self.node.lineno

    def text(self) -> str:
        """Return the definition as it stands there; indented ones follow `if True:`, so that no string changes."""
        if isinstance(self.node, ast.Lambda):
            return ast.unparse(self.node)
        lines = self.source.text.splitlines()[self.first - 1 : self.last]
        before = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
        if not lines[0].lstrip().startswith(("def ", "async ", "class ", "@")):
            return ast.unparse(self.node)  # it shares its line with another statement
        return "\n".join(["if True:", *lines] if before else lines)

    def holds(self, code: CodeType) -> bool:
        """Whether a function is defined inside this definition."""
        return code.co_filename == self.source.file and self.first <= code.co_firstlineno <= self.last

    def namespace(self, main: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the names that the definition finds: those of its module, `main` without functions, and closures."""
        module, names = main, {}
        for function in self.functions:
            module = function.__globals__
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
                with contextlib.suppress(ValueError):  # a cell that is still empty
                    names[name] = cell.cell_contents
        names.pop("__class__", None)  # the cell of `super()`, which the class itself fills
        return MappingProxyType({**module, **names})


class Sources:
    """The sources of a session: its cells, in the order of their execution, and the script that runs."""

    def __init__(self) -> None:
        self.main = vars(sys.modules["__main__"])
        self._seen: dict[str, SourceText | None] = {}
        past = self.main.get("In")
        self.executed = [str(one).strip() for one in past] if isinstance(past, list) else []

    def all(self) -> list[SourceText]:
        """Return all cells in the order of their execution, and the script."""
        files = [file for file in [*linecache.cache] if not Path(file).is_file()]
        script = self.main.get("__file__")
        found = [self.of(file) for file in [*([str(script)] if script else []), *files]]
        return sorted((one for one in found if one is not None), key=lambda one: one.order)

    def of(self, file: str) -> SourceText | None:
        """Return the cell or file of this name; None if there is no source of it, or it is not Python."""
        if file not in self._seen:
            self._seen[file] = self._read(file)
        return self._seen[file]

    def is_own(self, file: str) -> bool:
        """Whether a file is a cell of the session or its script."""
        if file == self.main.get("__file__"):
            return True
        return file in linecache.cache and not Path(file).is_file() and self.of(file) is not None

    def of_definition(self, value: Any, name: str) -> Found | None:
        """Return the source of a class or function that the session knows as `name`; None if it was defined elsewhere.

        Raises UsageError if its file was changed since it was executed.
        """
        named = value.__name__ if isinstance(value, type) else name
        decorated = self._found(value, lambda full, node: full == name and bool(getattr(node, "decorator_list", ())))
        own = decorated or self._found(value, lambda full, node: node_name(node) in (named, value.__name__))
        return own if own is not None or isinstance(value, type) else self._found(value, lambda full, node: True)

    def _found(self, value: Any, takes: Callable[[str, Definition], bool]) -> Found | None:
        return self._class(value, takes) if isinstance(value, type) else self._function(value, takes)

    def _function(self, value: Any, takes: Callable[[str, Definition], bool]) -> Found | None:
        for function in functions_of(value):
            code = function.__code__
            nameless = "<" in code.co_qualname and Path(code.co_filename).is_file()  # also one of a module
            source = self.of(code.co_filename) if nameless or self.is_own(code.co_filename) else None
            if source is None:
                continue
            self.check_file(source, [function], code.co_qualname)
            for full, node, around in reversed(source.nodes):  # the innermost of lambdas comes first
                if takes(full, node) and _is_of(node, code):
                    bare = function is value and function.__globals__.get(full, value) is not value
                    return Found(source, node, around, (function,), bare and bool(getattr(node, "decorator_list", ())))
        return None

    def _class(self, value: type, takes: Callable[[str, Definition], bool]) -> Found | None:
        for cls in value.__mro__:  # a decorator may return a subclass of what it was given
            own = self._own_functions(cls)
            if not own and cls.__module__ != self.main.get("__name__"):
                continue
            files = dict.fromkeys(function.__code__.co_filename for function in own)
            sources = [source for source in map(self.of, files) if source is not None]
            for source in [*reversed(sources), *reversed(self.all())]:
                self.check_file(source, own, cls.__qualname__)
                if (found := self._class_in(source, cls, own, takes, decorated=cls is not value)) is not None:
                    return found
        return None

    def _class_in(
        self,
        source: SourceText,
        cls: type,
        own: list[FunctionType],
        takes: Callable[[str, Definition], bool],
        *,
        decorated: bool,
    ) -> Found | None:
        """Return the newest definition of a class in a file or cell. own: its functions of the session.

        decorated: it may have another name there, because a decorator made another class of it.
        """
        named = any(function.__qualname__.startswith(f"{cls.__qualname__}.") for function in own)
        for full, node, around in reversed(source.nodes):
            same = full == cls.__qualname__ or (decorated and bool(getattr(node, "decorator_list", ())))
            if isinstance(node, ast.ClassDef) and same and takes(full, node):
                found = Found(source, node, around, tuple(own))
                inside = tuple(function for function in own if found.holds(function.__code__))
                if bool(inside) == named:
                    return dataclasses.replace(found, functions=inside)
        return None

    def _own_functions(self, cls: type) -> list[FunctionType]:
        """Return the functions of a class that were defined in the session."""
        functions = (function for _, member in own_functions(cls) for function in functions_of(member))
        return [function for function in functions if self.is_own(function.__code__.co_filename)]

    def check_file(self, source: SourceText, functions: Sequence[FunctionType], name: str) -> None:
        """Raise UsageError if functions that were compiled from this file are not in it any more."""
        codes = [one.__code__ for one in functions if one.__code__.co_filename == source.file]
        if Path(source.file).is_file() and any(code not in source.codes for code in codes):
            raise UsageError(
                f"`{name}` in {source.file} is not what runs: the file was changed after it was imported or started",
                hint="start the script again; in a notebook, importlib.reload the module",
            )

    def _read(self, file: str) -> SourceText | None:
        text = "".join(linecache.getlines(file))
        if Path(file).is_file():
            with contextlib.suppress(OSError, UnicodeError):
                text = Path(file).read_text()
        if not text:
            return None
        try:
            tree = compile(text, file, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except (SyntaxError, ValueError):  # a tool may have stored text that is not Python
            return None
        assert isinstance(tree, ast.Module)
        place = len(self.executed) - 1 - self.executed[::-1].index(text.strip()) if text.strip() in self.executed else 0
        return SourceText(file, text, tree, place or [*linecache.cache, file].index(file))


def own_functions(value: type) -> Iterator[tuple[str, Any]]:
    """Yield name and function of each method, property and class method that stands in the class itself."""
    for name, member in vars(value).items():
        inner = (member.fget, member.fset, member.fdel) if isinstance(member, property) else (member,)
        for one in inner:
            function = getattr(one, "__func__", getattr(one, "func", one))
            if callable(function) and not isinstance(function, type):
                yield name, function


def functions_of(value: Any) -> list[FunctionType]:
    """Return a function and those that its decorators hold, the innermost last."""
    level, found = [value], []
    for _ in range(WRAPPED):
        found += [one for one in level if isinstance(one, FunctionType) and one not in found]
        level = [inner for one in level for inner in _inside(one)]
    return found


def first_line(node: Definition) -> int:
    """Return the line of a definition or of its first decorator."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def node_name(node: Definition) -> str:
    """Return the name that a definition binds."""
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _inside(value: object) -> list[object]:
    """Return the functions that a decorated function or a decorator's object holds."""
    held = [getattr(value, "__wrapped__", None), getattr(value, "func", None), getattr(value, "__func__", None)]
    if isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):
                held.append(cell.cell_contents)
    return [one for one in held if isinstance(one, FunctionType) or hasattr(one, "__wrapped__")]


def _definitions(
    node: ast.AST, above: str, around: tuple[Definition, ...]
) -> Iterator[tuple[int, tuple[str, tuple[Definition, ...]]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            name = above + (child.name if not isinstance(child, ast.Lambda) else "<lambda>")
            yield id(child), (name, around)
            inner = f"{name}." if isinstance(child, ast.ClassDef) else f"{name}.<locals>."
            yield from _definitions(child, inner, (*around, child))
        else:
            yield from _definitions(child, above, around)


def _is_of(node: Definition, code: CodeType) -> bool:
    """Whether a function was compiled from this node. Lambdas of one line are told apart by their code."""
    if isinstance(node, ast.ClassDef) or node_name(node) != code.co_name:
        return False
    if not isinstance(node, ast.Lambda):
        return code.co_firstlineno == first_line(node)
    body = node.body
    first, last = (body.lineno, body.col_offset), (body.end_lineno or 0, body.end_col_offset or 0)
    spans = [(line, start, end_line, end) for line, end_line, start, end in code.co_positions() if end]
    return bool(spans) and all(
        first <= (line or 0, start or 0) and (end_line or 0, end or 0) <= last for line, start, end_line, end in spans
    )
