"""Shared memory: segments, layouts, and views of slabs and boards.

A *segment* is an anonymous `memfd_create` file of the supervisor, sealed against resizing. Other processes open it
through `/proc/<supervisor>/fd/<n>`. It has no name in a file system, so the kernel frees it when the last process that
maps it exits, even after SIGKILL, and the size of `/dev/shm` does not limit it. (`multiprocessing.shared_memory` is not
used because its resource tracker, before Python 3.13, unlinks segments that other processes still use.)

A *layout* places named arrays one after another:

    0                    64 k                        64 m                  bytes (a multiple of 64)
    | observations       | actions          |pad 0   | rewards     |pad 0  |

Every field starts at a multiple of 64 bytes, because alignment changes the bits of a matrix product. The last field may
be *packed*: only its first rows are in use, and a number in another field counts them. No code reads or writes the rows
behind them, so the pages of rows that no message ever used take no memory.

    slab segment     | control: slot words (native) | slot 0 | slot 1 | ...   each one layout, 4096-aligned
    board segment    | control: versions and pins   | block 0 | block 1 | ... each one layout, 4096-aligned

This module is the only one that imports mmap.
"""

from __future__ import annotations

import copy
import fcntl
import functools
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, overload

import numpy as np

from hive import _native
from hive.errors import PlatformError, TopologyError, VersionGone
from hive.runtime.wire.arrays import ArrayKind, Shape, array_kind, declared_fields

if TYPE_CHECKING:
    from hive.runtime.wire.messages import Message

# The arrays that hold a message's numbers in a slot.
NUMBERS = {
    kind: ArrayKind(np.dtype(name), Shape()) for kind, name in ((int, "int64"), (float, "float64"), (bool, "bool"))
}
ALIGNMENT = 64  # bytes; alignment of the fields of a layout
PAGE = 4096  # bytes; alignment of slots and blocks
# Reasons to retire a slot or a message, in the order of the native slab's eight tallies; the order is part of its
# layout.
REASONS = ("consumed", "stale", "cut", "run_ended", "consumer_died", "process_died", "overflow", "invalid")

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]


