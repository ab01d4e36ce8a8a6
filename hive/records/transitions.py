"""Files of transitions: an `.npz` of arrays with plain names, which NumPy alone reads and writes. No file has objects.

    observations        [N, ...]    as the environment returns them; of a dictionary `observations.KEY`
    actions             [N, ...]    as the environment takes them; of a dictionary `actions.KEY`
    rewards             [N]
    terminated          [N]         bool: the episode ended, and no reward follows
    truncated           [N]         bool: the episode was interrupted in this step
    next_observations   [N, ...]    the observation after the step
    environments        [N]         optional, whole numbers: each number is a sequence of steps of its own
    episodes            [N]         optional, whole numbers: steps of different numbers do not follow each other

Rows are in the order of time. A row continues the last row of its environment if that did not end an episode and its
next observation is the row's observation. Without `environments` all rows are of one. Arrays may have two leading axes
instead, [T, B, ...]: T steps of B environments, as the replay buffer of Stable-Baselines3 has them. Arrays [B, T, ...]
are read too where next observations show that they are (hive.records.transition_axes).

Other programs' names (ALIASES) are read too. `dones` of Stable-Baselines3 include interruptions, which `timeouts` tells
apart. Other names are not read.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hive.errors import RecordError
from hive.free_memory import free_memory
from hive.records.atomic import atomic_file
from hive.records.documents import failure
from hive.records.regular import open_regular
from hive.records.transition_axes import Axes, axes_of, swapped

Fields = dict[str, NDArray[Any]]
"""Arrays [N, ...] by the names above."""

ARRAY_SUFFIX = ".npy"
DEFLATED = 1040  # the most bytes that one byte of deflate stands for (1,032), and a few for short arrays

OBSERVATIONS, NEXT, ACTIONS = "observations", "next_observations", "actions"
REWARDS, TERMINATED, TRUNCATED = "rewards", "terminated", "truncated"
ENVIRONMENTS, EPISODES = "environments", "episodes"

WHOLE = (REWARDS, TERMINATED, TRUNCATED, ENVIRONMENTS, EPISODES)
"""Names of arrays with one number for each step."""
PARTED = (OBSERVATIONS, NEXT, ACTIONS)
"""Names of arrays that may have parts, `observations.KEY`."""

DONES = "dones"
ALIASES = {
    "obs": OBSERVATIONS,
    "next_obs": NEXT,
    "action": ACTIONS,
    "reward": REWARDS,
    "terminals": TERMINATED,  # D4RL
    "terminations": TERMINATED,  # Minari
    "timeouts": TRUNCATED,  # D4RL, Stable-Baselines3
    "truncations": TRUNCATED,  # Minari
    "episode_ids": EPISODES,
}
"""Name in the files of other programs -> the name here."""


class TransitionsFile(NamedTuple):
    """Arrays with one leading axis, by the names of the module; names that are not read; and what its axes were."""

    fields: Fields
    unread: list[str]
    axes: Axes = Axes.EXPECTED


def read_transitions(path: Path) -> TransitionsFile:
    """Return the transitions of a file.

    Raises RecordError, which names all faults, for a file that cannot be read and for arrays whose names or lengths do
    not fit each other.
    """
    found: Fields = {}
    unread: list[str] = []
    faults: list[str] = []
    try:
        with open_regular(path.resolve()) as file, zipfile.ZipFile(file) as archive:
            free = free_memory()
            left = free.usable
            for member in archive.infolist():
                name = member.filename.removesuffix(ARRAY_SUFFIX)
                if (known := known_name(name)) is None:
                    unread.append(name)
                elif known in found:
                    faults.append(f"`{known}` and `{name}` are one array")
                else:
                    left -= member.file_size
                    if left < 0:
                        raise MemoryError(f"{free} are free")
                    found[known] = _array(archive, member)
    except OSError as error:
        raise failure("read", path, error) from error
    except MemoryError as error:
        raise RecordError(
            f"the arrays of `{path}` do not fit into memory: {error}",
            hint="its header may be damaged; else copy fewer steps into a smaller file",
        ) from None
    except Exception as error:  # zipfile, zlib and NumPy's parser raise nearly anything for damaged bytes
        raise RecordError(
            f"`{path}` is not a file of arrays: {error}",
            hint="write it with np.savez(file, observations=..., actions=..., ...), without arrays of objects",
        ) from None
    axes = [Axes.EXPECTED]
    faults += _completed(found) or _lengths_fitted(found, axes)
    if faults:
        raise transitions_refused(str(path), faults)
    return TransitionsFile(found, unread, axes[-1])


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Return an array of an archive. Raises ValueError if it would have more bytes than the member."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"`{member.filename}` is compressed in a way that NumPy does not use")
    if member.file_size > DEFLATED * (member.compress_size + 1):
        raise ValueError(f"`{member.filename}` has {member.compress_size:,} bytes, too few for {member.file_size:,}")
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(stream)
    if any(length < 0 for length in shape) or prod(shape) * dtype.itemsize > member.file_size:
        raise ValueError(f"`{member.filename}` has the shape {list(shape)}, and {member.file_size:,} bytes")
    with archive.open(member) as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream)
    return array


def write_transitions(path: Path, fields: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays [N, ...] by the names of the module. The file appears completely or not at all. Raises RecordError.

    Not compressed, so that a memory of gigabytes is written as fast as the disk takes it.
    """
    with (
        atomic_file(path) as unfinished,
        zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
    ):
        for name, array in fields.items():
            # A fixed date: the same transitions are the same bytes.
            member = zipfile.ZipInfo(f"{name}{ARRAY_SUFFIX}", (1980, 1, 1, 0, 0, 0))
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.ascontiguousarray(array))


