"""The names that a definition uses, and where a session binds names."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator, Sequence

from hive.session.sources import Definition, Found, SourceText

AT_ONCE = ("listcomp", "setcomp", "dictcomp", "genexpr")  # functions for the compiler that run where they are defined


def names_of(text: str, lazy: bool = False) -> tuple[list[str], list[str]]:
    """Return the global names that a definition uses when it is executed, and those that its functions use later.

    lazy: annotations are not executed.
    """
    at_once: dict[str, None] = {}
    later: dict[str, None] = {}

    def visit(table: symtable.SymbolTable, deferred: bool, top: bool) -> None:
        names = [s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())]
        (later if deferred else at_once).update(dict.fromkeys(names))
        for child in table.get_children():
            if lazy and child.get_type() == "annotation":
                continue
            visit(child, deferred or (child.get_type() == "function" and child.get_name() not in AT_ONCE), False)

    future = "from __future__ import annotations\n" if lazy else ""
    visit(symtable.symtable(future + text, "<session>", "exec"), False, True)
    return list(at_once), list(later)


def locals_of(around: Sequence[Definition]) -> set[str]:
    """Return the names that the functions around a definition bind, which are gone when these have returned."""
    names: set[str] = set()
    for function in around:
        if not isinstance(function, ast.ClassDef):
            a = function.args
            every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
            body = function.body if isinstance(function.body, list) else [function.body]
            names |= {one.arg for one in every} | {name for node in body for name, _ in _bindings(node)}
    return names


def bound_after(name: str, found: Found, sources: Sequence[SourceText]) -> bool:
    """Whether a statement at the top level of the session binds `name` after the definition `found` was executed."""
    for source in sources:
        for node in source.tree.body:
            for bound, line in _bindings(node):
                if bound == name and (source.order, line) > (found.source.order, found.last):
                    return True
    return False


def imports_of(name: str, sources: Sequence[SourceText]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements of a session that bind `name`, each with this name alone."""
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Import):
                bound = [a for a in node.names if (a.asname or a.name.partition(".")[0]) == name]
                yield from (ast.Import([alias]) for alias in bound)
            elif isinstance(node, ast.ImportFrom) and node.module != "__future__" and not node.level:
                bound = [a for a in node.names if (a.asname or a.name) == name]
                yield from (ast.ImportFrom(node.module, [alias], 0) for alias in bound)


def _bindings(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that a statement binds in its own scope, and the line."""
    line = getattr(node, "lineno", 0)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name, line
        return
    if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        yield from ((walrus.target.id, line) for walrus in ast.walk(node) if isinstance(walrus, ast.NamedExpr))
        return  # variables of these are their own
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name, line
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest, line
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node.id, line
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (((alias.asname or alias.name).partition(".")[0], line) for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from _bindings(child)