def aligned(count: int, to: int = ALIGNMENT) -> int:
    """Round `count` up to a multiple of `to`."""
    return -(-count // to) * to


def _kind_of(hint: Any) -> ArrayKind:
    """Return the dtype and shape that a layout must give a field. Numbers may have any dtype."""
    return array_kind(hint) or ArrayKind(None, Shape() if hint in NUMBERS else None)


@dataclass(frozen=True)
class Packed:
    """How many rows of a layout's last field are in use: element `index` of the field `count` says it.

    expected: rows that are in use at most, as far as is known; the machine need not have room for more.
    """

    count: str
    index: int
    expected: int


class Layout:
    """Named arrays in one block of `bytes` bytes. `fields` maps names to (dtype, shape), in the order of the block.

    packed: how many rows of the last field are in use; None: every field is used as a whole.
    """

    def __init__(self, fields: Mapping[str, tuple[str, tuple[int, ...]]], packed: Packed | None = None) -> None:
        self.fields = {name: (np.dtype(dtype), tuple(shape)) for name, (dtype, shape) in fields.items()}
        self.packed = packed
        self.offsets: dict[str, int] = {}
        self.bytes = 0
        for name, (dtype, shape) in self.fields.items():
            self.offsets[name] = self.bytes
            self.bytes = aligned(self.bytes + dtype.itemsize * prod(shape))
        self.dense_bytes = self.bytes  # without the packed field
        self.sparse_bytes = 0  # of the packed field, not expected to be written
        if packed is not None:
            name, (dtype, shape) = [*self.fields.items()][-1]
            self._last, self._rows, self._row_bytes = name, shape[0], dtype.itemsize * prod(shape[1:])
            self.dense_bytes = self.offsets[name]
            self.sparse_bytes = max(0, self._rows - packed.expected) * self._row_bytes

    @classmethod
    def of(cls, message: type[Message], **sizes: int) -> Layout:
        """Derive the layout of a message that declares the dtypes and shapes of its arrays; `sizes` gives named sizes.

        A number becomes an array without dimensions of dtype int64, float64 or bool. Raises TopologyError for a field
        without a fixed size, for a missing size, and for a size that no field names.
        """
        named: set[str] = set()
        fields: dict[str, tuple[str, tuple[int, ...]]] = {}
        for name, hint in declared_fields(message).items():
            kind = NUMBERS.get(hint) or array_kind(hint)
            if kind is None or kind.dtype is None or kind.shape is None:
                raise TopologyError(
                    f"`{message.__name__}.{name}` has no fixed size",
                    hint='a slot holds numbers and arrays like Annotated[NDArray[np.float32], hive.Shape("T", 4)]',
                )
            named.update(size for size in kind.shape.sizes if isinstance(size, str))
            if missing := named - sizes.keys():
                raise TopologyError(
                    f"`{message.__name__}.{name}` is {kind}, but the size {min(missing)} is missing",
                    hint=f"give it: Layout.of({message.__name__}, {min(missing)}=...)",
                )
            fields[name] = kind.dtype.name, kind.shape.with_sizes(sizes)
        if unknown := sizes.keys() - named:
            raise TopologyError(f"no array of `{message.__name__}` has a size called {min(unknown)}")
        return cls(fields)

    def fault(self, message: type[Message]) -> str:
        """Describe why messages of this type do not fit the layout; "" if they do.

        A message without fields fits every layout: its slots are written in place.
        """
        declared = declared_fields(message)
        if not declared or not (missing := declared.keys() ^ self.fields.keys()):
            faults = ((name, _kind_of(hint).fault(*self.fields[name])) for name, hint in declared.items())
            return next((f"`{name}`: {fault}" for name, fault in faults if fault), "")
        name = min(missing)
        return f"`{name}` is in the {'message' if name in declared else 'layout'} only"

    def as_data(self) -> dict[str, Any]:
        """Return the layout as a message carries it: "fields" {name: [dtype, size, size, ...]}, "packed" [...]."""
        fields = {name: [dtype.name, *shape] for name, (dtype, shape) in self.fields.items()}
        return {"fields": fields, "packed": list(astuple(self.packed)) if self.packed else []}

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Layout:
        """Return the layout that `as_data` was called on."""
        fields = {name: (dtype, tuple(shape)) for name, (dtype, *shape) in data["fields"].items()}
        return cls(fields, Packed(*data["packed"]) if data["packed"] else None)

    def views(self, block: Bytes) -> Arrays:
        """Return the fields as arrays that share the memory of `block`, which may end after the rows in use."""
        offsets, fields = self.offsets, self.fields
        if self.packed is not None and len(block) < self.bytes:
            dtype, shape = fields[self._last]
            rows = min(self._rows, (len(block) - self.dense_bytes) // (self._row_bytes or 1))
            fields = {**fields, self._last: (dtype, (rows, *shape[1:]))}
        return {name: np.ndarray(shape, dtype, block, offsets[name]) for name, (dtype, shape) in fields.items()}

    def rows_in_use(self, arrays: Arrays) -> int:
        """Return how many rows of the packed field are in use; 0 without one."""
        if self.packed is None:
            return 0
        counted: int = arrays[self.packed.count].item(self.packed.index)
        return min(max(0, counted), self._rows)

    def bytes_in_use(self, arrays: Arrays) -> int:
        """Return the bytes of a block up to the last row in use."""
        return self.dense_bytes + self.rows_in_use(arrays) * self._row_bytes if self.packed else self.bytes

    def in_use(self, arrays: Arrays, counted: Arrays | None = None) -> Arrays:
        """Return the arrays, of which the packed one has only the rows in use. Nothing is copied.

        counted: arrays that say how many these are, if not `arrays`.
        """
        if self.packed is None:
            return arrays
        return {**arrays, self._last: arrays[self._last][: self.rows_in_use(counted or arrays)]}


class CachedViews:
    """The views of a layout in blocks that are used again and again, such as those of a board.

    A call returns what `layout.views` returned for the same array of bytes. A full cache is cleared: callers that bring
    new memory every time lose only time.
    """

    MOST_BLOCKS = 8  # more than a board of the trainer has

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._views: dict[int, tuple[Bytes, Arrays]] = {}

    def __call__(self, block: Bytes) -> Arrays:
        cached = self._views.get(id(block))
        if cached is None or cached[0] is not block:
            if len(self._views) >= self.MOST_BLOCKS:
                self._views.clear()
            cached = self._views[id(block)] = (block, self.layout.views(block))
        return cached[1]


@dataclass(frozen=True)
class SlabPlan:
    """The sizes of a slab: `slots` slots of `slot_bytes` bytes each. Its first commit gets the sequence `first`."""

    slots: int
    slot_bytes: int
    first: int = 0

    @functools.cached_property
    def offset(self) -> int:
        return aligned(_native.Slab.control_bytes(self.slots), PAGE)

    @property
    def bytes(self) -> int:
        return self.offset + self.slots * aligned(self.slot_bytes, PAGE)

    def format(self, memory: Bytes) -> None:
        _native.Slab.format(memory[: self.offset], self.slots, self.first)


@dataclass(frozen=True)
class BoardPlan:
    """The sizes of a board. Its `keep` newest versions are never overwritten; blocks >= readers + keep + 1."""

    blocks: int
    block_bytes: int
    readers: int
    keep: int

    @functools.cached_property
    def offset(self) -> int:
        return aligned(_native.Board.control_bytes(self.blocks, self.readers), PAGE)

    @property
    def bytes(self) -> int:
        return self.offset + self.blocks * aligned(self.block_bytes, PAGE)

    def format(self, memory: Bytes) -> None:
        _native.Board.format(memory[: self.offset], self.blocks, self.readers, self.keep)


@dataclass(frozen=True)
class BufferPlan:
    """A number of zeroed bytes without words of their own."""

    bytes: int

    def format(self, memory: Bytes) -> None:
        """Do nothing: new memory is zero."""


SegmentPlan: TypeAlias = SlabPlan | BoardPlan | BufferPlan


class Segment:
    """A piece of shared memory that this process maps. `memory` holds its bytes, uint8 [size]."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.bytes = size
        self._map = mmap.mmap(fd, size)
        self.memory: Bytes = np.frombuffer(self._map, np.uint8)

    @classmethod
    def create(cls, name: str, size: int, folder: str = "") -> Segment:
        """Create a zeroed segment. Its descriptor stays open, so that other processes can open it.

        folder: "": in memory; otherwise in a file without a name in this folder. Raises PlatformError when the kernel
        refuses the memory, or the disk has no room.
        """
        if folder:
            return cls._in_file(name, size, folder)
        fd = -1
        try:
            fd = os.memfd_create(f"hive-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            return cls(fd, size)
        except (OSError, AttributeError) as error:
            if fd >= 0:
                os.close(fd)
            cause = f"cannot create {size} bytes of shared memory for {name}: {error}"
            raise PlatformError(cause, hint="hive needs Linux and enough free memory") from None

    @classmethod
    def _in_file(cls, name: str, size: int, folder: str) -> Segment:
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                # Reserved now: a write to a page for which a full disk has no room would kill the writer (SIGBUS).
                os.posix_fallocate(file.fileno(), 0, size)
                return cls(os.dup(file.fileno()), size)
        except OSError as error:
            cause = f"cannot create a file of {size / 2**20:,.1f} MiB for {name} in {folder}: {error.strerror}"
            raise PlatformError(cause, hint="choose another folder, or less memory") from None

    @classmethod
    def open(cls, owner_pid: int, owner_fd: int) -> Segment:
        """Open the segment that process `owner_pid` holds as its descriptor `owner_fd`. Raises OSError."""
        fd = os.open(f"/proc/{owner_pid}/fd/{owner_fd}", os.O_RDWR | os.O_CLOEXEC)
        try:
            segment = cls(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)  # the mapping keeps the memory alive
        segment.fd = -1
        return segment

    def close(self) -> None:
        """Close the descriptor. The memory is freed when its last mapping is."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def release(self) -> None:
        """Free the memory at once, even if views of it exist; these read zeros from now on."""
        self.close()
        self._map.madvise(mmap.MADV_REMOVE)


class SlotArrays(Sequence[Arrays]):
    """The arrays of each slot, made at first use; `block(i)` are the bytes that those of slot i lie in.

    64 producers and 64 consumers have 4096 views of slabs in all, and most consumers use only a few of them.
    """

    def __init__(self, memory: Bytes, count: int, stride: int, layout: Layout) -> None:
        self._memory, self._count, self._stride, self.layout = memory, count, stride, layout
        self._made: dict[int, Arrays] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Arrays: ...
    @overload
    def __getitem__(self, index: slice) -> list[Arrays]: ...
    def __getitem__(self, index: int | slice) -> Arrays | list[Arrays]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        arrays = self._made.get(index)
        if arrays is None:
            arrays = self._made[index] = self.layout.views(self.block(index))
        return arrays

    def block(self, index: int) -> Bytes:
        """Return the bytes of a slot, without the padding behind its last field."""
        return self._memory[range(len(self))[index] * self._stride :][: self.layout.bytes]


def slot_stride(layout: Layout) -> int:
    """Return the bytes from one slot to the next."""
    return max(aligned(layout.bytes, PAGE), PAGE)


class SlabView:
    """One producer's slab: `words` records which actor holds each slot, `slots[i]` are the arrays of slot i.

    Without a layout there are no arrays, which is enough to count messages and to repair the words.
    """

    Words: ClassVar[type[_native.Slab]] = _native.Slab  # replaced by the simulator to kill processes in a transition

    def __init__(self, memory: Bytes, plan: SlabPlan, layout: Layout | None = None) -> None:
        self.words = self.Words(memory[: plan.offset])
        if layout is not None and layout.bytes > plan.slot_bytes:
            raise TopologyError(f"a layout of {layout.bytes} bytes does not fit a slot of {plan.slot_bytes}")
        count = plan.slots if layout is not None else 0
        stride = aligned(plan.slot_bytes, PAGE)
        self.slots = SlotArrays(memory[plan.offset :], count, stride, layout or Layout({}))

    def with_slots(self, layout: Layout, memory: Bytes | None = None) -> SlabView:
        """Return a view of the same words whose slots lie in `memory`, by default in private memory of this process."""
        view, count, stride = copy.copy(self), self.words.slots, slot_stride(layout)
        if memory is None:
            mapped = mmap.mmap(-1, count * stride, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory = np.frombuffer(mapped, np.uint8)
        view.slots = SlotArrays(memory, count, stride, layout)
        return view

    def counts(self) -> dict[str, Any]:
        """Return the slab's account as `summary.json` prints it: produced, consumed, dropped by reason, in_flight."""
        produced, retired, in_flight = self.words.counts()
        dropped = {reason: n for reason, n in zip(REASONS[1:], retired[1:], strict=True) if n}
        return {"produced": produced, "consumed": retired[0], "dropped": dropped, "in_flight": in_flight}


class BoardView:
    """A board: `words` holds its versions and pins, `blocks[i]` is the memory of block i."""

    Words: ClassVar[type[_native.Board]] = _native.Board

    def __init__(self, memory: Bytes, plan: BoardPlan, commit: BoardView | None = None) -> None:
        self.words: _native.Board = self.Words(memory[: plan.offset], commit.words if commit else None)
        stride = aligned(plan.block_bytes, PAGE)
        starts = range(plan.offset, plan.offset + plan.blocks * stride, stride)
        self.blocks: list[Bytes] = [memory[start : start + plan.block_bytes] for start in starts]

    @property
    def latest(self) -> int:
        """The newest published version, or -1."""
        return self.words.latest

    def pin(self, reader: int, version: int = -1) -> int | None:
        """Pin the block of `version` (-1: the latest) for `reader` and return its index; None if not published yet.

        Raises VersionGone when it has been overwritten.
        """
        # Read before the attempt: a version that is published between the two must not be taken for an overwritten one.
        latest = self.words.latest
        block = self.words.pin(reader, version)
        if block >= 0:
            return block
        if 0 <= version <= latest:
            raise VersionGone(f"version {version} has been overwritten; the latest is {self.words.latest}")
        return None
