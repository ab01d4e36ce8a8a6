"""Who may write in a run's directory: one process at a time, also of other containers and hosts."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hive.errors import RecordError, UsageError
from hive.records import RunDirectory, run_state
from hive.records import owner as module
from hive.records.owner import (
    STILL_S,
    Owner,
    Ownership,
    adopt,
    descriptor_of,
    give_up,
    only_owner,
    own,
    owned,
    owner_of,
)

TAKE = """
import os, sys
from pathlib import Path
from hive.records import RunDirectory
from hive.records.owner import adopt, own, owner_of
run = RunDirectory(Path(sys.argv[1]))
own(run)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "cart")


def in_another_process(code: str, run: RunDirectory, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", code, str(run.path)]
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload, no-any-return]


def abroad(run: RunDirectory, **changes: object) -> Owner:
    """Leave the mark of an owner on another host, whose lock this one does not know."""
    owner = dataclasses.replace(Owner.me("theirs"), host="node-3", boot="another", **changes)  # type: ignore[arg-type]
    run.lock_file.write_text(json.dumps(dataclasses.asdict(owner)))
    return owner


def test_a_run_has_one_owner(run: RunDirectory) -> None:
    assert owner_of(run) is None
    assert run_state(run) == "lost"
    own(run)
    assert run_state(run) == "running"
    with pytest.raises(UsageError, match=f"cart-1 is running.* process {os.getpid()}"):
        own(run)
    refused = in_another_process(TAKE, run)
    assert "UsageError" in refused.stderr
    assert f"process {os.getpid()}" in refused.stderr
    give_up(run)
    assert in_another_process(TAKE, run).returncode == 0
    assert run_state(run) == "lost"  # its process has ended, though it gave nothing up


def test_a_lock_goes_with_its_descriptor(run: RunDirectory) -> None:
    own(run)
    descriptor = descriptor_of(run)
    assert descriptor is not None
    code = TAKE.replace("own(run)", f"adopt(run, {descriptor}); print(owner_of(run).pid == os.getpid())")
    assert in_another_process(code, run, pass_fds=[descriptor]).stdout == "True\n"
    assert owner_of(run) is not None  # this process has the file open, too
    give_up(run, clear=False)
    assert owner_of(run) is None


def test_children_of_an_owner_do_not_keep_its_lock(run: RunDirectory) -> None:
    own(run)
    ready, release = os.pipe()
    if (child := os.fork()) == 0:
        os.close(release)
        os.read(ready, 1)
        os._exit(0)
    give_up(run)
    assert owner_of(run) is None
    os.close(release)
    os.waitpid(child, 0)


def test_a_lock_file_that_was_removed_is_made_again(run: RunDirectory) -> None:
    own(run)
    watch = Ownership(run)
    run.lock_file.unlink()
    assert owned(run).is_ours()
    assert owner_of(run) is not None
    watch.check()
    give_up(run)


def test_an_owner_that_was_asleep_finds_another_one(run: RunDirectory) -> None:
    own(run)
    watch = Ownership(run)
    abroad(run)
    assert not owned(run).is_ours()
    with pytest.raises(RecordError, match="another process continues cart-1"):
        watch.check()
    give_up(run)
    assert json.loads(run.lock_file.read_text())["host"] == "node-3"  # the mark of the other one stays


def test_an_owner_on_another_host_is_left_alone_until_it_stood_still(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    abroad(run)
    assert run_state(run) == "running"
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    touched = [False]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if not touched[0] and now[0] > STILL_S / 2:
            touched[0] = True
            os.utime(run.lock_file, ns=(1, os.stat(run.lock_file).st_mtime_ns + 1))

    monkeypatch.setattr(module.time, "sleep", sleep)
    said: list[str] = []
    with pytest.raises(UsageError, match="on node-3"):
        own(run, said.append)
    assert len(said) == 1
    with only_owner(run):
        assert now[0] > 1.5 * STILL_S - 1  # nothing moved for so long
        assert owner_of(run) is not None
    assert owner_of(run) is None


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"token": 1}', "\0" * 5000, "[" * 4000])
def test_a_damaged_lock_file_names_nobody(run: RunDirectory, content: str) -> None:
    run.lock_file.write_text(content)
    assert owner_of(run) is None
    with only_owner(run):
        assert owner_of(run) is not None


def test_a_lock_file_is_no_link(run: RunDirectory, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    run.lock_file.symlink_to(victim)
    with pytest.raises(RecordError, match=r"run\.lock"):
        own(run)
    assert victim.read_text() == "mine"


def test_a_process_adopts_what_it_was_given(run: RunDirectory) -> None:
    own(run)
    descriptor = descriptor_of(run)
    assert descriptor is not None
    given = os.dup(descriptor)
    give_up(run, clear=False)
    adopt(run, given)
    assert not os.get_inheritable(given)
    assert owned(run).is_ours()
    give_up(run)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_cannot_lock_a_run_and_sees_its_owner() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        run = RunDirectory.create(Path(folder), "cart")
        own(run)
        assert run.lock_file.stat().st_mode & 0o077 == 0
        with as_nobody():
            assert owner_of(run) is not None
            with pytest.raises(RecordError, match=r"run\.lock"):
                own(run)
        give_up(run)
        with as_nobody():
            assert owner_of(run) is None


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
