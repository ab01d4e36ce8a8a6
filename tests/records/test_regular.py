"""Only regular files are read, whatever lies in the place of a run's file, and nothing blocks."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from hive.errors import RecordError
from hive.free_memory import FreeMemory
from hive.records import JsonlWriter, RunDirectory, open_log, read_jsonl, read_object, regular
from hive.records.atomic import atomic_folder, check_folder
from hive.records.checkpoints.weights import read_weights
from hive.records.jsonl import last_lines
from hive.records.regular import open_regular, read_regular


def bound_socket(path: Path) -> None:
    here = socket.socket(socket.AF_UNIX)
    here.bind(os.path.relpath(path))
    here.close()


PLANTED: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a directory": Path.mkdir,
    "a socket": bound_socket,
    "a link": lambda path: path.symlink_to("/dev/zero"),
}
every_kind = pytest.mark.parametrize("kind", PLANTED)


@every_kind
def test_what_is_no_regular_file_is_refused_by_its_kind(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    PLANTED[kind](tmp_path / "planted")
    with pytest.raises(OSError, match=f"it is {kind}, not a file") as caught:
        open_regular(tmp_path / "planted")
    assert caught.value.filename == str(tmp_path / "planted")


def test_a_device_is_refused() -> None:
    with pytest.raises(OSError, match="it is a device, not a file"):
        read_regular(Path("/dev/zero"))


def test_regular_files_are_read_and_missing_ones_are_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"some\nlines")
    assert read_regular(tmp_path / "file") == b"some\nlines"
    with open_regular(tmp_path / "file") as file:
        assert file.readline() == b"some\n"
        assert not os.get_inheritable(file.fileno())
    with pytest.raises(FileNotFoundError) as caught:
        read_regular(tmp_path / "other")
    assert caught.value.errno == errno.ENOENT


def sparse(path: Path, size: int = 1 << 40) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_a_document_has_a_limit_before_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"it has 1,099,511,627,776 bytes, and at most [\d,]+ are read"):
        read_object(sparse(tmp_path / "summary.json"))


def test_a_file_larger_than_the_free_memory_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular, "HOLLOW_BYTES", 1 << 62)
    with pytest.raises(OSError, match="of memory are free"):
        read_regular(sparse(tmp_path / "weights.safetensors", 1 << 42))
    monkeypatch.setattr("hive.free_memory.free_memory", lambda: FreeMemory(1 << 60))
    with pytest.raises(OSError, match="more than this process may allocate"):
        read_regular(sparse(tmp_path / "weights.safetensors", 1 << 42))


def test_a_large_file_of_holes_is_neither_read_nor_compared_with_its_checksum(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "000001") as folder:
        (folder / "weights.safetensors").write_bytes(b"weights")
    path = sparse(tmp_path / "000001/weights.safetensors")
    done = tmp_path / "000001/DONE"
    done.write_text(done.read_text().replace('"size": 7', f'"size": {1 << 40}'))
    check_folder(path.parent, checksums=False)
    for read in (lambda: check_folder(path.parent), lambda: read_weights(path)):
        with pytest.raises(RecordError, match="almost none of them on the disk"):
            read()


def test_holes_in_files_of_lines_are_not_read(tmp_path: Path) -> None:
    path = sparse(tmp_path / "metrics.jsonl")
    with path.open("ab") as file:
        file.write(b'\n{"steps": 1}\n')
    assert list(read_jsonl(path)) == [{"steps": 1}]
    assert last_lines(path, 3) == [b'{"steps": 1}']
    assert list(read_jsonl(sparse(tmp_path / "events.jsonl"))) == []


def test_lines_are_appended_to_no_link_and_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    (tmp_path / "link").symlink_to("mine")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(RecordError, match=f"it is a {name}"):
            JsonlWriter(tmp_path / name)
        with pytest.raises(RecordError, match=f"it is a {name}"):
            open_log(tmp_path / name, "learner-0")


@every_kind
def test_records_in_whose_place_something_else_lies_are_errors(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    PLANTED[kind](path := tmp_path / "planted")
    for read in (lambda: [*read_jsonl(path)], lambda: read_object(path), lambda: last_lines(path, 3)):
        with pytest.raises(RecordError, match=kind):
            read()


@every_kind
def test_a_run_whose_resolved_config_is_no_file_is_not_opened(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunDirectory.create(tmp_path, "mine")
    assert RunDirectory.open(run.path).path == run.path
    PLANTED[kind](run.resolved_file)
    with pytest.raises(RecordError, match=r"resolved\.toml` is not a file of hive"):
        RunDirectory.open(run.path)
