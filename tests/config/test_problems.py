from __future__ import annotations

from hive.config.positions import Positions
from hive.config.problems import PROBLEMS_SHOWN, FileSource, Override, Problem, config_error, dotted

TEXT = "[run]\nseed = -1\n\tsteps\t= 0\n"
FILE = FileSource("dir/bad.toml", Positions(TEXT))


def test_a_file_points_at_its_values_and_keys() -> None:
    assert FILE.origin(("run", "steps")) == "dir/bad.toml:3"
    assert FILE.problem(("run", "seed"), "too small", note="try 1").text() == (
        "dir/bad.toml:2: run.seed: too small\n     2 | seed = -1\n       |        ^^ try 1"
    )
    assert FILE.problem(("run", "seed"), "unknown key", at_key=True).text() == (
        "dir/bad.toml:2: run.seed: unknown key\n     2 | seed = -1\n       | ^^^^"
    )


def test_tabs_do_not_shift_the_caret() -> None:
    assert FILE.problem(("run", "steps"), "x").text().splitlines()[1:] == [
        "     3 |  steps = 0",
        "       |          ^",
    ]


def test_a_missing_key_points_at_its_table() -> None:
    assert FILE.missing("run", "name", 'name = "x"').text() == (
        'dir/bad.toml:1: run.name: missing key\n     1 | [run]\n       |  ^^^ add `name = "x"`'
    )


def test_a_missing_table_points_at_the_end() -> None:
    assert FILE.missing("env", "id", 'id = "x"').text() == (
        'dir/bad.toml:3: env.id: missing key\n       | add `[env]` and `id = "x"`'
    )


def test_an_override_shows_itself() -> None:
    source = Override(0, "run.seed=\x1b-1")
    assert source.origin(("run", "seed")) == "--set"
    problem = source.problem(("run", "seed"), "too small", note="try 1")
    assert problem.text() == "--set run.seed=?-1: too small; try 1"
    assert source.problem(("run", "seed"), "too small").text() == "--set run.seed=?-1: too small"


def test_keys_are_spelt_as_the_place_demands() -> None:
    assert FILE.spell("run", "seed") == "seed"
    assert Override(0, "").spell("run", "seed") == "run.seed"


def test_dotted() -> None:
    assert dotted(("env", "options", "two words", 3, "x\n")) == 'env.options."two words"."x\\u000a"'
    assert len(dotted(("x" * 500,))) == 60


def test_problems_are_sorted_and_counted() -> None:
    late, early = FILE.problem(("run", "steps"), "b"), FILE.problem(("run", "seed"), "a")
    override = Override(0, "x=1").problem((), "c")
    lines = str(config_error("dir/bad.toml", [override, late, early])).splitlines()
    assert lines[0] == "3 problems in `dir/bad.toml` and `--set`"
    heads = [line for line in lines[1:] if line and not line.startswith(" ")]
    assert heads == ["dir/bad.toml:2: run.seed: a", "dir/bad.toml:3: run.steps: b", "--set x=1: c"]


def test_the_header_names_where_the_problems_are() -> None:
    override = Override(0, "x=1").problem((), "c")
    assert str(config_error("f.toml", [override])) == "1 problem in `--set`\n\n--set x=1: c"
    assert str(config_error("f.toml", [Problem((0, 1), "f.toml:1", "m")])) == "1 problem in `f.toml`\n\nf.toml:1: m"


def test_a_flood_of_problems_ends() -> None:
    problems = [Problem((0, line), f"f:{line}", "wrong") for line in range(PROBLEMS_SHOWN + 7)]
    lines = str(config_error("f", problems)).splitlines()
    assert lines[-1] == "... and 7 more"
    assert lines[-3] == f"f:{PROBLEMS_SHOWN - 1}: wrong"
