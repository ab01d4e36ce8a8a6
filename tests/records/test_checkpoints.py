"""Whatever happens to the machine or the disk, the newest complete checkpoint loads, bit for bit."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hive.errors import RecordError, UsageError
from hive.records import (
    FILES,
    Checkpoint,
    Files,
    RunDirectory,
    atomic_folder,
    best_facts,
    best_policy,
    checkpoint_at,
    keep_until_pruned,
    list_checkpoints,
    newest_checkpoint,
    remove_folder,
    remove_unfinished,
    replace_best,
    retain,
    write_checkpoint,
)
from hive.records.checkpoints import folders, replay_chunks
from hive.records.checkpoints.folders import surplus
from hive.records.checkpoints.replay_chunks import RowsToSave

FILE_NAMES = ["DONE", "ledger.bin", "state.json", "weights.bin", "weights.safetensors"]


class FullDisk(Files):
    """From operation `fault` on (counted from 0) the disk refuses all; what it refuses first is half done."""

    def __init__(self, fault: int) -> None:
        self.fault = fault
        self.operations = 0

    def operate(self, half: Callable[[], object] = lambda: None) -> None:
        self.operations += 1
        if self.operations == self.fault + 1:
            half()
            self.lose()
        if self.operations > self.fault:
            self.refuse()

    def lose(self) -> None:
        """Keep the content that is not on the disk yet."""

    def refuse(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def make_folder(self, path: Path) -> None:
        self.operate()
        super().make_folder(path)

    def write(self, path: Path, data: bytes | memoryview) -> None:
        self.operate(lambda: Files.write(self, path, data[: len(data) // 2]))
        super().write(path, data)

    def sync(self, path: Path) -> None:
        self.operate()
        super().sync(path)

    def link(self, source: Path, target: Path) -> None:
        self.operate()
        super().link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        self.operate()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        def half() -> None:
            for file in list(path.glob("*"))[:2]:
                file.unlink()

        self.operate(half)
        super().remove(path)


class PowerCutError(BaseException):
    """The machine is gone: no handler for ordinary errors may see it."""


class PowerCut(FullDisk):
    """At operation `fault` the power goes, and with it contents and entries that were not synced.

    Removals are on the disk at once. So are renames, unless `renames_are_lost`: then those whose folder was
    not synced since never happened.
    """

    renames_are_lost = False

    def __init__(self, fault: int) -> None:
        super().__init__(fault)
        self.contents: set[Path] = set()
        self.entries: set[Path] = set()
        self.renames: list[tuple[Path, Path]] = []

    def lose(self) -> None:
        for path in self.entries:
            Files.remove(self, path)
        for path in self.contents:
            if path.exists():
                Files.write(self, path, b"")
        if self.renames_are_lost:
            for source, target in reversed(self.renames):
                if target.exists():
                    Files.rename(self, target, source)

    def refuse(self) -> None:
        raise PowerCutError

    def make_folder(self, path: Path) -> None:
        super().make_folder(path)
        self.entries.add(path)

    def write(self, path: Path, data: bytes | memoryview) -> None:
        super().write(path, data)
        self.contents.add(path)
        self.entries.add(path)

    def sync(self, path: Path) -> None:
        super().sync(path)
        self.contents.discard(path)
        self.entries = {entry for entry in self.entries if entry.parent != path}
        self.renames = [pair for pair in self.renames if pair[1].parent != path]

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self.entries.add(target)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self.renames.append((source, target))
        for paths in (self.contents, self.entries):
            moved = {path for path in paths if source in path.parents}
            paths.difference_update(moved, {source})
            paths.update(target / path.relative_to(source) for path in moved)


class PowerCutThatLosesRenames(PowerCut):
    renames_are_lost = True


POWER_CUTS = pytest.mark.parametrize("power_cut", [PowerCut, PowerCutThatLosesRenames])
DISKS = pytest.mark.parametrize("disk", [FullDisk, PowerCut, PowerCutThatLosesRenames])


def content(update: int) -> tuple[dict[str, np.ndarray], dict[str, bytes]]:
    """Tensors and parts that are different for every update."""
    tensors: dict[str, np.ndarray] = {
        "policy.weight": np.full((2, 3), update, np.float32),
        "policy.bias": np.zeros(3),
    }
    return tensors, {"weights": bytes([update % 251]) * 100, "ledger": f"ledger of {update}".encode()}


def save(root: Path, update: int, files: Files = FILES, **state: Any) -> Path:
    tensors, parts = content(update)
    state = {"scheduled": True, "env_steps": 64 * update, "mean_return": None} | state
    return write_checkpoint(root, update, tensors=tensors, parts=parts, state=state, files=files)


def assert_loads(checkpoint: Checkpoint) -> None:
    tensors, parts = content(checkpoint.update)
    assert {name: checkpoint.part(name) for name in parts} == parts
    loaded = checkpoint.tensors()
    assert sorted(loaded) == sorted(tensors)
    assert all(np.array_equal(loaded[name], tensors[name]) for name in tensors)
    assert checkpoint.state["env_steps"] == 64 * checkpoint.update


def newest_update(root: Path) -> int:
    """Return the update of the newest checkpoint. Check that it loads, and that no function returns a damaged one."""
    causes: list[str] = []
    newest = newest_checkpoint(root, refused=causes.append)
    assert causes == []
    assert list_checkpoints(root) == list_checkpoints(root, verify=True)
    for checkpoint in list_checkpoints(root):
        assert_loads(checkpoint)
    assert newest is not None
    assert newest == list_checkpoints(root)[-1]
    return newest.update


def updates(root: Path) -> list[int]:
    return [checkpoint.update for checkpoint in list_checkpoints(root)]


def hidden(root: Path) -> list[str]:
    return [name for name in os.listdir(root) if name.startswith(".")]


def torn(root: Path) -> list[str]:
    """Folders under the name of a checkpoint that do not hold one."""
    intact = {checkpoint.path.name for checkpoint in list_checkpoints(root, verify=True)}
    return sorted(name for name in os.listdir(root) if not name.startswith(".") and name not in intact)


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1 << position % 8
    file.write_bytes(data)


def test_it_comes_back_bit_for_bit(tmp_path: Path) -> None:
    assert save(tmp_path, 2000, mean_return=1.5, returns=[0.1, 1e300]) == tmp_path / "002000"
    assert sorted(os.listdir(tmp_path / "002000")) == FILE_NAMES
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.path, checkpoint.update) == (tmp_path / "002000", 2000)
    assert (checkpoint.scheduled, checkpoint.mean_return) == (True, 1.5)
    assert checkpoint.state == {
        "update": 2000,
        "checkpoint_format": 2,
        "scheduled": True,
        "env_steps": 128_000,
        "mean_return": 1.5,
        "returns": [0.1, 1e300],
    }
    assert_loads(checkpoint)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
@pytest.mark.parametrize("data", [b"", bytes(range(256)) * 4])
def test_a_part_is_any_buffer(tmp_path: Path, kind: Callable[[bytes], Any], data: bytes) -> None:
    write_checkpoint(tmp_path, 1, tensors={}, parts={"block": kind(data)}, state={})
    (checkpoint,) = list_checkpoints(tmp_path, verify=True)
    assert checkpoint.part("block") == data


def test_a_part_of_floats_keeps_its_bytes(tmp_path: Path) -> None:
    moments = np.array([[1e-30, np.nan], [-0.0, np.inf]], np.float32)
    write_checkpoint(tmp_path, 1, tensors={}, parts={"moments": moments}, state={})
    assert list_checkpoints(tmp_path)[0].part("moments") == moments.tobytes()


def test_a_part_that_was_not_written(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(RecordError, match=r"cannot read `.*000001/replay\.bin`: no such file"):
        list_checkpoints(tmp_path)[0].part("replay")


def test_the_order_is_that_of_numbers(tmp_path: Path) -> None:
    numbers = [0, 7, 999_999, 1_000_000, 2_000_000, 10_000_000]
    for update in [*numbers[::2], *numbers[1::2]]:
        save(tmp_path, update)
    assert updates(tmp_path) == numbers
    assert newest_update(tmp_path) == 10_000_000
    assert [path.name for path in retain(tmp_path, 1)] == ["000000", "000007", "999999", "1000000", "2000000"]


def test_an_intact_one_is_not_written_again(tmp_path: Path) -> None:
    save(tmp_path, 3, mean_return=1.0)
    with pytest.raises(RecordError, match="000003` already exists"):
        save(tmp_path, 3, mean_return=2.0)
    assert list_checkpoints(tmp_path, verify=True)[0].mean_return == 1.0


def test_no_checkpoint_and_no_folder(tmp_path: Path) -> None:
    assert list_checkpoints(tmp_path) == []
    assert newest_checkpoint(tmp_path) is None
    assert retain(tmp_path, 3) == []
    none = tmp_path / "none"  # deleted to free space
    assert [list_checkpoints(none), newest_checkpoint(none), retain(none, 3)] == [[], None, []]
    none.write_text("")
    for look in (list_checkpoints, newest_checkpoint, lambda root: retain(root, 3)):
        with pytest.raises(RecordError, match=r"cannot read `.*none`: not a directory"):
            look(none)


def test_a_deleted_folder_is_made_again_within_a_run_that_exists(tmp_path: Path) -> None:
    assert save(tmp_path / "checkpoints", 3).is_dir()
    with pytest.raises(RecordError, match="no such file"):
        save(tmp_path / "removed/checkpoints", 3)


def test_what_is_foreign_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path, 5)
    for name in ("12", "0000012", "+00012", "00012a", "٠٠٠٠١٢", ".000012.hive-tmp"):
        shutil.copytree(tmp_path / "000005", tmp_path / name)
    (tmp_path / "000013").write_text("a file")
    (tmp_path / "000014").symlink_to("000005")
    (tmp_path / "000015").symlink_to("nowhere")
    (tmp_path / "notes.txt").touch()
    before = sorted(os.listdir(tmp_path))
    assert newest_update(tmp_path) == 5
    assert updates(tmp_path) == [5]
    assert retain(tmp_path, 1) == []
    assert sorted(os.listdir(tmp_path)) == before


def test_what_is_only_named_like_a_checkpoint_is_refused_with_its_cause(tmp_path: Path) -> None:
    save(tmp_path, 5)
    shutil.copytree(tmp_path / "000005", tmp_path / "000008")
    with atomic_folder(tmp_path / "000007") as folder:
        (folder / "other").touch()
    (tmp_path / "000006").mkdir()
    causes: list[str] = []
    assert newest_checkpoint(tmp_path, refused=causes.append) == list_checkpoints(tmp_path)[0]
    assert updates(tmp_path) == [5]
    assert causes == [
        f"`{tmp_path}/000008` holds a checkpoint of update 5",
        f"cannot read `{tmp_path}/000007/state.json`: no such file or directory",
        f"cannot read `{tmp_path}/000006/DONE`: no such file or directory",
    ]


@pytest.mark.parametrize("written", [{}, {"checkpoint_format": 1}, {"checkpoint_format": 3}])
def test_another_format_is_refused(tmp_path: Path, written: dict[str, int]) -> None:
    with atomic_folder(tmp_path / "000005") as folder:
        (folder / "state.json").write_text(json.dumps({"update": 5, **written}))
    causes: list[str] = []
    assert newest_checkpoint(tmp_path, refused=causes.append) is None
    found = written.get("checkpoint_format")
    assert causes == [f"`{tmp_path}/000005` has checkpoint format {found}; this hive reads 2"]


@pytest.mark.parametrize("name", FILE_NAMES)
def test_bit_flips_fall_back_to_the_previous_one(tmp_path: Path, name: str) -> None:
    save(tmp_path, 1)
    file = save(tmp_path, 2) / name
    size = file.stat().st_size
    for position in range(0, size, -(-size // 64)):
        flip(file, position)
        causes: list[str] = []
        newest = newest_checkpoint(tmp_path, refused=causes.append)
        assert newest == list_checkpoints(tmp_path)[0]
        assert newest.update == 1
        assert len(causes) == 1
        assert "/000002" in causes[0]
        assert name in causes[0] or name == "DONE"  # with a changed DONE, the error names another file
        assert [checkpoint.update for checkpoint in list_checkpoints(tmp_path, verify=True)] == [1]
        flip(file, position)
    assert newest_update(tmp_path) == 2


@pytest.mark.parametrize("name", FILE_NAMES)
def test_a_file_cut_short_or_missing_is_seen_by_its_size(tmp_path: Path, name: str) -> None:
    save(tmp_path, 1)
    file = save(tmp_path, 2) / name
    data = file.read_bytes()
    for length in (len(data) - 1, len(data) // 2, 0, None):
        file.unlink() if length is None else file.write_bytes(data[:length])
        causes: list[str] = []
        newest = newest_checkpoint(tmp_path, refused=causes.append)
        assert newest is not None
        assert newest.update == 1
        assert len(causes) == 1
        assert "/000002" in causes[0]
        assert name in causes[0]
        assert updates(tmp_path) == [1]


def test_a_listing_compares_sizes_only(tmp_path: Path) -> None:
    flip(save(tmp_path, 1) / "weights.bin", 50)
    assert updates(tmp_path) == [1]
    assert list_checkpoints(tmp_path, verify=True) == []


def test_all_that_are_damaged_are_reported_newest_first(tmp_path: Path) -> None:
    for update in (1, 2, 3):
        (save(tmp_path, update) / "ledger.bin").unlink()
    causes: list[str] = []
    assert newest_checkpoint(tmp_path, refused=causes.append) is None
    assert causes == [f"`{tmp_path}/00000{update}`: 'ledger.bin' is missing" for update in (3, 2, 1)]


def test_the_newest_scheduled_one(tmp_path: Path) -> None:
    for update, scheduled in ((1, True), (2, True), (3, False), (4, "yes"), (5, 1)):
        save(tmp_path, update, scheduled=scheduled)
    for expected in (2, 1):
        newest = newest_checkpoint(tmp_path, scheduled_only=True)
        assert newest is not None
        assert newest.update == expected
        flip(newest.path / "weights.bin", 0)
    assert newest_checkpoint(tmp_path, scheduled_only=True) is None
    assert newest_checkpoint(tmp_path) == list_checkpoints(tmp_path)[-1]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (-1.5, -1.5),
        (200, 200),
        (None, None),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        ("1.0", None),
        (10**400, 10**400),
    ],
)
def test_the_mean_return_is_a_number_or_nothing(tmp_path: Path, written: Any, read: float | None) -> None:
    save(tmp_path, 1, mean_return=written)
    assert list_checkpoints(tmp_path)[0].mean_return == read


@pytest.mark.parametrize(
    ("keep_last", "keep_best", "left"),
    [
        (3, 0, [2, 4, 5, 6]),
        (1, 0, [2, 6]),
        (0, 0, [2, 6]),
        (2, 1, [1, 2, 5, 6]),
        (1, 2, [1, 2, 3, 6]),
        (1, 9, [1, 2, 3, 5, 6]),
        (6, 1, [1, 2, 3, 4, 5, 6]),
        (99, 99, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_what_is_kept(tmp_path: Path, keep_last: int, keep_best: int, left: list[int]) -> None:
    """The newest (6), the best (1, then the newer 3 of the same return, then 5), the newest scheduled (2)."""
    for update, mean_return in enumerate([9.0, None, 9.0, float("nan"), -2.0, None], start=1):
        save(tmp_path, update, mean_return=mean_return, scheduled=update <= 2)
    removed = retain(tmp_path, keep_last, keep_best)
    assert removed == [tmp_path / f"{update:06d}" for update in range(1, 7) if update not in left]
    assert updates(tmp_path) == left
    assert newest_update(tmp_path) == 6
    assert hidden(tmp_path) == []
    assert retain(tmp_path, keep_last, keep_best) == []


def test_what_a_user_has_saved_is_neither_counted_nor_removed_but_by_prune(tmp_path: Path) -> None:
    for update in range(1, 7):
        save(tmp_path, update, scheduled=False)
    for update in (1, 5, 6):
        keep_until_pruned(tmp_path / f"{update:06d}")
    retain(tmp_path, 1, 0)
    assert updates(tmp_path) == [1, 4, 5, 6]
    assert [checkpoint.update for checkpoint in list_checkpoints(tmp_path, verify=True)] == [1, 4, 5, 6]
    assert [checkpoint.update for checkpoint in surplus(tmp_path, 1, 0)] == [1, 4, 5]


def test_a_copy_of_any_name_is_read_and_one_of_another_number_is_not(tmp_path: Path) -> None:
    save(tmp_path, 7)
    shutil.copytree(tmp_path / "000007", tmp_path / "my favourite")
    shutil.copytree(tmp_path / "000007", tmp_path / "000009")
    assert checkpoint_at(str(tmp_path / "my favourite")).update == 7
    with pytest.raises(RecordError, match="holds a checkpoint of update 7"):
        checkpoint_at(str(tmp_path / "000009"))


def test_nothing_is_removed_in_favour_of_a_damaged_one(tmp_path: Path) -> None:
    for update in range(1, 6):
        save(tmp_path, update, mean_return=float(update), scheduled=update > 3)
    for update in (4, 5):
        flip(tmp_path / f"{update:06d}" / "weights.bin", 9)
    assert retain(tmp_path, 1) == [tmp_path / "000001", tmp_path / "000002"]
    assert sorted(os.listdir(tmp_path)) == ["000003", "000004", "000005"]
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.update == 3


def test_a_damaged_one_is_replaced_when_the_run_comes_by_again(tmp_path: Path) -> None:
    save(tmp_path, 1)
    flip(save(tmp_path, 2) / "weights.bin", 50)
    save(tmp_path, 2)
    assert newest_update(tmp_path) == 2


# remove, make the folder, write 4, sync 5, write and sync DONE, sync the folder, rename, sync the parent
OPERATIONS_OF_A_WRITE = 16


def test_a_full_disk_at_every_operation_of_a_write(tmp_path: Path) -> None:
    save(tmp_path, 1)
    appeared = []
    for fault in range(OPERATIONS_OF_A_WRITE):
        with pytest.raises(RecordError, match=r"(?m)^cannot write `.*`: no space left on device$"):
            save(tmp_path, 2, FullDisk(fault))
        if newest_update(tmp_path) == 2:
            appeared.append(fault)
            shutil.rmtree(tmp_path / "000002")
        remove_unfinished(tmp_path)
        assert os.listdir(tmp_path) == ["000001"]
    assert appeared == [OPERATIONS_OF_A_WRITE - 1]  # complete: only its parent could not be synced any more
    save(tmp_path, 2, FullDisk(OPERATIONS_OF_A_WRITE))
    assert newest_update(tmp_path) == 2


@POWER_CUTS
def test_a_power_cut_at_every_operation_of_a_write(tmp_path: Path, power_cut: type[PowerCut]) -> None:
    save(tmp_path, 1)
    appeared = []
    for fault in range(OPERATIONS_OF_A_WRITE):
        with pytest.raises(PowerCutError):
            save(tmp_path, 2, power_cut(fault))
        assert torn(tmp_path) == []
        if newest_update(tmp_path) == 2:
            appeared.append(fault)
            shutil.rmtree(tmp_path / "000002")
    assert appeared == ([] if power_cut.renames_are_lost else [OPERATIONS_OF_A_WRITE - 1])
    save(tmp_path, 2, power_cut(OPERATIONS_OF_A_WRITE))
    assert newest_update(tmp_path) == 2
    assert sorted(os.listdir(tmp_path)) == ["000001", "000002"]  # each write removed the leftovers of the one before


@DISKS
def test_a_fault_at_every_operation_of_a_replacement(tmp_path: Path, disk: type[FullDisk]) -> None:
    save(tmp_path, 1)
    (save(tmp_path, 2) / "weights.bin").unlink()
    shutil.copytree(tmp_path / "000002", tmp_path / "damaged")
    for fault in range(4 + OPERATIONS_OF_A_WRITE):
        with pytest.raises((RecordError, PowerCutError)):
            save(tmp_path, 2, disk(fault))
        newest = newest_checkpoint(tmp_path)
        assert newest is not None
        assert_loads(newest)
        shutil.rmtree(tmp_path / "000002", ignore_errors=True)
        shutil.copytree(tmp_path / "damaged", tmp_path / "000002")
    save(tmp_path, 2, disk(4 + OPERATIONS_OF_A_WRITE))
    assert newest_update(tmp_path) == 2


def replay_of(update: int) -> RowsToSave:
    """10 rows per update, of which chunks have 8."""
    arrays = {name: np.zeros((1, 30, 1), np.uint8) for name in ("observations", "rewards", "truncated")}
    arrays["rewards"][0, :, 0] = range(30)
    arrays["finals"], arrays["leaves"] = arrays["observations"], np.full((1, 30, 1), update, np.uint32)
    return RowsToSave(arrays, [10 * update], 29)


def save_with_replay(root: Path, update: int, files: Files = FILES) -> None:
    write_checkpoint(root, update, tensors={}, parts={}, state={}, replay=replay_of(update), files=files)


@DISKS
def test_a_fault_at_every_operation_of_a_write_with_replay(
    tmp_path: Path, disk: type[FullDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_chunks, "CHUNK_BYTES", 8 * 3)
    save_with_replay(tmp_path, 1)
    undisturbed = disk(10**6)
    save_with_replay(tmp_path, 2, undisturbed)
    assert os.stat(tmp_path / "000002/replay/000-000000000000-000000000008.rows").st_nlink == 2
    appeared = []
    for fault in range(undisturbed.operations):
        shutil.rmtree(tmp_path / "000002", ignore_errors=True)
        with pytest.raises((RecordError, PowerCutError)):
            save_with_replay(tmp_path, 2, disk(fault))
        assert torn(tmp_path) == []
        newest = newest_checkpoint(tmp_path, replay=True)
        assert newest is not None
        appeared += [fault] if newest.update == 2 else []
        read = {name: np.zeros_like(array) for name, array in replay_of(0).arrays.items()}
        assert newest.read_replay(read) == (range(10 * newest.update),)
        assert read["rewards"][0, : 10 * newest.update, 0].tolist() == list(range(10 * newest.update))
    last = undisturbed.operations - 1  # the sync of the parent
    assert appeared == ([] if disk is PowerCutThatLosesRenames else [last])
    remove_unfinished(tmp_path)
    assert hidden(tmp_path) == []


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints 1 to 5. `retain(five, 2)` removes 2 and 3, because 1 is the best."""
    root = tmp_path_factory.mktemp("five")
    for update in range(1, 6):
        save(root, update, mean_return=-float(update))
    return root


