"""A checkpoint returns the rows of a replay memory, writes each row once, and refuses rows that are not intact."""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hive.errors import MemoryShort, RecordError
from hive.experience import PriorityTree, ReplayBuffer
from hive.free_memory import FreeMemory
from hive.records import Checkpoint, Files, list_checkpoints, newest_checkpoint, retain, writing_checkpoint
from hive.records.checkpoints import replay_chunks as module
from hive.records.checkpoints.replay_chunks import RowsToSave, read_whole_replay

Arrays = dict[str, np.ndarray]

SHAPES: dict[str, tuple[tuple[int, ...], str]] = {
    "observations": ((3,), "uint8"),
    "actions": ((), "int64"),
    "rewards": ((), "float32"),
    "terminated": ((), "uint8"),
    "truncated": ((), "uint8"),
    "valid": ((), "uint8"),
}
ROW_BYTES = 3 + 8 + 4 + 1 + 1 + 1  # of one environment


class Memory:
    """A replay memory in rings of R rows, and `history`: all rows that were ever written, [S][name] -> [n, B, ...]."""

    def __init__(self, sources: int = 2, rows: int = 40, envs: int = 2, seed: int = 0) -> None:
        self.rows, self.envs = rows, envs
        self.random = np.random.default_rng(seed)
        self.ring = rings(sources, rows, envs)
        self.written = [0] * sources
        self.history: list[dict[str, list[np.ndarray]]] = [{n: [] for n in (*SHAPES, "finals")} for _ in self.written]
        for source in range(sources):
            self._put(source, 0, ["observations"])

    def append(self, source: int, count: int) -> None:
        """Write rows that end anywhere, and the observation after them; then set all priorities to other values."""
        for row in range(self.written[source], self.written[source] + count):
            self._put(source, row, [name for name in SHAPES if name != "observations"])
            truncated = self.ring["truncated"][source, row % self.rows] > 0
            finals = self.values("observations")
            self.ring["finals"][source, row % self.rows][truncated] = finals[truncated]
            self.history[source]["finals"].append(np.where(truncated[:, None], finals, 0))
            self._put(source, row + 1, ["observations"])
        self.written[source] += count
        self.ring["leaves"][:] = self.random.integers(0, 2**32, self.ring["leaves"].shape)

    def values(self, name: str) -> np.ndarray:
        """Return one row of a field."""
        shape, dtype = SHAPES[name]
        high = 2 if dtype == "uint8" and not shape else 250
        return self.random.integers(0, high, (self.envs, *shape)).astype(dtype)

    def _put(self, source: int, row: int, names: list[str]) -> None:
        for name in names:
            self.ring[name][source, row % self.rows] = value = self.values(name)
            self.history[source][name].append(value)

    def to_write(self, kept: int) -> RowsToSave:
        return RowsToSave(self.ring, list(self.written), kept)


class Counting(Files):
    """Counts what is written, and forces nothing onto the disk, for which the tests have no time."""

    def __init__(self, links: bool = True) -> None:
        self.links = links
        self.bytes = 0
        self.synced: list[Path] = []

    def write(self, path: Path, data: bytes | memoryview) -> None:
        self.bytes += len(data) if path.parent.name == "replay" else 0
        super().write(path, data)

    def sync(self, path: Path) -> None:
        self.synced.append(path)

    def link(self, source: Path, target: Path) -> None:
        if not self.links:
            raise OSError(errno.EXDEV, "cross-device link")
        super().link(source, target)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 8 * ROW_BYTES)  # 4 rows of two environments


def rings(sources: int = 2, rows: int = 40, envs: int = 2) -> Arrays:
    arrays = {name: np.zeros((sources, rows, envs, *shape), dtype) for name, (shape, dtype) in SHAPES.items()}
    return arrays | {
        "finals": np.zeros_like(arrays["observations"]),
        "leaves": np.zeros((sources, rows, envs), np.uint32),
    }


