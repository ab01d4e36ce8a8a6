"""Files of transitions: what is read of other programs' files, and what is refused, all of it in one error."""

from __future__ import annotations

import io
import os
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hive.errors import RecordError
from hive.free_memory import FreeMemory
from hive.records import transitions
from hive.records.transition_axes import Axes
from hive.records.transitions import parts_of, read_transitions, write_transitions


def fields(count: int = 6) -> dict[str, Any]:
    numbers = np.arange(count)
    return {
        "observations": numbers[:, None] + np.zeros(3, np.float32),
        "actions": numbers % 2,
        "rewards": numbers.astype(np.float64),
        "next_observations": numbers[:, None] + np.ones(3, np.float32),
        "terminated": numbers == 2,
        "truncated": numbers == 4,
    }


def saved(folder: Path, arrays: dict[str, Any]) -> Path:
    np.savez(folder / "t.npz", **arrays)
    return folder / "t.npz"


def refused(folder: Path, arrays: dict[str, Any]) -> str:
    with pytest.raises(RecordError) as caught:
        read_transitions(saved(folder, arrays))
    return str(caught.value)


def test_what_is_written_is_read_with_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        write_transitions(tmp_path / name, fields())
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]
    found, unread, _ = read_transitions(tmp_path / "a.npz")
    assert unread == []
    for name, array in fields().items():
        np.testing.assert_array_equal(found[name], array)
    assert (found["rewards"].dtype, found["terminated"].dtype) == (np.float32, np.uint8)


def test_a_file_of_d4rl(tmp_path: Path) -> None:
    given = fields()
    given["terminals"], given["timeouts"] = given.pop("terminated"), given.pop("truncated")
    found, unread, _ = read_transitions(saved(tmp_path, {**given, "infos/qpos": np.zeros(6)}))
    assert found["terminated"].tolist() == [0, 0, 1, 0, 0, 0]
    assert found["truncated"].tolist() == [0, 0, 0, 0, 1, 0]
    assert unread == ["infos/qpos"]


def test_a_replay_buffer_of_stable_baselines3(tmp_path: Path) -> None:
    given = fields(12)
    del given["terminated"], given["truncated"]
    dones, timeouts = np.zeros((6, 2), np.float32), np.zeros((6, 2), np.float32)
    dones[2, 0] = dones[3, 1] = timeouts[3, 1] = 1
    arrays = {name: array.reshape(6, 2, *array.shape[1:]) for name, array in given.items()}
    arrays["actions"] = arrays["actions"][..., None]
    found, *_ = read_transitions(saved(tmp_path, {**arrays, "dones": dones, "timeouts": timeouts}))
    assert found["observations"].shape == (12, 3)
    assert np.flatnonzero(found["terminated"]).tolist() == [4]
    assert np.flatnonzero(found["truncated"]).tolist() == [7]
    assert found["environments"].tolist() == [0, 1] * 6


def test_all_faults_are_in_one_error(tmp_path: Path) -> None:
    given = fields()
    del given["terminated"], given["next_observations"], given["truncated"], given["actions"]
    text = refused(tmp_path, {**given, "dones": np.zeros(6)})
    for part in (
        "`actions` is missing",
        "`terminated` is missing: `dones` does not say",
        "`next_observations` is missing",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"actions": np.zeros(5)}, r"`actions` has the shape [5], `rewards` has [6]"),
        ({"rewards": np.array([0, 1, np.nan, 3, np.nan, 5])}, "`rewards` has nan in row 2 (2 such), expected finite"),
        ({"rewards": np.full(6, 1e39)}, "expected finite numbers of float32"),
        ({"terminated": np.full(6, 2)}, "`terminated` has 2 in row 0 (6 such), expected 0 or 1"),
        ({"episodes": np.full(6, 0.5)}, "expected whole numbers"),
        ({"rewards": np.zeros((6, 1, 1))}, "expected [N], or [T, B]"),
        ({"terminals": np.zeros(6)}, "are one array"),
        ({name: array[:0] for name, array in fields().items()}, "there are none"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    assert told in refused(tmp_path, {**fields(), **changes})


def test_objects_and_other_files_are_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", **{**fields(), "observations": np.array([{}] * 6)}, allow_pickle=True)
    with pytest.raises(RecordError, match="is not a file of arrays: Object arrays"):
        read_transitions(tmp_path / "t.npz")
    (tmp_path / "no.npz").write_bytes(b"PK no")
    with pytest.raises(RecordError, match="is not a file of arrays"):
        read_transitions(tmp_path / "no.npz")
    with pytest.raises(RecordError, match="no such file"):
        read_transitions(tmp_path / "none.npz")


@pytest.mark.parametrize("compresses", [True, False])
def test_damaged_files_are_refused(tmp_path: Path, compresses: bool) -> None:
    """By an error of hive's, whichever of its bytes are damaged."""
    (np.savez_compressed if compresses else np.savez)(tmp_path / "t.npz", **fields())  # type: ignore[arg-type]
    whole, chance, refusals = (tmp_path / "t.npz").read_bytes(), random.Random(1), 0
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 2, 8])):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        (tmp_path / "t.npz").write_bytes(damaged)
        try:
            read_transitions(tmp_path / "t.npz")
        except RecordError:
            refusals += 1
    assert refusals > 50


