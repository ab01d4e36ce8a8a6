"""Snapshots, which are read-only, and the storage of one round."""

from __future__ import annotations

import numpy as np
import pytest
from small_workers import blueprint_of

from hive.compat.pytorchrl import CollectorThread, CWorkerSet
from hive.compat.pytorchrl.g_worker import RoundStorage
from hive.compat.pytorchrl.weights import Snapshot, snapshot_of


def test_a_snapshot_cannot_be_written() -> None:
    flat = blueprint_of().flat
    block = np.zeros(flat.block_bytes, np.uint8)
    block[: flat.parameter_bytes].view(np.float32)[:] = 1.0
    named = {name: array.copy() for name, array in flat.arrays(block).items()}
    for snapshot in (snapshot_of(named, flat, 3), snapshot_of({"version": 3, "weights": named}, flat, 0)):
        named[next(iter(named))][...] = 9.0
        assert snapshot.version == 3
        values = {float(value) for array in flat.arrays(snapshot.block).values() for value in array.flat}
        assert values == {1.0}
        with pytest.raises(ValueError, match="read-only"):
            snapshot.block[0] = 1
        named[next(iter(named))][...] = 1.0
    assert snapshot_of(snapshot, flat, 7) is snapshot


def test_a_snapshot_is_a_copy() -> None:
    block = np.ones(64, np.uint8)
    snapshot = Snapshot.of(2, block)
    block[:] = 5
    assert (snapshot.version, set(snapshot.block.tolist())) == (2, {1})


def test_the_storage_holds_one_round() -> None:
    workers = CWorkerSet(blueprint_of(), 2)
    task = CollectorThread(0, workers.local_worker(), workers.remote_workers(), col_execution="Parallel")
    one, other = task.get(), task.get()
    task.stop()
    storage = RoundStorage()
    assert (storage.left, storage.samples) == (0, 0)
    storage.insert(one, 4)
    assert (storage.rollouts, storage.left, storage.samples) == (one, 4, 32)
    storage.insert(other[:1], 1)
    assert (storage.rollouts, storage.left, storage.samples) == (other[:1], 1, 16)