def save(
    root: Path,
    update: int,
    rows: RowsToSave,
    files: Files | None = None,
    step: Callable[[tuple[int, ...]], object] = lambda floor: None,
) -> Checkpoint:
    for floor in writing_checkpoint(
        root,
        update,
        tensors={},
        parts={"weights": b"w"},
        state={"scheduled": True},
        replay=rows,
        files=files or Counting(),
    ):
        step(floor)
    return list_checkpoints(root)[-1]


def filled(*counts: int, **kinds: int) -> Memory:
    memory = Memory(len(counts), **kinds)
    for source, count in enumerate(counts):
        memory.append(source, count)
    return memory


def row_files(checkpoint: Checkpoint) -> dict[str, Path]:
    return {path.name: path for path in sorted((checkpoint.path / "replay").glob("*.rows"))}


def assert_holds(read: Arrays, spans: tuple[range, ...], memory: Memory, leaves: np.ndarray) -> None:
    rows = read["rewards"].shape[1]
    expected = np.zeros_like(read["leaves"])
    for source, span in enumerate(spans):
        history = memory.history[source]
        assert span.stop == memory.written[source]
        for row in span:
            for name in SHAPES:
                assert np.array_equal(read[name][source, row % rows], history[name][row])
            ended = history["truncated"][row] > 0
            assert np.array_equal(read["finals"][source, row % rows][ended], history["finals"][row][ended])
            expected[source, row % rows] = leaves[source, row % memory.rows]
        assert np.array_equal(read["observations"][source, span.stop % rows], history["observations"][span.stop])
    assert np.array_equal(read["leaves"], expected)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_rows_come_back_however_rings_wrapped_and_whatever_was_linked(data: st.DataObject) -> None:
    memory = Memory(
        data.draw(st.integers(1, 3)),
        data.draw(st.integers(3, 30)),
        data.draw(st.integers(1, 3)),
        data.draw(st.integers(0, 9)),
    )
    kept = data.draw(st.integers(1, memory.rows - 1))
    with tempfile.TemporaryDirectory() as folder:
        for update in range(1, data.draw(st.integers(1, 4)) + 1):
            for source in range(len(memory.written)):
                memory.append(source, data.draw(st.integers(0, 25)))
            oldest = [max(0, written - kept) for written in memory.written]
            given_arrays = {name: array.copy() for name, array in memory.ring.items()}
            floors: list[tuple[int, ...]] = []

            def overwrite(floor: tuple[int, ...], arrays: Arrays = given_arrays, floors: Any = floors) -> None:
                """Overwrite what need not be read any more."""
                floors.append(floor)
                arrays["leaves"][:] = 77
                for source, first in enumerate(floor):
                    needed = [row % memory.rows for row in range(first, memory.written[source])]
                    for name in (*SHAPES, "finals"):
                        arrays[name][source, np.setdiff1d(np.arange(memory.rows), needed)] = 1

            rows = RowsToSave(given_arrays, list(memory.written), kept)
            checkpoint = save(Path(folder), update, rows, step=overwrite)
            assert floors[0] == tuple(oldest)
            assert floors[-1] == tuple(memory.written)
            assert np.all(np.diff(floors, axis=0) >= 0)
            read = rings(len(memory.written), data.draw(st.integers(2, 40)), memory.envs)
            read["leaves"][:] = 5
            spans = checkpoint.read_replay(read)
            fit = read["rewards"].shape[1] - 1
            assert [span.start for span in spans] == [
                max(o, w - fit) for o, w in zip(oldest, memory.written, strict=True)
            ]
            assert_holds(read, spans, memory, memory.ring["leaves"])


