"""Finds the names that a definition uses, and the statements of a session that bind them.

    def step(self): return LIMIT + helper(2)      uses LIMIT and helper when it is called: deferred
    class Coin(gym.Env): ...                      uses gym when the statement is executed: immediate

`hive.session.module` writes what immediate names refer to above the definition, and refuses names that have no value in
another process: variables of a function that has returned, or names that were bound again after the definition.
Python's `symtable` resolves the scopes of uses. It needs compilable text, so bindings are read from syntax trees.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator, Sequence

from hive.session.sources import Definition, Found, SourceText

COMPREHENSIONS = ("listcomp", "setcomp", "dictcomp", "genexpr")  # `symtable` calls them functions; they run at once


def names_of(text: str, lazy: bool = False) -> tuple[list[str], list[str]]:
    """Return the global names that a definition uses immediately, and those that its functions use when called.

    text: the source of the definition. lazy: annotations are not executed. Both lists have the order of first use.
    """
    immediate: dict[str, None] = {}  # dicts serve as ordered sets
    deferred: dict[str, None] = {}

    def visit(table: symtable.SymbolTable, in_function: bool, top: bool) -> None:
        names = [s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())]
        (deferred if in_function else immediate).update(dict.fromkeys(names))
        for child in table.get_children():
            if lazy and child.get_type() == "annotation":
                continue
            is_function = child.get_type() == "function" and child.get_name() not in COMPREHENSIONS
            visit(child, in_function or is_function, False)

    future = "from __future__ import annotations\n" if lazy else ""
    visit(symtable.symtable(future + text, "<session>", "exec"), False, True)
    return list(immediate), list(deferred)


def locals_of(around: Sequence[Definition]) -> set[str]:
    """Return the names that the functions around a definition bind. Their values are gone after these have returned."""
    names: set[str] = set()
    for function in around:
        if not isinstance(function, ast.ClassDef):
            a = function.args
            parameters = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
            body = function.body if isinstance(function.body, list) else [function.body]  # a lambda's is an expression
            names |= {parameter.arg for parameter in parameters}
            names |= {name for node in body for name, _ in names_bound(node)}
    return names


def bound_after(name: str, found: Found, sources: Sequence[SourceText]) -> bool:
    """Whether a statement at the top level of the session binds `name` after the definition `found` was executed."""
    for source in sources:
        for node in source.tree.body:
            for bound, line in names_bound(node):
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


def names_bound(node: ast.AST) -> Iterator[tuple[str, int]]:
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
        yield from names_bound(child)