@DISKS
def test_a_fault_at_every_operation_of_a_removal(five: Path, tmp_path: Path, disk: type[FullDisk]) -> None:
    for fault in range(8):
        root = Path(shutil.copytree(five, tmp_path / f"{fault}"))
        with pytest.raises((RecordError, PowerCutError)) as caught:
            retain(root, 2, files=disk(fault))
        if disk is FullDisk:
            name = "000002" if fault < 4 else "000003"
            assert str(caught.value) == f"cannot remove `{root / name}`: no space left on device"
        assert newest_update(root) == 5
        assert {1, 4, 5} <= set(updates(root))
        assert torn(root) == []
        remove_unfinished(root)
        assert hidden(root) == []
        retain(root, 2)
        assert updates(root) == [1, 4, 5]
    root = Path(shutil.copytree(five, tmp_path / "8"))
    assert retain(root, 2, files=disk(8)) == [root / "000002", root / "000003"]
    assert sorted(os.listdir(root)) == ["000001", "000004", "000005"]


def test_the_power_cut_finds_a_missing_sync_of_a_removal(five: Path, tmp_path: Path) -> None:
    class Lazy(PowerCutThatLosesRenames):
        def sync(self, path: Path) -> None:
            """Never."""

    found = []
    for fault in range(6):
        root = Path(shutil.copytree(five, tmp_path / f"{fault}"))
        with pytest.raises(PowerCutError):
            retain(root, 2, files=Lazy(fault))
        found.append(torn(root))
    assert found == [[], [], ["000002"], [], [], ["000003"]]