def transitions_refused(place: str, faults: list[str]) -> RecordError:
    """Return the error about transitions of a file or a run that has these faults."""
    return RecordError(
        f"the transitions of `{place}` do not fit: {'; '.join(faults)}",
        hint="the page on data of the guide describes the arrays (examples/guide/data.md)",
    )


def known_name(name: str) -> str | None:
    """Return the name in this module of an array in a file; None if it is not read."""
    first, dot, rest = name.partition(".")
    if dot:
        first = ALIASES.get(first, first)
        return f"{first}.{rest}" if first in PARTED and rest else None
    name = ALIASES.get(name, name)
    return name if name in (*WHOLE, *PARTED, DONES) else None


def parts_of(fields: Mapping[str, NDArray[Any]], name: str) -> Fields:
    """Return the arrays of `name`: {"": array}, or those of its parts by their keys; {} if there is none."""
    found = {key.removeprefix(name).removeprefix("."): array for key, array in fields.items() if _is_of(key, name)}
    return dict(sorted(found.items()))


def _is_of(key: str, name: str) -> bool:
    return key == name or key.startswith(f"{name}.")


def _completed(fields: Fields) -> list[str]:
    """Put `terminated` and `truncated` in the place of `dones`; return what is missing."""
    faults = []
    for name in (OBSERVATIONS, ACTIONS, REWARDS):
        if not parts_of(fields, name):
            faults.append(f"`{name}` is missing")
    dones = fields.pop(DONES, None)
    if dones is not None and TERMINATED not in fields and TRUNCATED in fields:
        truncated = fields[TRUNCATED]
        if dones.shape == truncated.shape:
            fields[TERMINATED] = (dones != 0) & (truncated == 0)
        else:
            faults.append(f"`{DONES}` has the shape {list(dones.shape)}, `{TRUNCATED}` has {list(truncated.shape)}")
    elif TERMINATED not in fields:
        also = f": `{DONES}` does not say which episodes were only interrupted, `timeouts` would"
        faults.append(f"`{TERMINATED}` is missing{also if dones is not None else ''}")
    if not parts_of(fields, NEXT) and TRUNCATED not in fields and EPISODES not in fields:
        faults.append(f"`{NEXT}` is missing; without it, `{TRUNCATED}` or `{EPISODES}` must say where sequences end")
    return faults


def _lengths_fitted(fields: Fields, axes: list[Axes]) -> list[str]:
    """Give all arrays one leading axis; return what does not fit. axes: gets what two leading axes were."""
    rewards = fields[REWARDS]
    if rewards.ndim not in (1, 2):
        return [f"`{REWARDS}` has the shape {list(rewards.shape)}, expected [N], or [T, B] of B environments"]
    leading = rewards.shape
    faults = []
    for name, array in fields.items():
        if array.shape[: len(leading)] != leading or (name in WHOLE and array.ndim != len(leading)):
            faults.append(f"`{name}` has the shape {list(array.shape)}, `{REWARDS}` has {list(leading)}")
    if not faults and not rewards.size:
        faults.append("there are none")
    if faults:
        return faults
    if len(leading) == 2:
        axes.append(_axes_of(fields))
        if axes[-1] is Axes.SWAPPED:
            fields.update(swapped(fields))
            leading = leading[::-1]
        rows = leading[0] * leading[1]
        for name, array in fields.items():
            fields[name] = array.reshape(rows, *array.shape[2:])
        if leading[1] > 1 and ENVIRONMENTS not in fields:
            fields[ENVIRONMENTS] = np.tile(np.arange(leading[1]), leading[0])
    return _numbers_checked(fields)


def _axes_of(fields: Fields) -> Axes:
    """Judge the two leading axes by the largest array of observations."""
    name, seen = max(parts_of(fields, OBSERVATIONS).items(), key=lambda one: one[1].nbytes)
    ended = np.zeros(seen.shape[:2], bool)
    for flag in (TERMINATED, TRUNCATED):
        if flag in fields:
            ended |= fields[flag] != 0
    if EPISODES in fields:
        ended[:-1] |= fields[EPISODES][:-1] != fields[EPISODES][1:]
    return axes_of(seen, parts_of(fields, NEXT).get(name), ended)


def _numbers_checked(fields: Fields) -> list[str]:
    """Convert the arrays of single numbers; return which have other values than they may."""
    faults = []
    kinds: dict[str, tuple[Callable[[NDArray[Any]], NDArray[np.bool_]], type, str]] = {
        REWARDS: (_is_finite, np.float32, "finite numbers of float32"),
        **dict.fromkeys((TERMINATED, TRUNCATED), (_is_flag, np.uint8, "0 or 1")),
        **dict.fromkeys((ENVIRONMENTS, EPISODES), (_is_whole, np.int64, "whole numbers")),
    }
    for name, (is_right, dtype, expected) in kinds.items():
        if name not in fields:
            continue
        if fields[name].dtype.kind not in "biuf":
            faults.append(f"`{name}` has the dtype {fields[name].dtype}, expected {expected}")
            continue
        wrong = np.flatnonzero(~is_right(fields[name]))
        if len(wrong):
            faults.append(
                f"`{name}` has {fields[name][wrong[0]]} in row {wrong[0]:,} ({len(wrong):,} such), expected {expected}"
            )
        else:
            fields[name] = fields[name].astype(dtype)
    return faults


def _is_finite(array: NDArray[Any]) -> NDArray[np.bool_]:
    with np.errstate(over="ignore"):  # a number beyond 3.4e38 becomes infinite
        return np.isfinite(array.astype(np.float32))


def _is_flag(array: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isin(array, (0, 1))


def _is_whole(array: NDArray[Any]) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        whole: NDArray[np.bool_] = np.equal(array, np.rint(array)) & np.isfinite(array)
    return whole
