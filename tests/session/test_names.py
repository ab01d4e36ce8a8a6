"""hive.session.names: the names that statements bind."""

from __future__ import annotations

import ast

import pytest

from hive.session.names import names_bound


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("try:\n    a\nexcept OSError as error:\n    b = 1", {"error", "b"}),
        (
            "match a:\n    case [x, *others]:\n        pass\n    case {'k': y, **rest}:\n        pass",
            {"x", "others", "y", "rest"},
        ),
        ("match a:\n    case int() as number:\n        pass", {"number"}),
        ("c = [x for x in a if (last := x)]", {"c", "last"}),
        ("d = lambda x: x", {"d"}),
        ("import e.f as g, h.i", {"g", "h"}),
    ],
)
def test_a_statement_binds_its_own_names(code: str, names: set[str]) -> None:
    assert {name for name, _ in names_bound(ast.parse(code))} == names
