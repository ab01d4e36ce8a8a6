"""Problems that only user code can find are reported like all others: with place and caret, and all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive.config import ConfigProblems, load_config, render
from hive.errors import ConfigError

TEXT = """[env]
id = "CartPole-v1"
[custom.curriculum]
level = "high"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(TEXT)
    return path


def test_tables_of_ones_own_are_kept_as_they_are() -> None:
    config = load_config("x", ["custom.a.b=[1, 2]", "custom.a.c.d=true"], text=TEXT)
    assert config.custom == {"curriculum": {"level": "high"}, "a": {"b": [1, 2], "c": {"d": True}}}
    assert config.value("custom.a.b") == [1, 2]
    assert config.origin("custom.curriculum") == "x:3"
    again = load_config("again", text=render(config))
    assert again == config
    assert again.custom == config.custom


def test_they_count_as_differences() -> None:
    one = load_config("x", text=TEXT)
    other = load_config("x", ["custom.curriculum.level=3", "custom.new.x=1"], text=TEXT)
    assert one.differences(other) == ["custom.curriculum.level", "custom.new.x"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[custom]\nx = 1\n", r"x:2: custom\.x: expected a table \[custom\.GROUP\], got 1"),
        ("custom = 3\n", r"x:1: custom: unknown key"),
        ("[custom.a]\nx = nan\n", r"x:2: custom\.a\.x: expected strings, finite numbers"),
        ("[custom.a]\nx = 1979-05-27\n", r"x:2: custom\.a\.x: expected strings, finite numbers"),
    ],
)
def test_what_is_no_table_of_plain_values(text: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        load_config("x", ["env.id=CartPole-v1"], text=text)


def test_an_environment_is_no_must_with_a_topology_of_ones_own() -> None:
    config = load_config("x", ["run.topology=mine.py"], text="")
    assert config.env.id == ""
    assert load_config("again", text=render(config)) == config
    with pytest.raises(ConfigError, match=r"env\.id: missing key"):
        load_config("x", text="")


def test_a_problem_points_at_its_value(file: Path) -> None:
    problems = ConfigProblems(file)
    problems.add(("custom", "curriculum", "level"), "expected an integer", "did you mean 3?")
    problems.add(("custom", "curriculum", "name"), "expected a string")
    with pytest.raises(ConfigError) as caught:
        problems.raise_all()
    text = str(caught.value)
    assert text.startswith("2 problems in `run.toml` and `--set`")
    assert 'run.toml:4: custom.curriculum.level: expected an integer\n     4 | level = "high"' in text
    assert "^^^^^^ did you mean 3?" in text
    assert "custom.curriculum.name: expected a string" in text


@pytest.mark.parametrize("content", [None, "", "[custom.curr", "\0"])
def test_a_file_that_has_changed_since_is_no_second_problem(file: Path, content: str | None) -> None:
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    problems = ConfigProblems(file)
    problems.add(("custom", "curriculum", "level"), "expected an integer")
    with pytest.raises(ConfigError, match=r"custom\.curriculum\.level: expected an integer"):
        problems.raise_all()


def test_no_problem_is_no_error() -> None:
    ConfigProblems(None).raise_all()
