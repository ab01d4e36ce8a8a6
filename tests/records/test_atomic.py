"""Faults at every operation: the previous good record stays, the new one is whole or refused."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
from pathlib import Path

import pytest

from hive.errors import RecordError
from hive.records.atomic import (
    DONE,
    Files,
    atomic_file,
    atomic_folder,
    check_folder,
    remove_unfinished,
    write_bytes,
    write_json,
    write_mark,
)

CONTENT = {"weights.bin": b"w" * 1000, "sub/state.json": b"{}", "empty": b""}


class FullDisk(Files):
    """From operation `fault` on (counted from 0) nothing can be written; a write leaves half of its bytes."""

    def __init__(self, fault: int) -> None:
        self.fault = fault
        self.operations = 0

    def _operate(self) -> None:
        self.operations += 1
        if self.operations > self.fault:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def make_folder(self, path: Path) -> None:
        self._operate()
        super().make_folder(path)

    def write(self, path: Path, data: bytes) -> None:
        super().write(path, data[: len(data) // 2])
        self._operate()
        super().write(path, data)

    def sync(self, path: Path) -> None:
        self._operate()
        super().sync(path)

    def rename(self, source: Path, target: Path) -> None:
        self._operate()
        super().rename(source, target)


class PowerCutError(BaseException):
    """The machine is gone: no handler for ordinary errors may see it."""


class PowerCut(FullDisk):
    """A power cut at operation `fault`, which loses everything that was not forced onto the disk.

    Contents that were not synced are empty, entries whose folder was not synced are not there. Renames are on
    the disk at once, which is the worst they can be: before what they point at.
    """

    def __init__(self, fault: int) -> None:
        super().__init__(fault)
        self.contents: set[Path] = set()
        self.entries: set[Path] = set()

    def _operate(self) -> None:
        self.operations += 1
        if self.operations == self.fault + 1:
            for path in self.contents:
                Files.write(self, path, b"")
            for path in self.entries:
                Files.remove(self, path)
        if self.operations > self.fault:
            raise PowerCutError

    def make_folder(self, path: Path) -> None:
        super().make_folder(path)
        self.entries.add(path)

    def write(self, path: Path, data: bytes) -> None:
        self._operate()
        Files.write(self, path, data)
        self.contents.add(path)
        self.entries.add(path)

    def sync(self, path: Path) -> None:
        super().sync(path)
        self.contents.discard(path)
        self.entries = {entry for entry in self.entries if entry.parent != path}

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        for paths in (self.contents, self.entries):
            moved = {path for path in paths if source in path.parents}
            paths.difference_update(moved, {source})
            paths.update(target / path.relative_to(source) for path in moved)

    def remove(self, path: Path) -> None:
        self._operate()
        super().remove(path)


def fill(folder: Path, files: Files) -> None:
    files.make_folder(folder / "sub")
    for name, data in CONTENT.items():
        files.write(folder / name, data)


def save(final: Path, files: Files) -> None:
    with atomic_folder(final, files) as folder:
        fill(folder, files)


def assert_whole(folder: Path) -> None:
    check_folder(folder)
    assert {name: (folder / name).read_bytes() for name in CONTENT} == CONTENT


def operations_of_a_save(tmp_path: Path) -> int:
    files = FullDisk(fault=10_000)
    save(tmp_path / "counted", files)
    shutil.rmtree(tmp_path / "counted")
    return files.operations


def test_a_folder_appears_whole_with_done(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "250") as folder:
        fill(folder, Files())
        assert folder.parent == tmp_path
        assert not (tmp_path / "250").exists()
    assert_whole(tmp_path / "250")
    listing = json.loads((tmp_path / "250" / DONE).read_bytes())["files"]
    assert sorted(listing) == sorted(CONTENT)
    assert listing["weights.bin"]["size"] == 1000
    assert os.listdir(tmp_path) == ["250"]


def test_a_full_disk_at_every_operation(tmp_path: Path) -> None:
    save(tmp_path / "1", Files())
    total = operations_of_a_save(tmp_path)
    assert total >= 14
    for fault in range(total):
        with pytest.raises(RecordError, match=r"cannot write `.*/2`: no space left on device"):
            save(tmp_path / "2", FullDisk(fault))
        assert_whole(tmp_path / "1")
        if (tmp_path / "2").exists():  # only its parent could not be synced any more
            assert fault == total - 1
            assert_whole(tmp_path / "2")
        assert [path for path in os.listdir(tmp_path) if path.startswith(".")] == []


def test_a_power_cut_at_every_operation(tmp_path: Path) -> None:
    save(tmp_path / "1", Files())
    appeared = []
    for fault in itertools.count():
        try:
            save(tmp_path / "2", PowerCut(fault))
            break
        except PowerCutError:
            assert_whole(tmp_path / "1")
            if (tmp_path / "2").exists():
                appeared.append(fault)
                assert_whole(tmp_path / "2")
                shutil.rmtree(tmp_path / "2")
    assert len(appeared) == 1  # after the rename, before the parent was synced
    assert_whole(tmp_path / "2")
    assert sorted(os.listdir(tmp_path)) == ["1", "2"]  # each save cleared what the one before it had left


def test_the_power_cut_finds_a_missing_sync(tmp_path: Path) -> None:
    class Lazy(PowerCut):
        def sync(self, path: Path) -> None:
            if path.name != "weights.bin":
                super().sync(path)

    torn = 0
    for fault in range(operations_of_a_save(tmp_path)):
        with pytest.raises(PowerCutError):
            save(tmp_path / "2", Lazy(fault))
        if (tmp_path / "2").exists():
            with pytest.raises(RecordError, match=r"weights\.bin"):
                check_folder(tmp_path / "2")
            torn += 1
            break
    assert torn


def test_an_existing_folder_is_not_replaced(tmp_path: Path) -> None:
    save(tmp_path / "1", Files())
    with pytest.raises(RecordError, match="already exists"):
        save(tmp_path / "1", Files())
    assert_whole(tmp_path / "1")


def test_an_error_inside_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_folder(tmp_path / "1") as folder:
            fill(folder, Files())
            raise KeyError("of the caller")

    with pytest.raises(KeyError, match="of the caller"):
        fail()
    assert os.listdir(tmp_path) == []


def test_what_a_killed_writer_left_is_replaced(tmp_path: Path) -> None:
    killed = atomic_folder(tmp_path / "1")
    (killed.__enter__() / "leftover").touch()  # and the block never ends
    save(tmp_path / "1", Files())
    assert_whole(tmp_path / "1")
    assert not (tmp_path / "1" / "leftover").exists()


def test_remove_unfinished(tmp_path: Path) -> None:
    killed = atomic_folder(tmp_path / "1")
    fill(killed.__enter__(), Files())  # and the block never ends
    save(tmp_path / "2", Files())
    (tmp_path / ".other").mkdir()
    assert len(os.listdir(tmp_path)) == 3
    remove_unfinished(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".other", "2"]


@pytest.mark.parametrize("name", sorted(set(CONTENT) - {"empty"}))
def test_a_changed_file_is_named(tmp_path: Path, name: str) -> None:
    save(tmp_path / "1", Files())
    file = tmp_path / "1" / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(RecordError, match=f"{name}.*checksum has changed"):
        check_folder(tmp_path / "1")
    file.write_bytes(data[:-1])
    with pytest.raises(RecordError, match=f"{name}.*size or checksum"):
        check_folder(tmp_path / "1")
    file.unlink()
    with pytest.raises(RecordError, match=f"{name}.*is missing"):
        check_folder(tmp_path / "1")


@pytest.mark.parametrize(
    "done",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"files": 3}',
        b'{"files": {"empty": null}}',
        b'{"files": {"../1/empty": {"size": 0}}}',
        b'{"files": {"\\u0000": {}}}',
        b'{"files": {"\\ud800": {}}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_garbage_done_is_refused(tmp_path: Path, done: bytes) -> None:
    save(tmp_path / "1", Files())
    (tmp_path / "1" / DONE).write_bytes(done)
    with pytest.raises(RecordError):
        check_folder(tmp_path / "1")


def test_a_folder_without_done_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "1", Files())
    (tmp_path / "1" / DONE).unlink()
    with pytest.raises(RecordError, match=r"cannot read `.*DONE`: no such file"):
        check_folder(tmp_path / "1")
    with pytest.raises(RecordError):
        check_folder(tmp_path / "never")


def test_a_pipe_or_link_in_the_place_of_a_file_is_not_opened(tmp_path: Path) -> None:
    save(tmp_path / "1", Files())
    (tmp_path / "1" / "empty").unlink()
    (tmp_path / "outside").touch()
    (tmp_path / "1" / "empty").symlink_to("../outside")
    with pytest.raises(RecordError, match=r"empty.*is missing"):
        check_folder(tmp_path / "1")
    (tmp_path / "1" / "empty").unlink()
    os.mkfifo(tmp_path / "1" / "empty")
    with pytest.raises(RecordError, match=r"empty.*is missing"):
        check_folder(tmp_path / "1")


@pytest.mark.parametrize("kind", [FullDisk, PowerCut])
def test_a_file_is_old_or_new_after_a_fault_at_every_operation(tmp_path: Path, kind: type[FullDisk]) -> None:
    path = tmp_path / "summary.json"
    for fault in range(4):
        write_bytes(path, b"old")
        with pytest.raises((RecordError, PowerCutError)):
            write_bytes(path, b"new content", kind(fault))
        assert path.read_bytes() == (b"old" if fault < 3 else b"new content")
    write_bytes(path, b"newest", kind(4))
    assert path.read_bytes() == b"newest"
    assert os.listdir(tmp_path) == ["summary.json"]


@pytest.mark.parametrize("planted", ["link", "link to a folder", "pipe", "folder"])
def test_what_lies_in_the_place_of_a_temporary_name_is_replaced_and_not_followed(planted: str, tmp_path: Path) -> None:
    (mine := tmp_path / "mine").mkdir()
    (mine / "file").write_text("mine")
    for name in (".a.json.hive-tmp", ".b.mp4.hive-tmp", ".c.hive-tmp"):
        path = tmp_path / name
        if planted == "folder":
            path.mkdir()
        elif planted == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(mine if planted == "link to a folder" else mine / "file")
    write_json(tmp_path / "a.json", {"a": 1})
    with atomic_file(tmp_path / "b.mp4") as temporary:
        temporary.write_text("pictures")
    with atomic_folder(tmp_path / "c") as folder:
        write_mark(folder, "KEEP")
    (tmp_path / "c/KEEP").unlink()
    (tmp_path / "c/KEEP").symlink_to(mine / "file")
    write_mark(tmp_path / "c", "KEEP")
    assert (tmp_path / "b.mp4").read_text() == "pictures"
    assert [(mine / name).read_text() for name in os.listdir(mine)] == ["mine"]
    assert sorted(os.listdir(tmp_path)) == ["a.json", "b.mp4", "c", "mine"]
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_write_json_knows_no_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": [1, float("nan")], "b": {"c": float("-inf")}, "d": "ü"})
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text) == {"a": [1, None], "b": {"c": None}, "d": "ü"}
    assert text.endswith("}\n")
