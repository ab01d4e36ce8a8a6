"""What users' code sees of the program that started a run: arguments, folder, hash seed, and files."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hive import hash_seed
from hive.hash_seed import SEED, VARIABLE, seed_of
from hive.records import RunDirectory
from hive.records.program import Program, enter, read_program, write_program
from hive.runtime.process.user_code.code_of_run import code_of_process, differences


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "cart")


def test_arguments_and_folder_reach_users_code(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    write_program(run, ["train.py", "--wind", "5", os.fsdecode(b"\xff")])
    assert stat.S_IMODE(run.program_file.stat().st_mode) == 0o600
    monkeypatch.chdir("/")
    enter(run)
    assert sys.argv[:3] == ["train.py", "--wind", "5"]
    assert Path.cwd() == tmp_path
    assert str(tmp_path) in sys.path
    assert read_program(run) is not None
    assert seed_of(run.path) == SEED


def test_modules_beside_a_script_are_found_by_their_names(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an environment that a script names by a text, `env="lock:Lock"`."""
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    write_program(run, ["train.py"])
    found = sys.path[1:]
    monkeypatch.setattr(sys, "path", [*found])
    enter(run)
    assert sys.path == [*found, str(tmp_path)]
    write_program(run, ["hive"])
    assert read_program(run) == Program(["hive"], str(Path.cwd()), os.environ.get(VARIABLE, SEED))


@pytest.mark.parametrize("text", ["", "[]", '{"hash_seed": 5}', '{"hash_seed": "5; rm"}'])
def test_a_damaged_file_changes_nothing(run: RunDirectory, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pytest"])
    run.program_file.write_text(text)
    before = Path.cwd()
    enter(run)
    assert (sys.argv, Path.cwd(), seed_of(run.path)) == (["pytest"], before, SEED)


def test_a_folder_that_is_gone_stays_behind(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pytest"])
    before = Path.cwd()
    run.program_file.write_text('{"argv": ["a"], "folder": "/no/such/folder", "hash_seed": "0"}')
    enter(run)
    assert (sys.argv, Path.cwd()) == (["a"], before)
    assert read_program(run) == Program(["a"], "/no/such/folder")


@pytest.mark.parametrize(("words", "given", "seed"), [("eval", None, "0"), ("eval", "7", "7"), ("ls", None, None)])
def test_commands_that_import_users_code_have_the_hash_seed(
    tmp_path: Path, words: str, given: str | None, seed: str | None
) -> None:
    script = tmp_path / "hive"
    script.write_text(
        "import os, sys\nfrom hive import hash_seed\n"
        f"hash_seed.settle({[words]!r})\n"
        f"print(os.environ.get('{VARIABLE}'), hash('text') == hash('text'))"
    )
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {} if given is None else {VARIABLE: given}
    done = subprocess.run([sys.executable, "-P", script], env=environment, capture_output=True, text=True)
    assert done.stdout == f"{seed} True\n", done.stderr


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("python -m hive eval", True),
        ("python -P -m hive check", True),
        ("python /venv/bin/hive eval", True),
        ("python -u -c code hive eval", False),
        ("python train.py hive", False),
        ("python -m pytest", False),
    ],
)
def test_the_command_is_known_by_how_its_process_was_started(line: str, is_one: bool) -> None:
    assert hash_seed.is_command(line.split()) is is_one


def test_only_the_command_executes_itself_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    hash_seed.settle(["eval"])  # as a program does that calls `hive.cli.main()`
    monkeypatch.delenv(VARIABLE, raising=False)
    hash_seed.execute_with("3")  # in a script it does nothing
    assert VARIABLE not in os.environ


def test_other_files_of_users_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "plant_of_code.py").write_text("SIGN = 1\n")
    first = code_of_process(["plant_of_code:Plant", "CartPole-v1", "no_such_module:Plant"])
    assert "module plant_of_code" in first  # though another process imports it
    assert not [name for name in first if name.startswith(("module hive", "module numpy", "module json"))]
    assert first["Python"] == ".".join(map(str, sys.version_info[:3]))
    (tmp_path / "plant_of_code.py").write_text("SIGN = -1\n")
    again = code_of_process([f"{tmp_path / 'plant_of_code.py'}:Plant"])
    assert differences(first, again) == ["module plant_of_code"]
    assert differences(first, {"module new": "1"}) == []