def test_only_new_rows_are_written(tmp_path: Path) -> None:
    memory = filled(22, 16)
    first = save(tmp_path, 1, memory.to_write(30))
    memory.append(0, 1)
    files = Counting()
    second = save(tmp_path, 2, memory.to_write(30), files)
    old, new = row_files(first), row_files(second)
    assert list(old) == [f"000-{n:012d}-{min(n + 4, 22):012d}.rows" for n in range(0, 22, 4)] + [
        f"001-{n:012d}-{n + 4:012d}.rows" for n in range(0, 16, 4)
    ]
    assert new.keys() - old.keys() == {"000-000000000020-000000000023.rows"}  # 20 to 21 was not a whole chunk
    assert all(new[name].samefile(old[name]) and new[name].stat().st_nlink == 2 for name in new.keys() & old.keys())
    rows, leaves, heads = new["000-000000000020-000000000023.rows"].stat().st_size, 4 * 2 * (23 + 16), 2 * 2 * 3
    assert files.bytes == rows + leaves + heads + (second.path / "replay" / "rows.json").stat().st_size
    assert rows <= 3 * 2 * (ROW_BYTES + 3)  # and at most as many finals


def test_the_rows_that_are_overwritten_first_are_written_first(tmp_path: Path) -> None:
    floors: list[tuple[int, ...]] = []
    save(tmp_path, 1, filled(11, 19).to_write(30), step=floors.append)
    assert floors == [(0, 0), (0, 4), (0, 8), (4, 8), (4, 12), (8, 12), (8, 16), (11, 16), (11, 19)]


def test_files_with_more_rows_than_are_needed_are_linked_and_others_are_not(tmp_path: Path) -> None:
    memory = filled(22)
    for update, kept, name in ((1, 9, "13-16"), (2, 11, "11-12"), (3, 10, "12-16"), (4, 8, "12-16"), (5, 6, "16-20")):
        checkpoint = save(tmp_path, update, memory.to_write(kept))
        first, end = name.split("-")
        assert next(iter(row_files(checkpoint))) == f"000-{int(first):012d}-{int(end):012d}.rows"
        assert checkpoint.read_replay(rings(1)) == (range(22 - kept, 22),)


def test_linked_files_are_not_read(tmp_path: Path) -> None:
    """So the checksum of the time at which they were written is kept, and damage is found also in later checkpoints."""
    memory = filled(8)
    file = row_files(save(tmp_path, 1, memory.to_write(30)))["000-000000000000-000000000004.rows"]
    content = file.read_bytes()
    file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    memory.append(0, 8)
    files = Counting()
    second = save(tmp_path, 2, memory.to_write(30), files)
    assert [path.name for path in files.synced if path.suffix == ".rows"] == [*row_files(second)][2:]
    with pytest.raises(RecordError, match=rf"`{second.path / 'replay' / file.name}` is damaged"):
        second.read_replay(rings(1))


def test_rows_that_were_evicted_are_left_out(tmp_path: Path) -> None:
    memory = filled(22)
    save(tmp_path, 1, memory.to_write(20))
    memory.append(0, 12)
    second = save(tmp_path, 2, memory.to_write(20))
    assert [name[4:16] for name in row_files(second)] == [f"{n:012d}" for n in (12, 16, 20, 24, 28, 32)]
    assert second.read_replay(rings(1)) == (range(14, 34),)


def test_removed_checkpoints_leave_those_that_link_their_files(tmp_path: Path) -> None:
    memory = filled(22, 30)
    save(tmp_path, 1, memory.to_write(30))
    memory.append(0, 3)
    second = save(tmp_path, 2, memory.to_write(30))
    assert [path.name for path in retain(tmp_path, 1)] == ["000001"]
    assert all(path.stat().st_nlink == 1 for path in row_files(second).values())
    copy = shutil.copytree(second.path, tmp_path / "elsewhere")
    shutil.rmtree(second.path)
    read = rings()
    assert_holds(read, Checkpoint(copy, 2, {}).read_replay(read), memory, memory.ring["leaves"])


