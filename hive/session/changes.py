"""Finds how a class or function differs from its source.

Other processes execute the source. `Change` is one difference between an object and what its source gives there: an
attribute that was set, a method that was replaced, a value in the body of a class that may come out otherwise when it
is executed again. Where the difference can be written, the module repeats it after the definition, so that it has the
values of this moment. What cannot be repeated (a base class that was defined anew) is named.
"""

from __future__ import annotations

import abc
import ast
import collections
import sys
import types
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from hive.session.names import names_bound
from hive.session.sources import Found, Sources, first_line, functions_of, own_functions

KNOWN = ("__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__")  # what Python itself sets
CONTAINERS = (dict, list, set, collections.deque, types.SimpleNamespace)
MISSING: Any = object()


@dataclass(frozen=True)
class Change:
    """The attribute `name` has another value than the source says, or may have. certain: whether it has."""

    name: str
    value: Any
    certain: bool


def changes_of(value: Any, found: Found, names: Mapping[str, Any]) -> Iterator[Change]:
    """Yield what of a class or function differs from its source, or may differ. names: what its names stand for now."""
    if isinstance(value, type) and isinstance(found.node, ast.ClassDef):
        yield from _class_changes(value, found.node, found, names)
    elif isinstance(value, FunctionType) and value in found.functions and not isinstance(found.node, ast.Lambda):
        yield from _function_changes(value, found.node, names)


def changes_of_imported(value: type, sources: Sources) -> list[Change]:
    """Return what was certainly changed in a class of an imported module.

    Raises UsageError if the module's file was changed after it was imported: other processes import it as it is now.
    """
    module = sys.modules[value.__module__]
    source = sources.of(str(getattr(module, "__file__", None)))
    for full, node, around in source.nodes if source is not None else ():
        if full == value.__qualname__ and isinstance(node, ast.ClassDef) and source is not None:
            own = [one for _, member in own_functions(value) for one in functions_of(member)]
            here = tuple(one for one in own if one.__code__.co_filename == source.file)
            sources.check_file(source, here, f"{module.__name__}.{full}")
            found = Found(source, node, around, here)
            return [one for one in changes_of(value, found, vars(module)) if one.certain]
    return []


def new_values(module: types.ModuleType, sources: Sources) -> Iterator[tuple[str, Any]]:
    """Yield names of an imported module whose values may not be those that its file gives when it is imported.

    They were bound to a literal, and have another value; or functions bind them (`global`); or their object was made by
    a call, as `Settings()`, and may have changed since: what it holds is then repeated.
    """
    source = sources.of(str(getattr(module, "__file__", None)))
    said: dict[str, list[ast.expr | None]] = {}
    changing: set[str] = set()  # names that functions bind
    for statement in source.tree.body if source is not None else ():
        changing.update(name for node in ast.walk(statement) if isinstance(node, ast.Global) for name in node.names)
        simple = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        for name, _ in names_bound(statement):
            said.setdefault(name, []).append(simple)
    for name in dict.fromkeys((*said, *changing)):
        expressions, value = said.get(name, []), vars(module).get(name, MISSING)
        if value is MISSING or (name.startswith("__") and name.endswith("__")):
            continue
        once = expressions[0] if len(expressions) == 1 else None
        literal = _literal(once)
        if literal is not MISSING:
            if _unequal(literal, value):
                yield name, value
        elif name in changing or (isinstance(once, ast.Call | ast.ListComp | ast.DictComp) and _holds(value, module)):
            yield name, value


def bound_together(module: types.ModuleType, sources: Sources) -> list[set[str]]:
    """Return the names that each function of an imported module binds by `global`."""
    source = sources.of(str(getattr(module, "__file__", None)))
    functions = [node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef)] if source else []
    return [
        {name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names}
        for node in functions
    ]


def _holds(value: Any, module: types.ModuleType) -> bool:
    """Whether a value is a container of the standard library, or an object of a class of this module."""
    kind = type(value)
    return isinstance(value, CONTAINERS) or (kind.__module__ == module.__name__ and not isinstance(value, type))


def redefined_base(value: type, node: ast.ClassDef, names: Mapping[str, Any]) -> str:
    """Return the base class of a class that was defined anew after it, as the class names it; "" without one.

    `class Shop(Shop)` names the earlier one.
    """
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id == node.name:
            continue
        now = _named(base, names)
        if not node.decorator_list and isinstance(now, type) and now not in value.__mro__:
            return ast.unparse(base)
    return ""


