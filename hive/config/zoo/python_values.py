"""Reads the values in a Python expression, as `dict(net_arch=[64, 64], activation_fn=nn.ReLU)`, without running it.

constants, lists, tuples, dictionaries     the same, tuples as lists
dict(a=1)                                  {"a": 1}
nn.ReLU, RMSpropTFLike                     Named("nn.ReLU"), a name without its object
"""

from __future__ import annotations

import ast
from typing import Any

LONGEST = 4_096  # characters of an expression: ten lines are usual, and Python's parser needs a limit


class Named(str):
    """A name of Python in an expression, such as a class."""

    __slots__ = ()


def values_in(text: str) -> Any:
    """Return the values of a Python expression. Raises ValueError for what is no such value."""
    if len(text) > LONGEST:
        raise ValueError(f"more than {LONGEST:,} characters")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"no expression of Python: {error}") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() as number)):
            return -number if isinstance(sign, ast.USub) else +number
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part) for part in parts]
        case ast.Dict(keys=keys, values=values) if all(isinstance(key, ast.Constant) for key in keys):
            return {str(key.value): _value(value) for key, value in zip(keys, values, strict=True)}  # type: ignore[union-attr]
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=given) if all(one.arg for one in given):
            return {str(one.arg): _value(one.value) for one in given}
        case ast.Name() | ast.Attribute() if (name := ast.unparse(node)).replace(".", "").isidentifier():
            return Named(name)
    raise ValueError(f"`{ast.unparse(node)[:60]}` is no value")