def test_a_leftover_does_not_keep_a_folder_from_being_removed(tmp_path: Path) -> None:
    shutil.copytree(save(tmp_path, 1), tmp_path / ".000001.hive-tmp")
    remove_folder(tmp_path / "000001")
    assert os.listdir(tmp_path) == []
    with pytest.raises(RecordError, match=r"cannot remove `.*000001`: no such file"):
        remove_folder(tmp_path / "000001")


def test_they_are_listed_without_numpy(tmp_path: Path) -> None:
    """It takes a tenth of a second to load."""
    save(tmp_path, 1)
    program = """
import sys; from pathlib import Path; from hive.records import newest_checkpoint
print(newest_checkpoint(Path(sys.argv[1])).update, "numpy" in sys.modules, "safetensors" in sys.modules)
"""
    arguments = [sys.executable, "-P", "-c", program, str(tmp_path)]
    assert subprocess.run(arguments, capture_output=True, check=True).stdout == b"1 False False\n"


# --- the best policy


def keep(root: Path, update: int, mean_return: float, files: Files = FILES) -> None:
    state: dict[str, Any] = {"mean_return": mean_return, "by": "training", "env_steps": 8 * update, "updates": update}
    replace_best(root, update, tensors={"w": np.full(3, update, np.float32)}, state=state, files=files)


