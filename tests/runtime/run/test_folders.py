from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hive.errors import PlatformError
from hive.records import process_start_time
from hive.runtime.run.folders import NAME_BYTES, check_socket_paths, live_owners, make_socket_folder, socket_root, sweep
from hive.runtime.wire.stream import MAX_PATH_BYTES

RUN = Path("/somewhere/runs/cartpole-1")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder for this test only."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def dead_pid() -> int:
    """The pid of a process that has exited."""
    process = subprocess.Popen([sys.executable, "-P", "-S", "-c", ""])
    process.wait()
    return process.pid


def test_the_root_is_private_and_named_after_the_user(temporary: Path) -> None:
    root = socket_root()
    assert root == temporary / f"hive-{os.getuid()}"
    assert mode(root) == 0o700
    assert socket_root() == root


def test_the_root_is_private_whatever_the_umask(temporary: Path) -> None:
    before = os.umask(0)
    try:
        assert mode(socket_root()) == 0o700
        assert mode(make_socket_folder(RUN)) == 0o700
    finally:
        os.umask(before)


@pytest.mark.parametrize("loose", [0o755, 0o770, 0o701])
def test_a_root_that_other_users_can_access_is_refused(temporary: Path, loose: int) -> None:
    root = socket_root()
    root.chmod(loose)
    with pytest.raises(PlatformError, match="is not a private folder of yours") as caught:
        make_socket_folder(RUN)
    assert caught.value.hint == f"remove it, or: chmod 700 {root}"


def test_a_root_of_another_user_is_refused(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: temporary.stat().st_uid + 1)
    with pytest.raises(PlatformError, match="is not a private folder of yours"):
        socket_root()


def test_a_link_in_place_of_the_root_is_refused(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir(mode=0o700)
    (temporary / f"hive-{os.getuid()}").symlink_to(temporary / "elsewhere")
    with pytest.raises(PlatformError, match="is not a private folder of yours"):
        socket_root()


def test_a_file_in_place_of_the_root_is_refused(temporary: Path) -> None:
    (temporary / f"hive-{os.getuid()}").touch()
    with pytest.raises(PlatformError, match=r"cannot make .* for sockets"):
        socket_root()


def test_a_missing_temporary_folder(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "missing"))
    with pytest.raises(PlatformError, match=r"cannot make .* for sockets") as caught:
        socket_root()
    assert caught.value.hint.startswith("set TMPDIR to a folder of yours")


def test_a_machine_without_any_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk tempfile finds none."""

    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(PlatformError, match=r"cannot make .* for sockets: .* No usable temporary directory") as caught:
        socket_root()
    assert caught.value.hint.startswith("set TMPDIR to a folder of yours")


def test_a_root_whose_path_is_too_long_for_sockets_is_refused(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    root = len(os.fsencode(f"hive-{os.getuid()}"))
    longest = MAX_PATH_BYTES - NAME_BYTES - 1
    for length in (longest, longest + 1):
        folder = Path(tempfile.mkdtemp(prefix="x" * (length - root - len("/tmp/") - 8 - 1), dir="/tmp"))
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        try:
            if length == longest:
                check_socket_paths()
            else:
                with pytest.raises(PlatformError, match=f"too long for sockets: it may have {longest} bytes") as caught:
                    check_socket_paths()
                assert "short path" in caught.value.hint
        finally:
            shutil.rmtree(folder)


def test_every_run_has_a_private_folder_that_names_its_supervisor() -> None:
    one, other = make_socket_folder(RUN), make_socket_folder(RUN)
    assert one != other
    for folder in (one, other):
        assert folder.parent == socket_root()
        assert mode(folder) == 0o700
        pid, start, _, run = (folder / "owner").read_text().split()
        assert Path(run) == RUN
        assert (int(pid), int(start)) == (os.getpid(), process_start_time(os.getpid()))


def test_paths_are_short_enough_for_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """In /tmp, with the longest name of an actor and an incarnation of five digits."""
    length = len(os.fsencode(f"/tmp/hive-{os.getuid()}/")) + len(make_socket_folder(RUN).name)
    assert length + len("/") + 40 + len("-99999") <= 107


def test_sweep_removes_folders_of_supervisors_that_have_exited(dead_pid: int) -> None:
    gone, older, reused, alive = (make_socket_folder(RUN) for _ in range(4))
    (gone / "owner").write_text(f"{dead_pid} 12345\n/runs/pong-1")
    (gone / "control").touch()
    (older / "owner").write_text(f"{dead_pid} 12345")  # an older version, which did not write the run directory
    (reused / "owner").write_text(f"{os.getpid()} 1\n{RUN}")  # the pid now belongs to another process
    assert sweep() == sorted([Path("/runs/pong-1"), RUN])
    assert list(socket_root().iterdir()) == [alive]
    assert sweep() == []


@pytest.mark.parametrize("text", [None, "", "12", "x y", "1 2 3", "\udcff"])
def test_sweep_keeps_folders_with_an_unreadable_owner(text: str | None) -> None:
    folder = make_socket_folder(RUN)
    (folder / "owner").unlink()
    if text is not None:
        (folder / "owner").write_bytes(os.fsencode(text))
    (socket_root() / "a file").touch()
    assert sweep() == []
    assert folder.exists()


def test_live_owners_lists_the_active_runs(dead_pid: int) -> None:
    other = Path("/elsewhere/pong-7")
    make_socket_folder(other)
    make_socket_folder(RUN)
    (make_socket_folder(Path("/gone/lost-1")) / "owner").write_text(f"{dead_pid} 12345\n/gone/lost-1")
    (socket_root() / "a file").touch()
    assert live_owners() == [(other, os.getpid()), (RUN, os.getpid())]


def test_an_owner_that_names_no_run_is_not_listed() -> None:
    folder = make_socket_folder(RUN)
    (folder / "owner").write_text(f"{os.getpid()} {process_start_time(os.getpid())}")  # as an earlier version wrote it
    assert live_owners() == []
    assert sweep() == []
