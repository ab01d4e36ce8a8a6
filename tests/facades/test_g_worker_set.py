"""Several gradient workers in threads: equal to one, equal to each other, and over when they are told."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from small_trainer import config_of

from hive.errors import ConfigError, TopologyError
from hive.workers import Blueprint, CWorkerSet, GWorker, GWorkerSet


def set_of(
    workers: int, env: str = "Drift", collectors: int = 0, compress: bool | str = False, **values: Any
) -> GWorkerSet:
    blueprint = Blueprint(config_of(f"small_environments:{env}", **values))
    factory = CWorkerSet.create_factory(blueprint, collectors)
    execution = "Parallel" if collectors else "Central"
    made = GWorkerSet.create_factory(workers, factory, col_execution=execution, compress_grads_to_send=compress)
    return made("cpu", 0)


def weights(made: GWorkerSet) -> set[bytes]:
    """Of the local worker and all others: one element where they agree."""
    return {worker.get_weights().block.tobytes() for worker in (made.local_worker(), *made.remote_workers())}


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize(("workers", "collectors"), [(0, 0), (1, 0), (2, 0), (2, 2), (4, 0)])
def test_everybody_has_the_same_weights_after_every_update(workers: int, collectors: int, distributed: bool) -> None:
    with set_of(workers, collectors=collectors) as made:
        for number in range(5):
            infos = made.step(distribute_gradients=distributed)
            assert len(infos) == max(workers, 1)
            assert len(weights(made)) == 1
            assert made.actor_version == number + 1


def test_distributed_or_not_the_bytes_are_the_same_every_time() -> None:
    ends = []
    for distributed in (False, True, False, True):
        with set_of(3) as made:
            for _ in range(10):
                made.step(distributed)
            ends.append(weights(made))
    assert ends.count(ends[0]) == 4


def test_an_update_is_the_mean_by_samples() -> None:
    with set_of(3) as made:
        parts = [grads for grads, _ in made.get_grads()]
        total = sum(part.n_samples for part in parts)
        mean = [sum(part[i] * (part.n_samples / total) for part in parts) for i in range(len(parts[0]))]
        made.local_worker().apply_gradients(parts)
        with GWorker(0, CWorkerSet.create_factory(made.local_worker().local_worker.blueprint)) as alone:
            alone.apply_gradients(mean)
            one, other = (w.get_weights().block.view(np.uint8) for w in (made.local_worker(), alone))
            size = alone.local_worker.blueprint.flat.parameter_bytes
            np.testing.assert_allclose(one[:size].view(np.float32), other[:size].view(np.float32), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize("compress", [False, "bf16", "top-k"])
def test_it_learns(distributed: bool, compress: bool | str) -> None:
    """Guessing earns 0.5."""
    values = {"collection__envs": 8, "algorithm__learning_rate": 0.01}
    returns: list[float] = []
    with set_of(2, "Bandit", compress=compress, **values) as made:
        for _ in range(120):
            for info in made.step(distributed):
                returns += info["Episodes"]["TrainReward"]
        assert len(weights(made)) == 1
    assert np.mean(returns[-100:]) >= 0.95


@pytest.mark.parametrize("scheme", ["a2c", "ppo"])
def test_each_normalises_by_itself_however_many_a_run_of_that_config_had(scheme: str) -> None:
    """A worker here has its own collectors, and its round is nobody else's."""
    options = {"run__scheme": f'"{scheme}"', "algorithm__normalize_advantages": "true"}
    found = []
    for several in (1, 2):
        with set_of(2, gradients__workers=several, **options) as made:
            samples = [[info["NumberSamples"] for info in made.step()] for _ in range(3)]
            assert samples[0] == [16, 16]
            found.append((samples, made.actor_version, weights(made)))
    assert found[0] == found[1]


@pytest.mark.parametrize("distributed", [False, True])
def test_what_all_have_seen_is_merged(distributed: bool) -> None:
    """Observations are normalised by the same numbers everywhere, and each is counted once."""
    with set_of(2, network__normalize_observations="true") as made:
        seen = sum(info["NumberSamples"] for _ in range(6) for info in made.step(distributed))
        assert len(weights(made)) == 1
        flat = made.local_worker().worker.flat
        assert flat.buffer_arrays(flat.block)["normalizer.seen"][0] == seen > 0


def test_workers_collect_different_things() -> None:
    with set_of(3, collectors=2) as made:
        made.get_grads()
        sources = [one.worker_id for worker in made.remote_workers() for one in worker.storage.rollouts]
        assert len(set(sources)) == 6


def test_what_one_raises_is_raised_and_nobody_waits() -> None:
    with set_of(2) as made:
        made.step(distribute_gradients=True)
        made.remote_workers()[1].col_workers.stop()
        with pytest.raises(RuntimeError, match="has been stopped"):
            made.step(distribute_gradients=True)


def test_a_parameter_changes_for_all() -> None:
    with set_of(2) as made:
        made.update_algorithm_parameter("discount", 0.5)
        everybody = (made.local_worker(), *made.remote_workers())
        assert {worker.algo.config.discount for worker in everybody} == {0.5}  # type: ignore[attr-defined]
        with pytest.raises(ConfigError):
            made.update_algorithm_parameter("discount", 1.5)
        assert {worker.learner.config.discount for worker in everybody} == {0.5}


def test_what_does_not_go_together_is_refused() -> None:
    with set_of(2) as made:
        made.step()
        with pytest.raises(TopologyError, match="all distributed, or none"):
            made.step(distribute_gradients=True)
        factory = made.worker_params["col_workers_factory"]
    for arguments in ((-1, 0, "cpu", "Central"), (1, 0, "cuda", "Central"), (1, 0, "cpu", "Parallel")):
        with pytest.raises(TopologyError):
            GWorkerSet(*arguments, "synchronous", factory, 1.0, {})  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="grad_worker_resources has no `gpus`"):
        GWorkerSet(1, 0, "cpu", "Central", "synchronous", factory, 1.0, {"gpus": 1})  # type: ignore[arg-type]


def test_no_thread_is_left() -> None:
    before = threading.active_count()
    made = set_of(2, collectors=2)
    made.step()
    assert threading.active_count() > before
    made.stop()
    made.stop()
    assert threading.active_count() == before