def best_update(root: Path) -> int | None:
    best = best_policy(root)
    if best is not None:
        np.testing.assert_array_equal(best.tensors()["w"], np.full(3, best.update, np.float32))
    return None if best is None else best.update


def test_there_is_one_best_policy(tmp_path: Path) -> None:
    root = tmp_path / "best"
    assert best_policy(root) is None
    for update, mean_return in ((5, 1.0), (7, 2.0), (7, 3.0), (6, 4.0)):  # a resumed run can reach an update again
        keep(root, update, mean_return)
        assert os.listdir(root) == [f"{update:06d}"]
        assert best_update(root) == update


def test_readers_take_the_better_of_two_and_the_earlier_of_equal_ones(tmp_path: Path) -> None:
    """A writer that was killed left both."""
    for update, mean_return in ((3, 2.0), (4, 5.0), (5, 5.0), (6, float("nan")), (7, float("inf"))):
        save(tmp_path, update, mean_return=mean_return)
    best = best_policy(tmp_path)
    assert best is not None
    assert best.update == 4
    flip(tmp_path / "000004" / "weights.bin", 9)
    best = best_policy(tmp_path)
    assert best is not None
    assert best.update == 5


def test_a_best_policy_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, 1, 1.0)

    def listed_before(root: Path) -> list[Path]:
        monkeypatch.undo()
        found = folders.checkpoint_folders(root)
        keep(root, 2, 2.0)
        return found

    monkeypatch.setattr(folders, "checkpoint_folders", listed_before)
    assert best_update(tmp_path) == 2


