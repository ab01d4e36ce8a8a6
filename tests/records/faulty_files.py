"""A disk that fails: the file operations of hive.records.atomic with a fault at the n-th of them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from hive.records.atomic import Files


class PowerCut(BaseException):
    """The machine is gone. No handler may catch it."""


class FullDisk(Files):
    """Operation `fault` (counted from 0) and every write after it fail; removing works. A torn write leaves half."""

    def __init__(self, fault: int) -> None:
        self.fault = fault
        self.operations = 0

    def _count(self) -> bool:
        self.operations += 1
        return self.operations - 1 >= self.fault

    def _refuse(self, path: Path) -> None:
        if self._count():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def make_folder(self, path: Path) -> None:
        self._refuse(path)
        super().make_folder(path)

    def write(self, path: Path, data: bytes) -> None:
        super().write(path, data[: len(data) // 2])
        self._refuse(path)
        super().write(path, data)

    def sync(self, path: Path) -> None:
        self._refuse(path)
        super().sync(path)

    def rename(self, source: Path, target: Path) -> None:
        self._refuse(source)
        super().rename(source, target)


class PowerFailure(Files):
    """At operation `fault` the power goes: files that were not synced are empty, entries of folders that were not
    synced are gone, and nothing works any more. A rename is on the disk at once, which is the worst it can be.
    """

    def __init__(self, fault: int) -> None:
        self.fault = fault
        self.operations = 0
        self.unsynced: dict[Path, Path] = {}  # path -> the folder that must be synced too, or itself

    def _operate(self) -> None:
        self.operations += 1
        if self.operations <= self.fault:
            return
        if self.operations == self.fault + 1:
            for path, awaited in self.unsynced.items():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.exists() and awaited == path:
                    path.write_bytes(b"")
                elif path.exists():
                    path.unlink()
        raise PowerCut

    def make_folder(self, path: Path) -> None:
        self._operate()
        super().make_folder(path)
        self.unsynced[path] = path.parent

    def write(self, path: Path, data: bytes) -> None:
        self._operate()
        super().write(path, data)
        self.unsynced[path] = path

    def sync(self, path: Path) -> None:
        self._operate()
        super().sync(path)
        for child in [child for child, awaited in self.unsynced.items() if awaited == path]:
            if path == child:
                self.unsynced[child] = path.parent
            else:
                del self.unsynced[child]

    def rename(self, source: Path, target: Path) -> None:
        self._operate()
        super().rename(source, target)
        self.unsynced.pop(source, None)
        for child in list(self.unsynced):
            if source in child.parents:
                moved = target / child.relative_to(source)
                awaited = self.unsynced.pop(child)
                self.unsynced[moved] = moved if awaited == child else target / awaited.relative_to(source)
        if source in self.unsynced.values():
            raise AssertionError("unreachable: children were moved above")

    def remove(self, path: Path) -> None:
        self._operate()
        super().remove(path)
