"""Whether a class or function is still what its source says.

The source is what other processes execute. An attribute that was set, a method that was replaced or a base class that
was defined anew after the definition is not in it, so it is refused by name: no run uses an old version without a word.
"""

from __future__ import annotations

import abc
import ast
import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

from hive.session.sources import Found, Source, functions_of

__all__ = ["change_in"]

KNOWN = ("__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__")  # what Python itself sets
MISSING: Any = object()


def change_in(value: Any, found: Found, names: Mapping[str, Any], sources: Sequence[Source]) -> str:
    """Return what of `value` differs from its source, as a clause; "" if nothing does.

    names: what the names of the definition stand for now.
    """
    node = found.node
    if isinstance(value, type) and isinstance(node, ast.ClassDef):
        return next(_class_changes(value, node, found, names, sources), "")
    if isinstance(value, FunctionType) and value in found.functions:
        return next(_function_changes(value, node, names), "")
    return ""


def _class_changes(
    value: type, node: ast.ClassDef, found: Found, names: Mapping[str, Any], sources: Sequence[Source]
) -> Iterator[str]:
    for base in node.bases:
        now = _named(base, names)
        if not node.decorator_list and isinstance(now, type) and now not in value.__mro__:
            yield f"its base class `{ast.unparse(base)}` was defined anew after it; define `{node.name}` again, too"
    said = dict(_attributes(node))
    for name, member in vars(value).items():
        if name in KNOWN or (name not in said and name.startswith("__")):
            continue
        functions = functions_of(getattr(member, "fget", None) or getattr(member, "__func__", member))
        if isinstance(member, types.MemberDescriptorType | types.GetSetDescriptorType):
            continue  # of `__slots__`
        if functions and not any(found.holds(one.__code__) for one in functions):
            own = name in said or any(one.__code__.co_filename == found.source.file for one in functions)
            if own or not _generated(value, node):
                yield f"its method `{name}` was replaced after its definition"
        elif name in said:
            if not _rewritten(value, node) and _differs(said[name], member, names):
                yield f"its attribute `{name}` was changed after its definition"
        elif not functions and not _generated(value, node):
            yield f"its attribute `{name}` was set after its definition"
    for name in said:
        if name not in vars(value) and not _rewritten(value, node):
            yield f"its attribute `{name}` was removed after its definition"
    if name := _assigned(node.name, sources):
        yield f"a statement of the session sets its attribute `{name}`"


def _function_changes(value: FunctionType, node: ast.AST, names: Mapping[str, Any]) -> Iterator[str]:
    arguments = getattr(node, "args", None)
    if isinstance(arguments, ast.arguments):
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = [*zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)]
        pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
        now = {name: one.default for name, one in inspect.signature(value, follow_wrapped=False).parameters.items()}
        for argument, default in pairs:
            if _differs(default, now.get(argument.arg, MISSING), names):
                yield f"the default of its argument `{argument.arg}` was changed after its definition"
    own = [name for name in vars(value) if name != "__wrapped__"]
    if own and not getattr(node, "decorator_list", ()):
        yield f"its attribute `{own[0]}` was set after its definition"


def _generated(value: type, node: ast.ClassDef) -> bool:
    """Whether code beside the class's own body may have added attributes: a decorator, a metaclass, a base class."""
    bases = [cls for cls in value.__mro__[1:-1] if cls.__module__ != "typing"]
    return _rewritten(value, node) or any("__init_subclass__" in vars(cls) for cls in bases)


def _rewritten(value: type, node: ast.ClassDef) -> bool:
    """Whether that code may have replaced the attributes of the body: dataclasses, enums, named tuples do."""
    return bool(node.decorator_list) or type(value) not in (type, abc.ABCMeta) or hasattr(value, "_field_defaults")


def _attributes(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield each name that the body of a class binds, and its expression where it is a simple assignment."""
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


def _differs(node: ast.expr | None, value: Any, names: Mapping[str, Any]) -> bool:
    """Whether an expression, a literal or a name, certainly has another value than `value`."""
    if node is None:
        return False
    try:
        said = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        said = _named(node, names)
        if said is MISSING or said is value:
            return False
    try:
        return type(said) is not type(value) or bool(said != value)
    except Exception:  # arrays have no single truth
        return said is not value


def _assigned(name: str, sources: Sequence[Source]) -> str:
    """Return an attribute that a top-level statement sets on the class `name`: `Env.size = 3`, `setattr(Env, ...)`."""
    for source in sources:
        for statement in source.tree.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            for node in ast.walk(statement):
                match node:
                    case ast.Attribute(value=ast.Name(id=found), attr=attribute, ctx=ast.Store() | ast.Del()):
                        if found == name:
                            return attribute
                    case ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id=found), attribute_node, *_]):
                        if found == name:
                            return ast.unparse(attribute_node)
    return ""