@DISKS
def test_a_fault_at_every_operation_leaves_the_old_best_policy_or_the_new_one(
    tmp_path: Path, disk: type[FullDisk]
) -> None:
    found = []
    keep(tmp_path / "before", 1, 1.0)
    for fault in range(100):
        root = Path(shutil.copytree(tmp_path / "before", tmp_path / str(fault)))
        try:
            keep(root, 2, 2.0, disk(fault))
        except (RecordError, PowerCutError):
            found.append(best_update(root))
            remove_unfinished(root)
            assert set(os.listdir(root)) <= {"000001", "000002"}
        else:
            break
    assert found == sorted(found, key=lambda update: update or 0)  # from some operation on it is the new one
    assert set(found) == {1, 2}


def test_a_run_has_a_latest_and_a_best_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory.create(tmp_path, "cart")
    save(run.checkpoints, 9)
    keep(run.best, 4, 7.5)
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    for place in (str(run.path), "cart-1"):
        assert checkpoint_at(place).update == 9
        assert checkpoint_at(place, "best").path == run.best / "000004"
    assert best_facts(run) == {
        "checkpoint": "best/000004",
        "mean_return": 7.5,
        "by": "training",
        "steps": 32,
        "updates": 4,
    }
    with pytest.raises(UsageError, match="000004` is a checkpoint"):
        checkpoint_at(str(run.best / "000004"), "best")
    with pytest.raises(UsageError, match='invalid `which` \'bset\': expected "latest" or "best"'):
        checkpoint_at("cart-1", "bset")
    shutil.rmtree(run.best)
    assert best_facts(run) is None
    with pytest.raises(RecordError, match=r"^cart-1 has no best policy") as error:
        checkpoint_at("cart-1", "best")
    assert error.value.hint.startswith("one is kept from the first evaluation on")
