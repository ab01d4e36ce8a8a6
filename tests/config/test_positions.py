from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive.config.positions import LINE_WIDTH, PATH_DEPTH, KeyPath, Mark, Positions, mark
from hive.config.values import toml_key, toml_text

FILE = """\
# a comment with [brackets] and key = 1
top = 1   # and another

[run]
name = "x # no comment ] } ,"
  indented = 2.5
"quoted key" = "it's"
when = 1979-05-27 07:32:00

[env.options]
a.b . c = true
text = QQQ
[not.a.table]
key = "value" \\QQQ
QQQ
literal = @@@
also = not@@@
inline = { x = 1, "y z" = [1, { w = "}" }], deep.er = 2 }
list = [
  1, # one
  [2, 3],
]
[ spaced . "header" ]
k=1
[[tables]]
k=1
[[tables]]
k=2
""".replace("QQQ", '"' * 3).replace("@@@", "'" * 3)


def at(path: KeyPath, *, key: bool = False) -> tuple[int, str]:
    """The line number and the marked text."""
    positions = Positions(FILE)
    found = positions.key(path) if key else positions.value(path)
    return found.line, found.text[found.column : found.column + found.length]


def line_of(text: str) -> int:
    return FILE[: FILE.index(text)].count("\n") + 1


@pytest.mark.parametrize(
    ("path", "text", "in_line"),
    [
        (("top",), "1", "top ="),
        (("run", "name"), '"x # no comment ] } ,"', "name ="),
        (("run", "indented"), "2.5", "indented"),
        (("run", "quoted key"), '"it\'s"', '"quoted key"'),
        (("run", "when"), "1979-05-27 07:32:00", "when ="),
        (("env", "options", "a", "b", "c"), "true", "a.b . c"),
        (("env", "options", "text"), '"""', "text ="),
        (("env", "options", "literal"), "'''", "literal ="),
        (("env", "options", "inline", "x"), "1", "inline ="),
        (("env", "options", "inline", "y z", 0), "1", "inline ="),
        (("env", "options", "inline", "y z", 1, "w"), '"}"', "inline ="),
        (("env", "options", "inline", "deep", "er"), "2", "inline ="),
        (("env", "options", "list"), "[", "list ="),
        (("env", "options", "list", 0), "1", "1, # one"),
        (("env", "options", "list", 1, 1), "3", "[2, 3]"),
        (("spaced", "header", "k"), "1", "k=1\n[["),
        (("tables", "k"), "1", "k=1\n[[tables]]\nk=2"),
    ],
)
def test_values(path: KeyPath, text: str, in_line: str) -> None:
    assert at(path) == (line_of(in_line), text)


@pytest.mark.parametrize(
    ("path", "text", "in_line"),
    [
        (("run",), "run", "[run]"),
        (("run", "quoted key"), '"quoted key"', '"quoted key"'),
        (("env",), "env", "[env.options]"),
        (("env", "options"), "options", "[env.options]"),
        (("env", "options", "a", "b"), "b", "a.b . c"),
        (("env", "options", "inline", "deep"), "deep", "inline ="),
        (("env", "options", "inline", "deep", "er"), "er", "inline ="),
        (("spaced", "header"), '"header"', "[ spaced"),
        (("tables",), "tables", "[[tables]]"),
    ],
)
def test_keys(path: KeyPath, text: str, in_line: str) -> None:
    assert at(path, key=True) == (line_of(in_line), text)


def test_the_file_is_toml() -> None:
    assert tomllib.loads(FILE)["env"]["options"]["literal"] == "also = not"


def test_what_is_not_there_is_found_at_its_ancestor() -> None:
    assert at(("run", "name", "x", 3)) == at(("run", "name"))
    assert at(("run", "nothing")) == (line_of("[run]"), "run")
    assert Positions(FILE).key(("nothing",)) == Mark(FILE.count("\n"), "", 0, 0)
    assert Positions("").value(("a", "b")) == Mark(1, "", 0, 0)


def test_a_header_before_its_parent_keeps_its_line() -> None:
    assert Positions("[env.options]\n[env]\nid = 1\n").key(("env",)).line == 1


def test_long_paths_end_at_a_depth() -> None:
    positions = Positions(".".join("a" * 1000) + " = 1\nb = 2\n")
    assert positions.key(("a",) * 500).column == 2 * (PATH_DEPTH - 1)
    assert len(positions._keys) == PATH_DEPTH + 1
    assert positions.value(("b",)) == Mark(2, "b = 2", 4, 1)


def test_marks() -> None:
    text = "one\ntwo three\nfour"
    assert mark(text, 4, 7) == Mark(2, "two three", 0, 3)
    assert mark(text, 8, 18) == Mark(2, "two three", 4, 5)
    assert mark(text, 3, 3) == Mark(1, "one", 3, 1)
    assert mark(text, len(text), len(text) + 1) == Mark(3, "four", 4, 1)
    assert mark("", 0, 1) == Mark(1, "", 0, 1)


def test_a_long_line_is_cut_around_the_mark() -> None:
    text = "x" * 500 + "HERE" + "y" * 500
    found = mark(text, 500, 504)
    assert len(found.text) == LINE_WIDTH
    assert found.text[found.column : found.column + found.length] == "HERE"
    assert mark(text, 0, 1000).length == LINE_WIDTH


WORDS = st.text("ab c\"'#=[]{},.\\é", max_size=6)
VALUES = st.recursive(
    WORDS | st.integers(-9, 99) | st.booleans() | st.floats(0, 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.dictionaries(WORDS, st.dictionaries(WORDS, VALUES, max_size=3), max_size=3)
ENDINGS = st.sampled_from(["\n", "  # x = [1]\n", "\n\n", "\n  # [t]\n\t"])


def written(document: dict[str, dict[str, Any]], ending: str) -> str:
    lines = []
    for table, content in document.items():
        lines.append(f"[ {toml_key(table)} ]")
        lines += [f"{toml_key(key)} = {toml_text(value)}" for key, value in content.items()]
    return "".join(line + ending for line in lines)


def leaves(value: Any, path: KeyPath = ()) -> list[tuple[KeyPath, Any]]:
    if not isinstance(value, dict | list):
        return [(path, value)]
    steps = value.items() if isinstance(value, dict) else enumerate(value)
    return [leaf for step, item in steps for leaf in leaves(item, (*path, step))]


@given(DOCUMENTS, ENDINGS)
def test_every_leaf_of_a_document_is_marked_exactly(document: dict[str, dict[str, Any]], ending: str) -> None:
    text = written(document, ending)
    assert tomllib.loads(text) == document
    positions = Positions(text)
    for path, value in leaves(document):
        start, end = positions._values[path]
        assert tomllib.loads(f"value = {text[start:end]}") == {"value": value}
        if isinstance(path[-1], str):
            start, end = positions._keys[path]
            assert tomllib.loads(f"{text[start:end]} = 1") == {path[-1]: 1}