def test_another_history_with_the_same_row_numbers_is_not_linked(tmp_path: Path) -> None:
    first = save(tmp_path, 1, filled(12).to_write(30))
    memory = Memory(1, seed=1)
    memory.append(0, 12)
    second = save(tmp_path, 2, memory.to_write(30))
    assert all(path.stat().st_nlink == 1 for path in (*row_files(first).values(), *row_files(second).values()))
    read = rings(1)
    assert_holds(read, second.read_replay(read), memory, memory.ring["leaves"])


def test_files_of_later_checkpoints_are_not_linked(tmp_path: Path) -> None:
    """They are of another history."""
    rows = filled(12).to_write(30)
    later = save(tmp_path, 2, rows)
    save(tmp_path, 1, rows)
    assert all(path.stat().st_nlink == 1 for path in row_files(later).values())


def test_a_file_in_which_another_action_was_taken_is_not_linked(tmp_path: Path) -> None:
    memory = filled(8)
    first = save(tmp_path, 1, memory.to_write(30))
    memory.ring["actions"][0, 5, 1] += 1
    save(tmp_path, 2, memory.to_write(30))
    assert [path.stat().st_nlink for path in row_files(first).values()] == [2, 1]


@pytest.mark.parametrize(("envs", "count"), [(1, 2), (3, 6)])
def test_rows_of_another_layout_are_not_linked(tmp_path: Path, envs: int, count: int) -> None:
    save(tmp_path, 1, filled(12).to_write(30))
    memory = filled(12, envs=envs)
    read = rings(1, envs=envs)
    second = save(tmp_path, 2, memory.to_write(30))
    assert len(row_files(second)) == count  # chunks of this layout have the right size
    assert_holds(read, second.read_replay(read), memory, memory.ring["leaves"])