def _class_changes(value: type, node: ast.ClassDef, found: Found, names: Mapping[str, Any]) -> Iterator[Change]:
    if _rewritten(value, node):
        return
    written = dict(_attributes(node))
    for name, member in _own_attributes(value, written):
        functions = functions_of(getattr(member, "fget", None) or getattr(member, "__func__", member))
        if any(found.holds(function.__code__) for function in functions):
            if isinstance(member, FunctionType) and member in functions:
                for change in _function_changes(member, _method(node, member), names):
                    yield Change(f"{name}.{change.name}", change.value, change.certain)
        elif functions or name not in written:
            here = any(function.__code__.co_filename == found.source.file for function in functions)
            if name in written or here or not _generated(value):
                yield Change(name, member, certain=True)
        elif not isinstance(member, type):
            yield from _value_changes(name, written[name], member)


def _own_attributes(value: type, written: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a class without those that Python sets itself. written: names that its body binds."""
    for name, member in vars(value).items():
        descriptor = isinstance(member, types.MemberDescriptorType | types.GetSetDescriptorType)
        if name not in KNOWN and not descriptor and (name in written or not name.startswith("__")):
            yield name, member


def _value_changes(name: str, expression: ast.expr | None, value: Any) -> Iterator[Change]:
    """Yield the change of an attribute that the source binds to this expression."""
    literal = _literal(expression)
    if literal is MISSING or _unequal(literal, value):
        yield Change(name, value, certain=literal is not MISSING)


def _function_changes(value: FunctionType, node: ast.AST | None, names: Mapping[str, Any]) -> Iterator[Change]:
    arguments = getattr(node, "args", None)
    if isinstance(arguments, ast.arguments):
        defaults, now = [_literal(default) for default in arguments.defaults], value.__defaults__ or ()
        if len(defaults) < len(now):  # there are more now than were written
            yield Change("__defaults__", value.__defaults__, certain=MISSING not in defaults)
        else:
            yield from _default_changes("__defaults__", value.__defaults__, [*zip(defaults, now, strict=False)])
        keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        named = {argument.arg: _literal(default) for argument, default in keywords if default is not None}
        known = value.__kwdefaults__ or {}
        if named.keys() != known.keys():
            yield Change("__kwdefaults__", value.__kwdefaults__, certain=MISSING not in named.values())
        else:
            yield from _default_changes(
                "__kwdefaults__", value.__kwdefaults__, [(v, known[k]) for k, v in named.items()]
            )
    if not getattr(node, "decorator_list", ()):
        for name, attribute in vars(value).items():
            yield Change(name, attribute, certain=True)


def _default_changes(name: str, value: Any, pairs: list[tuple[Any, Any]]) -> Iterator[Change]:
    """Yield the change of a function's defaults: pairs of the literal in the source and the value of now."""
    if any(literal is MISSING or _unequal(literal, now) for literal, now in pairs):
        yield Change(name, value, certain=all(literal is not MISSING for literal, _ in pairs))


def _method(node: ast.ClassDef, function: FunctionType) -> ast.AST | None:
    """Return the definition of a method in the body of its class, without decorators."""
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            and first_line(inner) == function.__code__.co_firstlineno
        ):
            return inner if not inner.decorator_list else None
    return None


def _generated(value: type) -> bool:
    """Whether base classes may have added attributes."""
    return any("__init_subclass__" in vars(cls) for cls in value.__mro__[1:-1] if cls.__module__ != "typing")


def _rewritten(value: type, node: ast.ClassDef) -> bool:
    """Whether a decorator or a metaclass may have replaced the attributes of the body: dataclasses and enums do."""
    return bool(node.decorator_list) or type(value) not in (type, abc.ABCMeta) or hasattr(value, "_field_defaults")


def _attributes(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield each name that the body of a class binds, and its expression where it is a simple assignment."""
    for inner in ast.walk(ast.Module([*node.body], [])):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield _mangled(inner.id, node), None
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield _mangled(inner.name, node), None
        elif isinstance(inner, ast.Assign) and len(inner.targets) == 1 and isinstance(inner.targets[0], ast.Name):
            yield _mangled(inner.targets[0].id, node), inner.value
        elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name) and inner.value is not None:
            yield _mangled(inner.target.id, node), inner.value


def _mangled(name: str, node: ast.ClassDef) -> str:
    private = name.startswith("__") and not name.endswith("__")
    return f"_{node.name.lstrip('_')}{name}" if private else name


def _named(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return what a dotted name stands for now; MISSING for other expressions."""
    if isinstance(node, ast.Name):
        return names.get(node.id, MISSING)
    if isinstance(node, ast.Attribute):
        return getattr(_named(node.value, names), node.attr, MISSING)
    return MISSING


def _literal(node: ast.expr | None) -> Any:
    """Return the value of a literal; MISSING for any other expression."""
    try:
        return MISSING if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return MISSING


def _unequal(left: Any, right: Any) -> bool:
    try:
        return type(left) is not type(right) or repr(left) != repr(right)
    except Exception:  # a repr of the user's
        return True
