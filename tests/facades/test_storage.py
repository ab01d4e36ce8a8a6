from __future__ import annotations

from small_trainer import config_of

from hive.workers import Blueprint, CWorker
from hive.workers.storage import RoundStorage


def test_it_holds_one_round() -> None:
    worker = CWorker(Blueprint(config_of("small_environments:Drift")))
    rollouts = [worker.collect_data() for _ in range(3)]
    storage = RoundStorage()
    assert (storage.left, storage.samples) == (0, 0)
    storage.insert(rollouts[:2], 4)
    assert (storage.rollouts, storage.left, storage.samples) == (rollouts[:2], 4, 32)
    storage.insert(rollouts[2:], 1)
    assert (storage.rollouts, storage.left, storage.samples) == (rollouts[2:], 1, 16)
    worker.stop()
