from __future__ import annotations

import os
from pathlib import Path

import pytest

from hive.config import load_config
from hive.config.references import absolute
from hive.errors import UsageError
from hive.paths import check_current_folder, current_folder, user_path
from hive.records import RunDirectory, checkpoint_at, home_folder, resolve_run, write_checkpoint


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HIVE_HOME", "~/runs")
    return tmp_path


def test_a_tilde_is_the_home_folder_wherever_no_shell_has_replaced_it(home: Path) -> None:
    assert home_folder() == home / "runs"
    run = RunDirectory.create(home_folder(), "a")
    saved = write_checkpoint(run.checkpoints, 1, tensors={}, parts={}, state={})
    assert resolve_run(home, "~/runs/a-1").path == run.path.resolve()
    assert checkpoint_at("~/runs/a-1").path.resolve() == saved.resolve()
    assert checkpoint_at("~/runs/a-1/checkpoints/000001").update == 1
    assert absolute("~/t.py:topology") == f"{home}/t.py:topology"
    assert user_path("a~/b") == Path("a~/b")


def test_a_tilde_of_an_unknown_user_is_an_error() -> None:
    with pytest.raises(UsageError, match="`~no-such-user/x`: could not determine home directory") as refused:
        user_path("~no-such-user/x")
    assert refused.value.hint == "write the whole path"


def test_a_current_folder_that_was_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert current_folder() == tmp_path.resolve()
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert current_folder() is None
    with pytest.raises(UsageError, match="the current folder was deleted") as refused:
        check_current_folder()
    assert "another folder" in refused.value.hint
    os.chdir(tmp_path)  # other fixtures need one


def test_a_pipe_is_read_once_and_keeps_its_content(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b'run.steps = 9\n[env]\nid = "CartPole-v1"\n'.replace(b"run.steps = 9", b"[run]\nsteps = 9"))
    os.close(writing)
    path = f"/dev/fd/{reading}"
    assert load_config(path).run.steps == 9
    os.close(reading)
    assert load_config(path, ["run.seed=4"]).run.steps == 9
    file = tmp_path / "x.toml"
    file.write_text('[env]\nid = "A"\n')
    assert load_config(file).env.id == "A"
    file.write_text('[env]\nid = "B"\n')
    assert load_config(file).env.id == "B"  # a file is read again