def claiming(file: Path, shape: tuple[int, ...], dtype: str = "<f4") -> Path:
    """Write an array without content, whose header claims one."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("rewards.npy", header.getvalue())
    return file


@pytest.mark.parametrize("shape", [(10**9,), (10**13,), (2**32, 2**32), (-1,), (10**4000,)], ids=range(5))
def test_a_header_that_claims_more_than_its_member_has_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(RecordError, match=r"t\.npz` is not a file of arrays"):
        read_transitions(claiming(tmp_path / "t.npz", shape))


def test_more_than_the_free_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions, "free_memory", lambda: FreeMemory(100))
    with pytest.raises(RecordError, match="do not fit into memory: 100 bytes are free"):
        read_transitions(saved(tmp_path, fields()))


def test_encrypted_and_oddly_compressed_members_pipes_and_links_to_devices_are_refused(tmp_path: Path) -> None:
    whole = bytearray(saved(tmp_path, fields()).read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := whole.find(signature, at + 1)) >= 0:
            whole[at + flags] |= 1  # encrypted
    (tmp_path / "locked.npz").write_bytes(whole)
    with zipfile.ZipFile(tmp_path / "odd.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("rewards.npy", bytes(1000))
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "device.npz").symlink_to("/dev/zero")
    for name, cause in {"locked": "encrypted", "odd": "compressed", "pipe": "a pipe", "device": "a device"}.items():
        with pytest.raises(RecordError, match=cause):
            read_transitions(tmp_path / f"{name}.npz")


def test_parts_have_the_names_of_their_keys() -> None:
    arrays = {"observations.b": np.zeros(1), "observations.a.c": np.ones(1), "observationsx": np.zeros(2)}
    assert list(parts_of(arrays, "observations")) == ["a.c", "b"]


def walks(steps: int = 40, count: int = 4) -> dict[str, NDArray[Any]]:
    """Random walks [T, B] whose episodes a limit of 8 steps interrupts, without the last observation of each."""
    rng = np.random.default_rng(1)
    seen = rng.normal(0, 5, (1, count, 1)) + rng.normal(0, 0.1, (steps + 1, count, 1)).cumsum(0)
    seen = seen.astype(np.float32)
    ends = np.tile((np.arange(1, steps + 1) % 8 == 0)[:, None], (1, count))
    given = {"observations": seen[:-1], "next_observations": seen[1:], "actions": np.zeros((steps, count), int)}
    return {**given, "rewards": ends * 1.0, "terminated": ends & False, "truncated": ends}


def test_arrays_of_environments_by_steps_are_recognised(tmp_path: Path) -> None:
    """By next observations they are certain; by observations and ends alone they are told."""
    right = walks()
    other = _swapped(right)
    expected = read_transitions(saved(tmp_path, right))
    found = read_transitions(saved(tmp_path, other))
    assert (expected.axes, found.axes) == (Axes.EXPECTED, Axes.SWAPPED)
    for name, array in expected.fields.items():
        assert np.array_equal(array, found.fields[name]), name
    for arrays, axes in ((right, Axes.EXPECTED), (other, Axes.PROBABLY_SWAPPED)):
        without = {name: array for name, array in arrays.items() if name != "next_observations"}
        assert read_transitions(saved(tmp_path, without)).axes is axes
    noise = np.random.default_rng(2).normal(size=right["observations"].shape)
    for changed in ({"observations": noise, "next_observations": noise}, {"observations": noise * 0}):
        assert read_transitions(saved(tmp_path, {**other, **_swapped(changed)})).axes is Axes.EXPECTED


def _swapped(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: array.swapaxes(0, 1) for name, array in arrays.items()}
