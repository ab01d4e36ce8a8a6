"""Segments: shared, sealed, gone with their last view. Layouts: every field aligned, none over another."""

from __future__ import annotations

import fcntl
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive import _native
from hive.errors import PlatformError, TopologyError, VersionGone
from hive.runtime.memory.segments import (
    ALIGNMENT,
    PAGE,
    REASONS,
    BoardPlan,
    BoardView,
    Bytes,
    Layout,
    Packed,
    Segment,
    SlabPlan,
    SlabView,
    aligned,
)
from hive.runtime.process.limits import PER_SEGMENT

# Other tests of the session may have left threads; these children only look at memory and `_exit`.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

FIELDS = Layout({"reward": ("float32", (3, 2)), "done": ("bool", (3,)), "step": ("int64", ())})
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
DTYPES = st.sampled_from(["uint8", "bool", "float16", "int16", "float32", "int32", "float64", "int64"])
LAYOUTS = st.dictionaries(st.text("abcdef", min_size=1), st.tuples(DTYPES, SHAPES), max_size=8).map(Layout)


def in_child(work: Callable[[], bool]) -> bool:
    """Whether `work` returned true in a forked process."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def mapped(name: str) -> bool:
    gc.collect()
    return f"memfd:hive-{name} " in Path("/proc/self/maps").read_text()


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def zeros(size: int, alignment: int = PAGE) -> Bytes:
    memory = np.zeros(size + alignment, np.uint8)
    return memory[-address(memory) % alignment :][:size]


# Layouts


@given(st.integers(0, 10**6), st.sampled_from([1, 64, 4096]))
def test_aligned_rounds_up_by_the_least(count: int, to: int) -> None:
    assert aligned(count, to) % to == 0
    assert 0 <= aligned(count, to) - count < to


@given(LAYOUTS)
def test_every_field_is_aligned_and_lies_over_no_other(layout: Layout) -> None:
    block = zeros(layout.bytes, ALIGNMENT)
    views = layout.views(block)
    assert list(views) == list(layout.fields)
    assert layout.bytes % ALIGNMENT == 0
    for name, view in views.items():
        assert (view.dtype, view.shape) == layout.fields[name]
        assert layout.offsets[name] % ALIGNMENT == 0
        assert view.size == 0 or address(view) % ALIGNMENT == 0
        view.reshape(-1).view(np.uint8)[:] += 1
    assert block.sum() == sum(view.nbytes for view in views.values())
    assert block.max(initial=0) <= 1
    assert layout.bytes == sum(aligned(view.nbytes) for view in views.values())


def test_views_share_the_block() -> None:
    block = np.zeros(FIELDS.bytes, np.uint8)
    FIELDS.views(block)["reward"][2, 1] = 1.5
    FIELDS.views(block)["step"][...] = -4
    assert FIELDS.views(block)["reward"].sum() == 1.5
    assert FIELDS.views(block)["step"] == -4


PACKED = Layout(
    {"numbers": ("int64", (3,)), "rewards": ("float32", (5,)), "rows": ("float32", (6, 2))}, Packed("numbers", 1, 4)
)


def packed(rows: int, block: Bytes | None = None) -> tuple[Bytes, dict[str, np.ndarray[Any, Any]]]:
    """A block of PACKED of which `rows` rows are in use."""
    block = np.full(PACKED.bytes, 7, np.uint8) if block is None else block
    arrays = PACKED.views(block)
    arrays["numbers"][:] = 0, rows, 9
    return block, arrays


@pytest.mark.parametrize(("counted", "rows"), [(0, 0), (1, 1), (6, 6), (7, 6), (1 << 40, 6), (-1, 0)])
def test_of_a_packed_field_only_the_rows_that_are_counted_are_in_use(counted: int, rows: int) -> None:
    block, arrays = packed(counted)
    in_use = PACKED.in_use(arrays)
    assert {name: array.shape for name, array in in_use.items()} == {
        "numbers": (3,),
        "rewards": (5,),
        "rows": (rows, 2),
    }
    assert all(np.shares_memory(array, block) for array in in_use.values() if array.size)
    assert PACKED.bytes_in_use(arrays) == PACKED.offsets["rows"] + 8 * rows
    assert PACKED.sparse_bytes == (6 - 4) * 8


@pytest.mark.parametrize("rows", range(7))
def test_a_block_that_ends_after_the_rows_in_use_has_the_same_arrays(rows: int) -> None:
    block, arrays = packed(rows)
    cut = PACKED.views(block[: PACKED.bytes_in_use(arrays)])
    assert {name: array.tolist() for name, array in cut.items()} == {
        name: array.tolist() for name, array in PACKED.in_use(arrays).items()
    }


def test_a_layout_without_a_packed_field_is_in_use_as_a_whole() -> None:
    arrays = FIELDS.views(np.zeros(FIELDS.bytes, np.uint8))
    assert FIELDS.in_use(arrays) is arrays
    assert FIELDS.bytes_in_use(arrays) == FIELDS.dense_bytes == FIELDS.bytes
    assert FIELDS.sparse_bytes == 0


@pytest.mark.parametrize("layout", [FIELDS, PACKED])
def test_a_layout_as_data(layout: Layout) -> None:
    again = Layout.of_data(layout.as_data())
    assert (again.fields, again.offsets, again.packed, again.bytes) == (
        layout.fields,
        layout.offsets,
        layout.packed,
        layout.bytes,
    )


# Segments


def test_a_new_segment_is_zeroed_and_page_aligned() -> None:
    segment = Segment.create("zeroed", 10_000)
    assert (segment.bytes, segment.memory.shape, segment.memory.dtype) == (10_000, (10_000,), np.uint8)
    assert not segment.memory.any()
    assert address(segment.memory) % PAGE == 0
    segment.close()


def test_a_segment_in_a_folder_is_a_file_without_a_name(tmp_path: Path) -> None:
    segment = Segment.create("replay", 3 * PAGE, str(tmp_path))
    assert not any(tmp_path.iterdir())
    assert os.fstat(segment.fd).st_blocks * 512 >= 3 * PAGE  # reserved, so no write finds the disk full
    assert not segment.memory.any()
    segment.memory[PAGE] = 7
    other = Segment.open(os.getpid(), segment.fd)
    segment.close()
    assert other.memory[PAGE] == 7


def test_a_folder_that_refuses_a_segment_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match=rf"file of 0.0 MiB for replay in {tmp_path}/none: No such file"):
        Segment.create("replay", PAGE, f"{tmp_path}/none")


def test_another_process_opens_it_through_proc() -> None:
    segment = Segment.create("shared", 4096)
    segment.memory[7] = 42
    owner = os.getpid()

    def work() -> bool:
        mine = Segment.open(owner, segment.fd)
        mine.memory[8] = mine.memory[7] + 1
        return mine.bytes == 4096 and address(mine.memory) != address(segment.memory)

    assert in_child(work)
    assert segment.memory[8] == 43
    segment.close()


def test_it_is_freed_at_once_although_views_exist() -> None:
    segment = Segment.create("released", 1 << 20)
    segment.memory[:] = 7
    other, view = os.dup(segment.fd), segment.memory[100:]
    assert os.fstat(other).st_blocks * 512 >= 1 << 20
    segment.release()
    assert (os.fstat(other).st_blocks, int(view.max()), segment.fd) == (0, 0, -1)
    os.close(other)


def test_it_takes_as_many_descriptors_as_are_counted_for_it() -> None:
    before = len(os.listdir("/proc/self/fd"))
    segments = [Segment.create(f"one-{number}", 4096) for number in range(5)]
    assert len(os.listdir("/proc/self/fd")) == before + 5 * PER_SEGMENT
    for segment in segments:
        segment.close()


def test_it_cannot_be_resized_by_anyone() -> None:
    segment = Segment.create("sealed", 4096)
    other = os.open(f"/proc/self/fd/{segment.fd}", os.O_RDWR)
    for fd in (segment.fd, other):
        for size in (0, 8192):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
        with pytest.raises(PermissionError):
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    assert os.fstat(other).st_size == 4096
    os.close(other)
    segment.close()


def test_views_outlive_the_segment_and_nothing_outlives_them() -> None:
    gc.collect()  # what earlier tests left in cycles must not go away meanwhile
    before = descriptors()
    segment = Segment.create("lifetime", SlabPlan(2, FIELDS.bytes).bytes)
    plan = SlabPlan(2, FIELDS.bytes)
    plan.format(segment.memory)
    view = SlabView(segment.memory, plan, FIELDS)
    segment.close()
    segment.close()
    del segment
    assert mapped("lifetime")
    view.slots[1]["reward"][:] = 3
    assert view.slots[1]["reward"].sum() == 18
    words, view = view.words, None  # type: ignore[assignment]
    assert mapped("lifetime")
    assert words.reserve(1, 0) == 0
    del words
    assert not mapped("lifetime")
    assert descriptors() == before


def test_a_closed_segment_cannot_be_opened_any_more() -> None:
    segment = Segment.create("closed", 4096)
    fd = segment.fd
    twin = Segment.open(os.getpid(), fd)
    segment.close()
    with pytest.raises(FileNotFoundError):
        Segment.open(os.getpid(), fd)
    twin.memory[0] = 9
    assert segment.memory[0] == 9
    twin.close()


@pytest.mark.parametrize("size", [-1, 1 << 50])
def test_a_segment_that_cannot_be_made_is_reported_and_leaves_nothing(size: int) -> None:
    before = descriptors()
    with pytest.raises(PlatformError, match=f"cannot create {size} bytes of shared memory for rollouts"):
        Segment.create("rollouts", size)
    assert descriptors() == before


# Plans and views


@given(st.integers(1, 40), st.integers(1, 20_000))
def test_slots_start_at_pages_and_lie_apart(slots: int, slot_bytes: int) -> None:
    layout = Layout({"goods": ("uint8", (slot_bytes,))})
    plan = SlabPlan(slots, layout.bytes)
    assert plan.offset >= _native.Slab.control_bytes(slots)
    assert plan.offset % PAGE == 0
    assert plan.bytes >= plan.offset + slots * slot_bytes
    memory = zeros(plan.bytes)
    plan.format(memory)
    view = SlabView(memory, plan, layout)
    for slot in view.slots:
        assert address(slot["goods"]) % PAGE == 0
        slot["goods"] += 1
    assert memory[plan.offset :].sum() == slots * slot_bytes
    assert view.words.counts() == (0, [0] * len(REASONS), 0)


@given(st.integers(0, 5), st.integers(0, 3), st.integers(1, 10_000))
def test_blocks_start_at_pages_and_lie_apart(readers: int, keep: int, block_bytes: int) -> None:
    plan = BoardPlan(readers + keep + 1, block_bytes, readers, keep)
    memory = zeros(plan.bytes)
    plan.format(memory)
    view = BoardView(memory, plan)
    for block in view.blocks:
        assert address(block) % PAGE == 0
        block += 1
    assert memory[plan.offset :].sum() == plan.blocks * block_bytes
    assert (view.words.blocks, view.words.readers, view.latest) == (plan.blocks, readers, -1)


def test_a_layout_that_does_not_fit_is_refused() -> None:
    plan = SlabPlan(2, FIELDS.bytes - 1)
    memory = zeros(plan.bytes)
    plan.format(memory)
    assert len(SlabView(memory, plan).slots) == 0
    with pytest.raises(TopologyError, match="a layout of 192 bytes does not fit a slot of 191"):
        SlabView(memory, plan, FIELDS)


def test_memory_without_words_is_refused() -> None:
    segment = Segment.create("empty", SlabPlan(2, 64).bytes)
    with pytest.raises(ValueError, match="holds no slab"):
        SlabView(segment.memory, SlabPlan(2, 64))
    with pytest.raises(ValueError, match="holds no board"):
        BoardView(segment.memory, BoardPlan(3, 64, 1, 1))
    with pytest.raises(ValueError, match="too small"):
        _native.Slab.format(segment.memory[:128], 4)
    with pytest.raises(ValueError, match=r"readers \+ keep \+ 1"):
        BoardPlan(3, 64, 2, 1).format(segment.memory)
    segment.close()


def test_counts_name_the_reasons() -> None:
    plan = SlabPlan(4, 64)
    segment = Segment.create("counts", plan.bytes)
    plan.format(segment.memory)
    view = SlabView(segment.memory, plan)
    for reason in ("consumed", "stale", "consumed", "invalid", None):
        view.words.commit(view.words.reserve(1, 0), 1, 0)
        slot = view.words.claim(2, 0)
        if reason:
            view.words.retire(slot, 2, 0, REASONS.index(reason))
    dropped = {"stale": 1, "invalid": 1}
    assert view.counts() == {"produced": 5, "consumed": 2, "dropped": dropped, "in_flight": 1}
    for call in (lambda: view.words.recover(2, 0, False, len(REASONS)), lambda: view.words.drain(-1)):
        with pytest.raises(ValueError, match="no such reason"):
            call()
    with pytest.raises(ValueError, match="actors 0 to 1023"):
        view.words.reserve(1024, 0)
    assert view.words.recover(2, 0, False, REASONS.index("consumer_died")) == 1
    assert view.counts()["dropped"] == {"stale": 1, "consumer_died": 1, "invalid": 1}
    segment.close()


def board() -> BoardView:
    plan = BoardPlan(3, 64, 1, 1)
    segment = Segment.create("board", plan.bytes)
    plan.format(segment.memory)
    segment.close()
    return BoardView(segment.memory, plan)


def publish(words: _native.Board, version: int) -> None:
    words.seal(words.begin(), version)
    words.publish(version)


def test_a_version_is_there_or_gone_or_yet_to_come() -> None:
    view = board()
    assert view.pin(0) is None
    assert view.pin(0, 0) is None
    for version in range(5):
        publish(view.words, version)
    assert [view.words.version(view.pin(0, v) or 0) for v in (-1, 4, 3)] == [4, 4, 3]
    assert view.pin(0, 5) is None
    with pytest.raises(VersionGone, match="version 0 has been overwritten; the latest is 4"):
        view.pin(0, 0)


def test_a_version_published_during_the_attempt_is_not_gone() -> None:
    view = board()
    words = view.words
    publish(words, 0)

    class WriterIsQuick:
        """Publishes version 1 just after a reader has looked for it."""

        @property
        def latest(self) -> int:
            return words.latest

        def pin(self, reader: int, version: int) -> int:
            block = words.pin(reader, version)
            publish(words, 1)
            return block

    view.words = WriterIsQuick()  # type: ignore[assignment]
    assert view.pin(0, 1) is None
    view.words = words
    assert words.version(view.pin(0, 1) or 0) == 1