def test_chunks_keep_their_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of hive with other chunks continues those of the run."""
    memory = filled(12)
    first = save(tmp_path, 1, memory.to_write(30))
    monkeypatch.setattr(module, "CHUNK_BYTES", 1)
    memory.append(0, 4)
    assert len(row_files(save(tmp_path, 2, memory.to_write(30)))) == len(row_files(first)) + 1


def test_where_files_cannot_be_linked_they_are_written_again(tmp_path: Path) -> None:
    memory = filled(22)
    save(tmp_path, 1, memory.to_write(30))
    second = save(tmp_path, 2, memory.to_write(30), Counting(links=False))
    assert all(path.stat().st_nlink == 1 for path in row_files(second).values())
    read = rings(1)
    assert_holds(read, second.read_replay(read), memory, memory.ring["leaves"])


def test_a_writer_that_is_closed_leaves_nothing(tmp_path: Path) -> None:
    part = np.ones(9, np.uint8)
    rows = filled(22).to_write(30)
    writing = writing_checkpoint(tmp_path, 1, tensors={}, parts={"weights": part}, state={}, replay=rows)
    next(writing)
    (temporary,) = tmp_path.iterdir()
    assert (temporary / "weights.bin").read_bytes() == part.tobytes()  # so the block need not be held any longer
    writing.close()
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_refused_and_an_older_checkpoint_found(tmp_path: Path) -> None:
    memory = filled(8)
    save(tmp_path, 1, memory.to_write(30))
    memory.append(0, 8)
    second = save(tmp_path, 2, memory.to_write(30))
    for file in [*row_files(second).values()][-1:] + [second.path / "replay" / n for n in ("heads.bin", "leaves.bin")]:
        content = file.read_bytes()
        file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        with pytest.raises(RecordError, match=rf"`{file}` is damaged: its size or checksum has changed"):
            second.read_replay(rings(1))
        causes: list[str] = []
        older = newest_checkpoint(tmp_path, replay=True, refused=causes.append)
        assert older is not None
        assert older.update == 1
        assert causes == [f"`{file}` is damaged: its size or checksum has changed"]
        # Rows are not compared where only the rest of a checkpoint is needed.
        assert len(list_checkpoints(tmp_path, verify=True)) == (2 if file.suffix == ".rows" else 1)
        file.unlink()
        with pytest.raises(RecordError, match=rf"cannot read `{file}`: no such file"):
            second.read_replay(rings(1))
        assert [checkpoint.update for checkpoint in list_checkpoints(tmp_path)] == [1]
        file.write_bytes(content)
    assert newest_checkpoint(tmp_path, replay=True) == second


def test_a_checkpoint_without_replay_is_refused(tmp_path: Path) -> None:
    for _ in writing_checkpoint(tmp_path, 1, tensors={}, parts={}, state={}):
        pass
    (checkpoint,) = list_checkpoints(tmp_path)
    assert not checkpoint.has_replay
    with pytest.raises(RecordError, match=r"000001` holds no `replay/rows\.json`") as caught:
        checkpoint.read_replay(rings())
    assert caught.value.hint == "it was written without its replay memory"


def without(name: str) -> Arrays:
    arrays = rings()
    del arrays[name]
    return arrays


@pytest.mark.parametrize(
    ("arrays", "cause"),
    [
        (lambda: rings(3), "the rows of 2 collectors; this run has 3"),
        (lambda: rings(envs=4), r"`actions` as int64 \[2\]; this run has int64 \[4\]"),
        (lambda: without("actions"), r"`actions` as int64 \[2\]; this run has nothing"),
        (lambda: rings() | {"more": np.zeros((2, 40, 2, 7))}, r"`more` as nothing; this run has float64 \[2, 7\]"),
        (
            lambda: rings() | {n: np.zeros((2, 40, 2, 5), np.float32) for n in ("observations", "finals")},
            r"`observations` as uint8 \[2, 3\]; this run has float32 \[2, 5\]",
        ),
    ],
)
def test_rows_of_another_layout_are_refused(tmp_path: Path, arrays: Callable[[], Arrays], cause: str) -> None:
    checkpoint = save(tmp_path, 1, filled(9, 9).to_write(30))
    with pytest.raises(RecordError, match=cause) as caught:
        checkpoint.read_replay(arrays())
    assert "collectors, environments and observations" in caught.value.hint


def forge(checkpoint: Checkpoint, change: Callable[[Any], object]) -> None:
    """Change rows.json, and `DONE` accordingly."""
    file = checkpoint.path / "replay" / "rows.json"
    manifest = json.loads(file.read_bytes())
    change(manifest)
    file.write_text(json.dumps(manifest))
    done = json.loads((checkpoint.path / "DONE").read_bytes())
    data = file.read_bytes()
    done["files"]["replay/rows.json"] = {"size": len(data), "sha256": sha256(data).hexdigest()}
    (checkpoint.path / "DONE").write_text(json.dumps(done))


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda m: m["files"].pop(1), "row 8 of source 0 is out of order"),
        (lambda m: m["files"].pop(0), "row 4 of source 0 is out of order"),
        (lambda m: m["files"].pop(), "no file up to row 9 of source 0"),
        (lambda m: m["files"].append(m["files"][0]), "row 0 of source 0 is out of order"),
        (lambda m: m["files"][2].update(source=1), "row 8 of source 1 is out of order"),
        (lambda m: m["files"][0].update(end=0), "row 0 of source 0 is out of order"),
        (lambda m: m["files"][0].update(first=-1), "`files.0.first` is not of type"),
        (lambda m: m["files"][0].update(name="../weights.bin"), "is not the file of its rows"),
        (lambda m: m["files"][0].update(name=m["files"][-1]["name"]), "is not the file of its rows"),
        (lambda m: m.update(written=[2**61]), "no file up to row 2305843009213693952"),
        (lambda m: m.update(kept=2), "heads.bin or leaves.bin has another size than its rows"),
        (lambda m: m.pop("fields"), "`fields` is missing"),
    ],
)
def test_a_list_of_files_that_cannot_be_right_is_refused(
    tmp_path: Path, change: Callable[[Any], object], cause: str
) -> None:
    checkpoint = save(tmp_path, 1, filled(9).to_write(30))
    forge(checkpoint, change)
    with pytest.raises(RecordError, match=cause):
        checkpoint.read_replay(rings(1))


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda m: m["fields"].pop("observations"), "no field `observations`"),
        (lambda m: m["fields"].pop("truncated"), "no field `truncated`"),
        (lambda m: m["fields"]["rewards"].update(dtype="object"), "`rewards` with another size"),
        (lambda m: m["fields"]["rewards"].update(shape=[0]), "`rewards` with another size"),
        (lambda m: m["fields"]["observations"].update(shape=[2, 10**12]), "rows` with another size"),
        (lambda m: m["fields"].update({name: {"dtype": "uint8", "shape": [2**61] * 9} for name in "ab"}), "rows` with"),
        (lambda m: m.update(written=m["written"] + [0] * 10**6, kept=10**6), None),
    ],
)
def test_rows_that_claim_more_than_their_files_or_the_memory_have_are_refused(
    tmp_path: Path, change: Callable[[Any], object], cause: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "free_memory", lambda: FreeMemory(1 << 28))
    checkpoint = save(tmp_path, 1, filled(9).to_write(30))
    read_whole_replay(checkpoint.path)
    forge(checkpoint, change)
    with pytest.raises(RecordError if cause else MemoryShort, match=cause or "MiB are free"):
        read_whole_replay(checkpoint.path)


def test_a_file_with_too_few_finals_is_refused(tmp_path: Path) -> None:
    memory = filled(4)
    memory.ring["truncated"][:] = 1
    checkpoint = save(tmp_path, 1, memory.to_write(4))
    (file,) = row_files(checkpoint).values()
    file.write_bytes(file.read_bytes()[:-3])
    done = json.loads((checkpoint.path / "DONE").read_bytes())
    data = file.read_bytes()
    done["files"][f"replay/{file.name}"] = {"size": len(data), "sha256": sha256(data).hexdigest()}
    (checkpoint.path / "DONE").write_text(json.dumps(done))
    with pytest.raises(RecordError, match="has another size than its rows"):
        checkpoint.read_replay(rings(1))


def test_the_head_needs_a_row_of_the_ring(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="40 rows cannot be kept in a ring of 40"):
        save(tmp_path, 1, filled(4).to_write(40))
    assert list(tmp_path.iterdir()) == []


def test_a_restored_memory_draws_the_same_batches(tmp_path: Path) -> None:
    """The memory of a script, with priorities, seams and ends, saved three times and continued each time."""

    def buffer() -> ReplayBuffer:
        return ReplayBuffer(((3,), "uint8"), ((), "int64"), capacity=40, envs=2, n_step=3, stack=2, alpha=0.6)

    random, replay = np.random.default_rng(0), buffer()
    kept = replay.kept + (replay.n_step - 1) + (replay.memory.stack - 1)
    for update in (1, 2, 3):
        replay.begin(random.integers(0, 250, (2, 3)))
        for _ in range(17):
            ended, after = random.integers(0, 2, (2, 2)), random.integers(0, 250, (2, 2, 3))
            replay.add(random.integers(0, 4, 2), random.random(2), ended[0], ended[1], after[0], after[1])
        replay.update(replay.sample(8), random.random(8))
        checkpoint = save(tmp_path, update, RowsToSave(replay.memory.arrays, [replay.written], kept))
        restored = buffer()
        (span,) = checkpoint.read_replay(restored.memory.arrays)
        assert (span.start, span.stop) == (max(0, replay.written - kept), replay.written)
        restored.tree = PriorityTree(restored.memory.arrays["leaves"].reshape(-1))
        for name in ("written", "drawn", "largest"):
            setattr(restored, name, getattr(replay, name))
        ours, theirs = restored.sample(64), replay.sample(64)
        assert all(np.array_equal(value, getattr(theirs, name)) for name, value in vars(ours).items())
        replay = restored
