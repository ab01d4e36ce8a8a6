from __future__ import annotations

import os
from pathlib import Path

import pytest

from hive.config.syntax import CONFIG_BYTES, parse, read, value_of
from hive.errors import ConfigError


def message(content: bytes | str) -> str:
    with pytest.raises(ConfigError) as raised:
        parse(content if isinstance(content, bytes) else content.encode(), "bad.toml")
    text = str(raised.value)
    assert bool(raised.value.hint) != ("^ " in text)  # one hint: the general one, or that of the mark
    return text


def test_a_document_and_its_positions() -> None:
    document, source = parse(b"[run]\r\nseed = 1\r\nsteps = 2\r\n", "x.toml")
    assert document == {"run": {"seed": 1, "steps": 2}}
    assert source.origin(("run", "steps")) == "x.toml:3"


def test_a_byte_order_mark_is_no_error() -> None:
    assert parse("\ufeffa = 1".encode(), "x.toml")[0] == {"a": 1}


def test_a_syntax_error_shows_its_place() -> None:
    assert message("[run]\nseed = 1\nsteps = 2x\n") == (
        "1 problem in `bad.toml`\n"
        "\n"
        "bad.toml:3: expected newline or end of document after a statement, column 10\n"
        "     3 | steps = 2x\n"
        "       |          ^ numbers are 1_000, 0.5 or 1e-3, and texts stand in quotes"
    )


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("id = CartPole-v1", '"CartPole-v1"'),
        ("name = my run # the first", '"my run"'),
        ("wrappers = [mine:Centred, other:One]", '"mine:Centred"'),
        ("env = { id = CartPole-v1 }", '"CartPole-v1"'),
        ("path = C:\\x", "'C:\\x'"),
        ("id = 2048-v0", "in quotes"),
        ("good = True", "`true`"),
        ("seed = None", "leave the key out"),
        ("rate = .5", "`0.5`"),
        ("steps = 1,000", "1_000"),
        ("middleware = (64, 64)", "brackets"),
        ("id: CartPole", "'='"),
    ],
)
def test_a_usual_mistake_is_named(line: str, meant: str) -> None:
    assert meant in message(f"[env]\n{line}\n").splitlines()[-1 if "=" in line else 2]


def test_an_unfinished_file() -> None:
    assert message("a = [1\n\n").endswith(
        "bad.toml:1: unclosed array, at the end of the file\n     1 | a = [1\n       |       ^"
    )


@pytest.mark.parametrize(
    ("content", "line", "cause"),
    [
        ("a = 1\na = 2\n", 2, "cannot overwrite a value"),
        ("\n\na = \u2028 1\n", 3, "invalid value"),
        ("x = '\u2028'\nb = [\n\x00", 3, ""),
        ("\nb = " + "[" * 30_000 + "\nc =", 2, "nested too deep"),
        ("\n\nb = " + "9" * 5000 + "\nc = [", 3, "a number with too many digits"),
        ("b = " + "{a=" * 10_000, 1, "nested too deep"),
        (b"a = 1\nb = '\xff'\n", 2, "not UTF-8: byte 0xff"),
    ],
)
def test_each_error_has_its_line(content: bytes | str, line: int, cause: str) -> None:
    assert f"\n\nbad.toml:{line}: {cause}" in message(content)


def test_an_error_cannot_move_the_cursor() -> None:
    assert "\x1b" not in message("a = \x1b[2J")


def test_a_large_file_is_refused() -> None:
    assert parse(b"#" * CONFIG_BYTES, "x.toml")[0] == {}
    assert message(b"#" * (CONFIG_BYTES + 1)) == "`bad.toml` is larger than 64 KiB"


def test_reading(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(b"a = 1\n")
    assert read(file, "x.toml") == b"a = 1\n"
    file.write_bytes(b" " * (CONFIG_BYTES + 10))
    assert len(read(file, "x.toml")) == CONFIG_BYTES + 1


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("nothing.toml", "no such file: `shown`"),
        ("", "cannot read `shown`: is a directory"),
        ("file/x.toml", "cannot read `shown`: not a directory"),
        ("a\0b", "cannot read `shown`: embedded null byte"),
        ("x" * 300, "cannot read `shown`: file name too long"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, cause: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as raised:
        read(os.path.join(tmp_path, name), "shown")
    assert str(raised.value) == cause
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("1e-4", 1e-4),
        ("true", True),
        ('"true"', "true"),
        ("[64, 32]", [64, 32]),
        ("{a = 1}", {"a": 1}),
        ("a2c", "a2c"),
        ("ALE/Pong-v5", "ALE/Pong-v5"),
        ("", ""),
        ("[1, 2", "[1, 2"),
        ("1\n[run]", "1\n[run]"),
        ("7#hard", "7#hard"),
        ("7,", "7,"),
        ('"7#hard"', "7#hard"),
        ("[" * 5000, "[" * 5000),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_values_of_overrides(text: str, value: object) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("content", "hints"),
    [
        ("class Walk(gym.Env):\n    pass\n", ["hive init walks:Walk"]),
        ("def topology(config):\n    pass\n", ["hive up --topology walks.py"]),
        ("import gymnasium\n", ["hive init walks:CLASS"]),
        ("class A(Env):\n    pass\ndef topology(config):\n    pass\n", ["hive init walks:A", "--topology walks.py"]),
    ],
)
def test_a_python_file_in_place_of_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, hints: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("walks.py").write_text(content)
    with pytest.raises(ConfigError, match=r"(?m)^`walks\.py` is a Python file; expected a config in TOML$") as caught:
        read("walks.py", "walks.py")
    assert caught.value.hint.startswith(f"`{hints[0]}")
    assert all(hint in caught.value.hint for hint in hints)


def test_an_environment_in_place_of_a_config() -> None:
    with pytest.raises(ConfigError, match="no such file: `ALE/Pong-v5`") as caught:
        read("ALE/Pong-v5", "ALE/Pong-v5")
    assert caught.value.hint == "`hive init ALE/Pong-v5` writes a config for this environment"
