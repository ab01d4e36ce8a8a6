"""Collection workers: rollouts of their own, seeds of their own, weights in one piece."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from small_trainer import config_of, same_bytes

from hive.errors import ConfigError, NetworkError, TopologyError
from hive.networks import aligned_block
from hive.workers import Blueprint, CWorker, CWorkerSet, Snapshot
from hive.workers.c_worker import snapshot_of


def blueprint_of(env: str = "Drift", **values: Any) -> Blueprint:
    return Blueprint(config_of(f"small_environments:{env}", **values))


def filled(blueprint: Blueprint, value: float, version: int) -> Snapshot:
    block = aligned_block(blueprint.flat.block_bytes)
    block[: blueprint.flat.parameter_bytes].view(np.float32)[:] = value
    return Snapshot(version, block)


def test_a_rollout_lies_in_memory_of_its_own() -> None:
    worker = CWorker(blueprint_of(), 1, 2)
    first = worker.collect_data()
    before = {name: array.copy() for name, array in first.data.items()}
    second = worker.collect_data()
    assert same_bytes(first.data, before)
    assert (first.seq, second.seq, first.n_samples, first.steps) == (0, 1, 16, 8)
    assert (first.worker_id, first.version_collected) == (2 * 1024 + 1, 0)
    assert first.seconds > 0
    worker.stop()


def test_it_is_the_collector_of_a_run() -> None:
    """The same bytes for the same source, number and weights."""
    blueprint = blueprint_of()
    worker, collector = CWorker(blueprint), blueprint.collector(0)
    collector.reset()
    arrays = blueprint.rollout_layout.views(aligned_block(blueprint.rollout_layout.bytes))
    for number in range(3):
        collector.collect(arrays, sequence=number, version=0)
        made = worker.collect_data().data
        assert np.array_equal(made["rewards"], arrays["rewards"])
        assert np.array_equal(made["observations"], arrays["observations"])
    worker.stop()
    collector.close()


def test_weights_act_from_the_next_rollout_on() -> None:
    """The same rollout of the same seed, but for the policy."""
    blueprint = blueprint_of()
    one, other = CWorker(blueprint), CWorker(blueprint)
    own = blueprint.flat.arrays(one.get_weights().block)
    assert np.array_equal(one.collect_data().data["actions"], other.collect_data().data["actions"])
    one.set_weights({"version": 7, "weights": {name: torch.from_numpy(30 * array) for name, array in own.items()}})
    rollout = one.collect_data()
    assert rollout.version_collected == one.actor_version == 7
    assert not np.array_equal(rollout.data["actions"], other.collect_data().data["actions"])
    one.stop()
    other.stop()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop(next(iter(w))), "these are not the weights of this network"),
        (lambda w: w.update(extra=torch.zeros(1)), "these are not the weights of this network"),
        (lambda w: w.update({next(iter(w)): torch.zeros(3)}), r"is float32 \[3\], this network has"),
    ],
)
def test_weights_of_another_network_are_refused(change: Any, message: str) -> None:
    worker = CWorker(blueprint_of())
    weights = {n: torch.from_numpy(a) for n, a in worker.blueprint.flat.arrays(worker.get_weights().block).items()}
    change(weights)
    with pytest.raises(NetworkError, match=message):
        worker.set_weights(weights)
    assert worker.actor_version == 0


def test_a_snapshot_cannot_be_written() -> None:
    blueprint = blueprint_of()
    given = {name: array.copy() for name, array in blueprint.flat.arrays(filled(blueprint, 1.0, 0).block).items()}
    snapshot = snapshot_of(given, blueprint, 3)
    given[next(iter(given))][...] = 9.0
    assert snapshot.version == 3
    assert set(np.unique(snapshot.block[: blueprint.flat.parameter_bytes].view(np.float32))) <= {0.0, 1.0}
    with pytest.raises(ValueError, match="read-only"):
        snapshot.block[0] = 1


def test_environments_are_made_when_they_are_needed() -> None:
    worker = CWorker(blueprint_of())
    assert worker._collector is None
    worker.stop()
    worker.stop()
    with pytest.raises(RuntimeError, match="has been stopped"):
        worker.collect_data()


def test_a_set() -> None:
    with pytest.raises(TopologyError, match="num_workers"):
        CWorkerSet(blueprint_of(), -1)
    with pytest.raises(TopologyError, match="col_fraction_samples"):
        CWorkerSet(blueprint_of(), 1, col_fraction_samples=1.5)
    made = CWorkerSet.create_factory(blueprint_of(), 2, 0.3)("cpu", None, 4)
    assert [w.source for w in (made.local_worker(), *made.remote_workers())] == [4096, 4097, 4098]
    assert made.quota == 3
    with pytest.raises(TopologyError, match="cuda"):
        CWorkerSet.create_factory(blueprint_of())("cuda:0", None, 0)
    with pytest.raises(ConfigError):
        made.local_worker().update_algorithm_parameter("discount", 2.0)
    made.stop()


def test_a_writer_beside_it_never_tears_what_it_reads() -> None:
    blueprint = blueprint_of()
    worker, over = CWorker(blueprint), threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            worker.set_weights(filled(blueprint, float(number), number))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(500):
            seen = worker.get_weights()
            values = seen.block[: blueprint.flat.parameter_bytes].view(np.float32)
            assert seen.version == 0 or (values == float(seen.version)).all()
    finally:
        over.set()
        writer.join()
    worker.stop()
