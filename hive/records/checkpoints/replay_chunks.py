"""Writes the rows of a replay memory into a checkpoint, and reads them; files of earlier checkpoints are linked.

    <checkpoint>/replay/
      rows.json                       the layout, the number of rows of each source, and the files with rows
      heads.bin        [S, B, ...]    the observation of row `written` of each source
      leaves.bin       [n, B]         uint32 of the newest min(written, kept) rows, source by source
      <source>-<first>-<end>.rows     rows `first` to `end` - 1 of a source

The arrays of a memory are [S, R, B, ...]: S sources, rings of R rows, B environments. Row i of a source lies at i
modulo R; a row below `written` does not change until it is overwritten. Rows c K to (c + 1) K - 1 are *chunk* c of a
source, with the same K in all checkpoints of a run. A file holds rows of one chunk: all of them, except for the oldest
and the newest file of a source. In a file, the fields follow each other in alphabetical order, each [rows, B, ...] as
raw bytes, and then the final observations of the steps whose `truncated` is not 0, in the order of rows and
environments.

A file that an earlier checkpoint of the same folder has is linked, and its rows are not read. So a checkpoint costs the
disk only what is new, but is complete: it can be copied alone, and other checkpoints can be removed. Row numbers
identify rows only within one history: a run that is resumed from an earlier checkpoint makes other rows with the same
numbers. Therefore `mark`, a hash of a few rows of a file, is compared with the memory before the file is linked.

The checksums of all files are in `DONE` of the checkpoint (hive.records.atomic). They are computed from memory, so that
no file is read after it was written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from hive.errors import MemoryShort, RecordError
from hive.free_memory import free_memory, size_text
from hive.records.atomic import FileFacts, Files, read_listing
from hive.records.directory import REPLAY_FOLDER, ROWS_SUFFIX
from hive.records.documents import failure, json_text, read_document
from hive.records.regular import read_regular

MANIFEST, HEADS, LEAVES = "rows.json", "heads.bin", "leaves.bin"

# A whole chunk has about this size. Each checkpoint writes the newest, incomplete chunk of every source again, half of
# one on average, so chunks are small; a million Atari frames still make fewer than a thousand files. A chunk is written
# in a fraction of a second, after which its rows may be overwritten.
CHUNK_BYTES = 8 << 20

MARKED_ROWS = 64  # the newest rows of a file whose small fields are part of its mark

STORED_DTYPES = ("float32", "int64", "uint8")
"""The dtypes of the fields of rows."""

Natural = Annotated[int, range(2**62)]
Writing = Generator[tuple[int, ...], None, dict[str, FileFacts]]


class ArrayField(TypedDict):
    """The dtype of an array, such as "float32", and its shape [B, ...] in one row."""

    dtype: str
    shape: list[Natural]


class Piece(TypedDict):
    """A file: rows `first` to `end` - 1 of a source."""

    name: str
    source: Natural
    first: Natural
    end: Natural
    mark: str


@dataclass(frozen=True)
class Manifest:
    """The content of rows.json; `kept`: as in RowsToSave, `written`: of each source, `chunk_rows`: K."""

    fields: dict[str, ArrayField]
    written: list[Natural]
    kept: Natural
    chunk_rows: Annotated[int, range(1, 2**62)]
    files: list[Piece]


@dataclass(frozen=True)
class RowsToSave:
    """The rows of a memory that a checkpoint holds.

    arrays: C-contiguous [S, R, B, ...] by name. `finals` (of the same kind as `observations`) are stored where
    `truncated` is not 0, `leaves` are uint32, and all other arrays are stored as they are. `leaves` must not change
    until the first step has ended, so a memory that is in use passes a copy.
    written: the number of rows of each source, [S]. Only the observation of the next one is stored.
    kept: how many of the newest rows of a source are stored, at most R - 1. These are the rows from which transitions
    are drawn, and on both sides those that they need: n - 1 of n steps, k - 1 of stacks of k observations.
    """

    arrays: Mapping[str, NDArray[Any]]
    written: Sequence[int]
    kept: int

    def first(self, source: int) -> int:
        """Return the oldest row of a source that is stored."""
        return max(0, self.written[source] - self.kept)


def write_replay(folder: Path, rows: RowsToSave, earlier: Iterable[Path], files: Files) -> Writing:
    """Write `rows` into `folder`/replay in steps; return size and SHA-256 of each file by its name in `folder`.

    Each step yields, for each source, the first row that is still to be read; the rows before may be overwritten.
    `leaves` and the observations of the heads are read before the first step ends. `earlier`: folders of intact
    checkpoints, whose files are linked where possible. All files are on the disk at the end, except for the entries of
    the folder. Raises OSError, and ValueError if `kept` is not below R.
    """
    ring = rows.arrays["rewards"].shape[1]
    if rows.kept >= ring:
        raise ValueError(f"{rows.kept} rows cannot be kept in a ring of {ring}: the head takes one")
    memory = _Memory(rows.arrays)
    target = folder / REPLAY_FOLDER
    files.make_folder(target)
    known: dict[str, FileFacts] = {}

    def write(name: str, data: NDArray[np.uint8] | bytes) -> None:
        files.write(target / name, memoryview(data))  # type: ignore[arg-type]  # arrays are buffers from 3.12 on
        files.sync(target / name)
        known[f"{REPLAY_FOLDER}/{name}"] = _facts(data)

    write(HEADS, memory.heads(rows.written))
    write(LEAVES, np.concatenate([memory.leaves(s, rows.first(s), end) for s, end in enumerate(rows.written)]))
    saved = _Saved(earlier, memory.fields)
    chunk_rows = saved.chunk_rows or max(1, CHUNK_BYTES // memory.row_bytes)
    floor = [rows.first(source) for source in range(len(rows.written))]
    yield tuple(floor)
    pieces: list[Piece] = []
    for source, first, end in _cuts(rows, chunk_rows):
        linked = saved.linked(target, memory, source, first, end, files)
        if linked is None:
            piece = _piece(memory, source, first, end)
            write(piece["name"], memory.pack(source, first, end))
        else:
            piece, known[f"{REPLAY_FOLDER}/{linked[0]['name']}"] = linked
        pieces.append(piece)
        floor[source] = end
        yield tuple(floor)
    manifest = Manifest(memory.fields, [int(n) for n in rows.written], rows.kept, chunk_rows, pieces)
    write(MANIFEST, json_text(asdict(manifest), indent=1).encode())
    return known


def read_replay(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[range, ...]:
    """Read the rows in `folder`/replay into `arrays`, as in RowsToSave; return those of each source now in its ring.

    The number R of rows may differ from that of the writer: of more rows than fit, the newest are read. The stop of a
    range is `written`, and the observation of that row is read too. `leaves` of all other rows become 0. Checksums are
    compared. Raises RecordError with the file and the cause if there are no such rows, a file is missing or damaged, or
    the rows of `arrays` have another layout; the arrays are then in an undefined state.
    """
    listing, memory = read_listing(folder), _Memory(arrays)
    _verified(folder, MANIFEST, listing)
    manifest = read_document(folder / REPLAY_FOLDER / MANIFEST, Manifest)
    _check_layout(folder, manifest, memory)
    _check_pieces(folder, manifest)
    spans = tuple(range(max(0, end - min(manifest.kept, memory.rows - 1)), end) for end in manifest.written)
    for piece in manifest.files:
        start = max(spans[piece["source"]].start, piece["first"])
        if start < piece["end"]:
            data = _verified(folder, piece["name"], listing)
            if not memory.unpack(data, piece["source"], piece["first"], piece["end"], start):
                raise RecordError(f"`{folder / REPLAY_FOLDER / piece['name']}` has another size than its rows")
    heads, leaves = _verified(folder, HEADS, listing), _verified(folder, LEAVES, listing)
    stored = [min(end, manifest.kept) for end in manifest.written]
    if not memory.put_heads(manifest.written, heads) or not memory.put_leaves(manifest.written, stored, spans, leaves):
        raise RecordError(f"`{folder / REPLAY_FOLDER}`: {HEADS} or {LEAVES} has another size than its rows")
    return spans


def read_whole_replay(folder: Path) -> tuple[dict[str, NDArray[Any]], tuple[range, ...]]:
    """Read all rows in `folder`/replay into new arrays of the layout that they have there, as `read_replay` does."""
    manifest, listing = read_document(folder / REPLAY_FOLDER / MANIFEST, Manifest), read_listing(folder)
    _check_pieces(folder, manifest)
    lacking = {"observations", "rewards", "truncated"} - manifest.fields.keys()
    odd = [name for name, field in manifest.fields.items() if field["dtype"] not in STORED_DTYPES]
    sizes = {name: prod(field["shape"]) * np.dtype(field["dtype"]).itemsize for name, field in manifest.fields.items()}
    stored = {piece["name"]: (piece["end"] - piece["first"]) * sum(sizes.values()) for piece in manifest.files}
    claims = [name for name, size in stored.items() if size > _listed_size(listing, name)]
    if lacking or odd or claims or not sizes["rewards"]:
        wrong = f"no field `{min(lacking)}`" if lacking else f"`{(odd or claims or ['rewards'])[0]}` with another size"
        raise RecordError(f"`{folder / REPLAY_FOLDER / MANIFEST}` has {wrong}")
    rows = max((min(end, manifest.kept) for end in manifest.written), default=0) + 1
    needed = len(manifest.written) * rows * (sum(sizes.values()) + sizes["observations"] + sizes["rewards"])
    if needed > (free := free_memory()).usable:
        raise MemoryShort(f"the rows of {folder} need {size_text(needed)}, and {free} are free")
    shape = len(manifest.written), rows
    arrays: dict[str, NDArray[Any]] = {
        name: np.zeros((*shape, *field["shape"]), field["dtype"]) for name, field in manifest.fields.items()
    }
    arrays["finals"] = np.zeros_like(arrays["observations"])
    arrays["leaves"] = np.zeros(arrays["rewards"].shape, np.uint32)
    return arrays, read_replay(folder, arrays)


def _listed_size(listing: Mapping[str, FileFacts], name: str) -> int:
    """Return the size of a file of rows, which was compared with DONE; 0 for none."""
    size = (listing.get(f"{REPLAY_FOLDER}/{name}") or {}).get("size")
    return size if isinstance(size, int) else 0


class _Memory:
    """The arrays of a memory as bytes: `data[name]` is uint8 [S, R, bytes of the field in a row]."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.sources, self.rows, self.envs = arrays["rewards"].shape
        self.fields: dict[str, ArrayField] = {
            name: {"dtype": array.dtype.name, "shape": list(array.shape[2:])}
            for name, array in sorted(arrays.items())
            if name not in ("finals", "leaves")
        }
        self.data = {name: _as_bytes(array) for name, array in arrays.items()}
        self.row_bytes = sum(self.data[name].shape[2] for name in self.fields)
        # Of one environment: [S, R, B, bytes].
        self.finals = self.data["finals"].reshape(self.sources, self.rows, self.envs, -1)

    def pack(self, source: int, first: int, end: int) -> NDArray[np.uint8]:
        """Return the content of the file of these rows."""
        count, at = end - first, 0
        truncated = self._truncated(source, first, end)
        final_bytes = len(truncated[0]) * self.finals.shape[3]
        content = np.empty(count * self.row_bytes + final_bytes, np.uint8)
        for name in self.fields:
            ring = self.data[name][source]
            block = content[at : at + count * ring.shape[1]].reshape(count, -1)
            for there, here in _places(first, end, self.rows):
                block[here] = ring[there]
            at += block.size
        content[at:] = self.finals[source][truncated].ravel()
        return content

    def unpack(self, content: NDArray[np.uint8], source: int, first: int, end: int, start: int) -> bool:
        """Write rows `start` to `end` - 1 of a file that begins with row `first`. Return False if it has another size.

        The rows `start` to `end` - 1 are at most R.
        """
        count, at = end - first, 0
        if len(content) < count * self.row_bytes:
            return False
        for name in self.fields:
            ring = self.data[name][source]
            block = content[at : at + count * ring.shape[1]].reshape(count, -1)
            if name == "truncated":
                before = np.count_nonzero(block.view(self.fields[name]["dtype"])[: start - first])
            for there, here in _places(start, end, self.rows):
                ring[there] = block[start - first :][here]
            at += block.size
        truncated = self._truncated(source, start, end)
        finals = content[at:]
        if finals.size != (before + len(truncated[0])) * self.finals.shape[3]:
            return False
        self.finals[source][truncated] = finals.reshape(-1, self.finals.shape[3])[before:]
        return True

    def heads(self, written: Sequence[int]) -> NDArray[np.uint8]:
        """Return the observations of the rows `written` of all sources."""
        observations = self.data["observations"]
        heads: NDArray[np.uint8] = observations[np.arange(self.sources), np.asarray(written, np.int64) % self.rows]
        return heads.ravel()

    def put_heads(self, written: Sequence[int], content: NDArray[np.uint8]) -> bool:
        observations = self.data["observations"]
        if content.size != self.sources * observations.shape[2]:
            return False
        heads = content.reshape(self.sources, -1)
        observations[np.arange(self.sources), np.asarray(written, np.int64) % self.rows] = heads
        return True

    def leaves(self, source: int, first: int, end: int) -> NDArray[np.uint8]:
        """Return the leaves of these rows."""
        ring = self.data["leaves"][source]
        return np.concatenate([ring[there] for there, _ in _places(first, end, self.rows)]).ravel()

    def put_leaves(
        self, written: Sequence[int], stored: Sequence[int], spans: Sequence[range], content: NDArray[np.uint8]
    ) -> bool:
        """Write the leaves of `spans` from those of the newest `stored` rows of each source, and 0 elsewhere."""
        leaves, at = self.data["leaves"], 0
        if content.size != sum(stored) * leaves.shape[2]:
            return False
        leaves[:] = 0
        rows = content.reshape(-1, leaves.shape[2])
        for source, (end, count, span) in enumerate(zip(written, stored, spans, strict=True)):
            block = rows[at + span.start - (end - count) : at + count]
            for there, here in _places(span.start, end, self.rows):
                leaves[source][there] = block[here]
            at += count
        return True

    def mark(self, source: int, first: int, end: int) -> str:
        """Return a hash of the newest rows of a file, without reading more than one of its observations."""
        digest = hashlib.sha256()
        for name in self.fields:
            start = max(first, end - (1 if name == "observations" else MARKED_ROWS))
            for there, _ in _places(start, end, self.rows):
                digest.update(self.data[name][source][there])
        return digest.hexdigest()

    def _truncated(self, source: int, first: int, end: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return place in the ring and environment of each truncated step of these rows."""
        places = np.arange(first, end) % self.rows
        truncated = self.data["truncated"][source].view(self.fields["truncated"]["dtype"])
        rows, envs = np.nonzero(truncated[places])
        return places[rows], envs


class _Saved:
    """The files of earlier checkpoints, of which the first that has rows of this layout determines `chunk_rows`."""

    def __init__(self, earlier: Iterable[Path], fields: Mapping[str, ArrayField]) -> None:
        self.chunk_rows: int | None = None
        self.pieces: dict[tuple[int, int], list[tuple[Path, Piece, FileFacts]]] = {}
        for folder in earlier:
            if not (folder / REPLAY_FOLDER / MANIFEST).exists():
                continue
            try:
                manifest, listing = read_document(folder / REPLAY_FOLDER / MANIFEST, Manifest), read_listing(folder)
            except RecordError:
                continue
            if manifest.fields != fields or manifest.chunk_rows != (self.chunk_rows or manifest.chunk_rows):
                continue
            self.chunk_rows = manifest.chunk_rows
            for piece in manifest.files:
                facts = listing.get(f"{REPLAY_FOLDER}/{piece['name']}")
                if facts and piece["name"] == _name(piece["source"], piece["first"], piece["end"]):
                    found = folder / REPLAY_FOLDER / piece["name"], piece, facts
                    self.pieces.setdefault((piece["source"], piece["end"]), []).append(found)

    def linked(
        self, target: Path, memory: _Memory, source: int, first: int, end: int, files: Files
    ) -> tuple[Piece, FileFacts] | None:
        """Link a file that holds these rows into the folder `target`. Return None if there is none."""
        for path, piece, facts in self.pieces.get((source, end), ()):
            if piece["first"] > first or piece["mark"] != memory.mark(source, piece["first"], end):
                continue
            try:
                files.link(path, target / path.name)
            except OSError:  # another file system, or one without links; a full disk refuses the write that follows
                continue
            return piece, facts
        return None


def _cuts(rows: RowsToSave, chunk_rows: int) -> list[tuple[int, int, int]]:
    """Return source, first row and end of each file, those farthest behind the heads of their sources first."""
    cuts = []
    for source, written in enumerate(rows.written):
        first = rows.first(source)
        while first < written:
            end = min(written, (first // chunk_rows + 1) * chunk_rows)
            cuts.append((source, first, end))
            first = end
    return sorted(cuts, key=lambda cut: cut[1] - rows.written[cut[0]])


def _piece(memory: _Memory, source: int, first: int, end: int) -> Piece:
    return {
        "name": _name(source, first, end),
        "source": source,
        "first": first,
        "end": end,
        "mark": memory.mark(source, first, end),
    }


def _name(source: int, first: int, end: int) -> str:
    return f"{source:03d}-{first:012d}-{end:012d}{ROWS_SUFFIX}"


def _places(first: int, end: int, rows: int) -> Iterator[tuple[slice, slice]]:
    """Yield the slices of a ring in which the rows `first` to `end` - 1 lie, and those of the rows, both at most R."""
    start, count = first % rows, end - first
    before = min(count, rows - start)
    yield slice(start, start + before), slice(0, before)
    if count > before:
        yield slice(0, count - before), slice(before, count)


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return [S, R, ...] as bytes [S, R, bytes], without copying. Raises ValueError if the array is not contiguous."""
    if not array.flags.c_contiguous:
        raise ValueError(f"an array of shape {array.shape} is not contiguous")
    return array.reshape(*array.shape[:2], -1).view(np.uint8)


def _facts(data: NDArray[np.uint8] | bytes) -> FileFacts:
    digest = hashlib.sha256(data)  # type: ignore[arg-type]  # arrays are buffers for mypy from 3.12 on
    return {"size": len(data), "sha256": digest.hexdigest()}


def _verified(folder: Path, name: str, listing: Mapping[str, FileFacts]) -> NDArray[np.uint8]:
    """Return the bytes of a file. Raises RecordError if `DONE` does not list it with this content."""
    file = folder / REPLAY_FOLDER / name
    if (expected := listing.get(f"{REPLAY_FOLDER}/{name}")) is None:
        raise RecordError(
            f"`{folder}` holds no `{REPLAY_FOLDER}/{name}`", hint="it was written without its replay memory"
        )
    try:
        data = read_regular(file)
    except OSError as error:
        raise failure("read", file, error) from error
    if _facts(data) != expected:
        raise RecordError(f"`{file}` is damaged: its size or checksum has changed", hint="use another checkpoint")
    return np.frombuffer(data, np.uint8)


def _check_layout(folder: Path, manifest: Manifest, memory: _Memory) -> None:
    """Raise RecordError if the rows of the memory have another layout."""
    hint = "resume with the collectors, environments and observations of that run, or start a new one"
    if len(manifest.written) != memory.sources:
        counts = f"{len(manifest.written)} collectors; this run has {memory.sources}"
        raise RecordError(f"`{folder / REPLAY_FOLDER}` holds the rows of {counts}", hint=hint)
    for name in sorted(manifest.fields.keys() | memory.fields.keys()):
        theirs, ours = manifest.fields.get(name), memory.fields.get(name)
        if theirs != ours:
            raise RecordError(
                f"`{folder / REPLAY_FOLDER}` holds `{name}` as {_described(theirs)}; this run has {_described(ours)}",
                hint=hint,
            )


def _described(field: ArrayField | None) -> str:
    """Return "float32 [8, 4]": the dtype and the shape [B, ...]."""
    return f"{field['dtype']} {field['shape']}" if field else "nothing"


def _check_pieces(folder: Path, manifest: Manifest) -> None:
    """Raise RecordError if the files are not those of exactly the rows that there should be: no gap, no row twice."""
    ends: dict[int, int] = {}
    for piece in sorted(manifest.files, key=lambda piece: (piece["source"], piece["first"])):
        source, first = piece["source"], piece["first"]
        expected = ends.get(source)
        oldest = max(0, manifest.written[source] - manifest.kept) if source < len(manifest.written) else -1
        if piece["end"] <= first or (first > oldest if expected is None else first != expected):
            raise RecordError(f"`{folder / REPLAY_FOLDER / MANIFEST}`: row {first} of source {source} is out of order")
        ends[source] = piece["end"]
        if piece["name"] != _name(source, first, piece["end"]):  # it could lead elsewhere
            raise RecordError(f"`{folder / REPLAY_FOLDER / MANIFEST}`: {piece['name']!r} is not the file of its rows")
    for source, written in enumerate(manifest.written):
        if ends.get(source, 0) != written and manifest.kept:
            raise RecordError(
                f"`{folder / REPLAY_FOLDER / MANIFEST}` lists no file up to row {written} of source {source}"
            )
