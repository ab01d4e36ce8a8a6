"""PyTorchRL's gradient workers as their page documents them: every name, signature and default; and the faults of the
code behind the page, shown absent.

SURFACE is the page, read by eye. `test_db_b<n>_...` is one fault each, by its number in our list of them. What differs
on purpose is in DIFFERENCES.
"""

from __future__ import annotations

import gc
import inspect
import os
import queue
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_trainer import config_of

import hive
from hive.compat import pytorchrl
from hive.compat.pytorchrl import CollectorThread, CWorker, CWorkerSet, GWorker, GWorkerSet, Snapshot
from hive.errors import ConfigError, EnvironmentFailed, HiveError, TopologyError
from hive.training import Blueprint

REQUIRED = inspect.Parameter.empty

SURFACE: dict[str, dict[str, dict[str, Any]]] = {
    "CollectorThread": {
        "__init__": {
            "index_worker": REQUIRED,
            "local_worker": REQUIRED,
            "remote_workers": REQUIRED,
            "col_fraction_workers": 1.0,
            "col_communication": "synchronous",
            "col_execution": "Central",
            "broadcast_interval": 1,
        },
        "broadcast_new_weights": {},
        "run": {},
        "should_broadcast": {},
        "step": {},
    },
    "GWorker": {
        "__init__": {
            "index_worker": REQUIRED,
            "col_workers_factory": REQUIRED,
            "col_communication": "synchronous",
            "compress_grads_to_send": False,
            "col_execution": "Central",
            "col_fraction_workers": 1.0,
            "initial_weights": None,
            "device": None,
        },
        "apply_gradients": {"gradients": None},
        "compute_gradients": {"batch": REQUIRED, "distribute_gradients": False},
        "get_data": {},
        "get_grads": {"distribute_gradients": False},
        "save_model": {"fname": REQUIRED},
        "set_weights": {"actor_weights": REQUIRED},
        "step": {"distribute_gradients": False},
        "stop": {},
        "update_algorithm_parameter": {"parameter_name": REQUIRED, "new_parameter_value": REQUIRED},
    },
    "GWorkerSet": {
        "__init__": {
            "num_workers": REQUIRED,
            "index_parent": REQUIRED,
            "local_device": REQUIRED,
            "col_execution": REQUIRED,
            "col_communication": REQUIRED,
            "col_workers_factory": REQUIRED,
            "col_fraction_workers": REQUIRED,
            "grad_worker_resources": REQUIRED,
            "compress_grads_to_send": False,
            "initial_weights": None,
        },
        "create_factory": {
            "num_workers": REQUIRED,
            "col_workers_factory": REQUIRED,
            "col_fraction_workers": 1.0,
            "col_execution": "Central",
            "col_communication": "synchronous",
            "compress_grads_to_send": False,
            "grad_worker_resources": {
                "memory": 5368709120,
                "num_cpus": 1,
                "num_gpus": 0.2,
                "object_store_memory": 2147483648,
            },
        },
    },
}
"""Class -> method -> parameter -> default, in the page's order."""

ATTRIBUTES: dict[str, dict[str, Any]] = {
    "CollectorThread": {
        "stopped": bool,
        "queue": queue.Queue,
        "index_worker": int,
        "local_worker": CWorker,
        "remote_workers": list,
        "num_workers": int,
        "broadcast_interval": int,
        "num_sent_since_broadcast": int,
    },
    "GWorker": {
        "index_worker": int,
        "iter": int,
        "col_communication": str,
        "compress_grads_to_send": bool,
        "col_workers": CWorkerSet,
        "local_worker": CWorker,
        "remote_workers": list,
        "actor": torch.nn.Module,
        "algo": object,
        "storage": object,
        "inqueue": queue.Queue,
        "collector": CollectorThread,
        "actor_version": int,
    },
    "GWorkerSet": {"worker_class": type, "remote_config": dict, "worker_params": dict, "num_workers": int},
}

DIFFERENCES = {
    "compute_gradients.distribute_gradients": "has a default",
    "GWorkerSet.initial_weights": "documented as a parameter, though missing in the page's signature",
    "CollectorThread.input_queue": "documented as a parameter, and none there either: the attribute is `queue`",
    "CollectorThread": "collects in the caller's thread if collection is synchronous; its `get` starts it otherwise",
    "GWorkerSet.remote_workers": "have the numbers of a run's gradient workers, from 0; the local one is beside them",
    "GWorker.save_model": "writes a safetensors checkpoint with the optimizer's state instead of a pickle",
    "ray": "remote collection workers are tasks of one thread; workers in processes are those of a run",
}


def factory_of(collectors: int = 0, env: str = "Drift", quota: float = 0.0, **values: Any) -> Callable[..., CWorkerSet]:
    return CWorkerSet.create_factory(Blueprint(config_of(f"small_environments:{env}", **values)), collectors, quota)


def worker_of(collectors: int = 0, communication: str = "synchronous", **values: Any) -> GWorker:
    options = {name: values.pop(name) for name in list(values) if "__" not in name and name not in ("env", "quota")}
    execution = "Parallel" if collectors else "Central"
    return GWorker(0, factory_of(collectors, **values), communication, col_execution=execution, **options)


def set_of(workers: int, **values: Any) -> GWorkerSet:
    return GWorkerSet(workers, 0, "cpu", "Central", "synchronous", factory_of(**values), 1.0, {})


# --- the page


@pytest.mark.parametrize(
    ("name", "method"), [(name, method) for name, methods in SURFACE.items() for method in methods]
)
def test_methods_have_the_documented_parameters_and_defaults(name: str, method: str) -> None:
    given = dict(inspect.signature(getattr(getattr(pytorchrl, name), method)).parameters)
    given.pop("self", None)
    documented = SURFACE[name][method]
    assert list(given)[: len(documented)] == list(documented)
    for parameter, default in documented.items():
        assert given[parameter].default == default, parameter
    assert all(given[more].default is not REQUIRED for more in list(given)[len(documented) :])


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_are_there_and_of_the_documented_types(name: str) -> None:
    with set_of(1) as many, worker_of(1) as worker:
        has: Any = {"GWorkerSet": many, "GWorker": worker, "CollectorThread": worker.collector}[name]
        for attribute, kind in ATTRIBUTES[name].items():
            assert isinstance(getattr(has, attribute), kind), attribute


def test_everything_documented_in_one_go(tmp_path: Path) -> None:
    with worker_of() as worker:
        grads, info = worker.step(distribute_gradients=False)
        assert all(isinstance(grad, torch.Tensor) for grad in grads)
        assert isinstance(info, dict)
        assert (worker.iter, worker.actor_version) == (1, 0)
        worker.apply_gradients(gradients=None)
        assert worker.actor_version == 1
        batch = worker.get_data()
        assert isinstance(batch, dict)
        worker.get_grads(distribute_gradients=False)
        worker.compute_gradients(batch, distribute_gradients=False)
        worker.set_weights(actor_weights={name: p.detach() for name, p in worker.actor.named_parameters()})
        worker.update_algorithm_parameter("entropy_weight", 0.5)
        saved = worker.save_model(fname=str(tmp_path / "model"))
        assert isinstance(saved, str)
        assert Path(saved).exists()
        worker.stop()
    make = GWorkerSet.create_factory(2, factory_of())
    with make("cpu", 0) as many:
        assert (many.num_workers, many.worker_class) == (2, GWorker)
        assert many.local_worker().index_worker == 0
        assert [one.index_worker for one in many.remote_workers()] == [0, 1]
        assert all(isinstance(one, many.worker_class) for one in many.remote_workers())


def test_the_collector_is_a_thread() -> None:
    with worker_of(2, "asynchronous") as worker:
        thread = worker.collector
        assert isinstance(thread, threading.Thread)
        assert thread.num_workers == 2
        assert not thread.stopped
        assert worker.inqueue.maxsize > 0
        thread.start()
        worker.step()
        assert thread.is_alive()
    assert thread.stopped
    assert not thread.is_alive()


def test_workers_of_a_set_collect_for_themselves() -> None:
    with set_of(2) as many:
        for one in many.remote_workers():
            grads, info = one.step()
            assert info["NumberSamples"] == 16
            one.apply_gradients(grads)
            assert (one.iter, one.actor_version) == (1, 1)


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: worker_of(device="cuda:0"),
        lambda: worker_of(communication="sometimes"),
        lambda: GWorker(0, factory_of(2)),
        lambda: GWorker(0, factory_of(), col_execution="Parallel"),
        lambda: worker_of(col_fraction_workers=0.0),
        lambda: worker_of(compress_grads_to_send="gzip"),
        lambda: GWorkerSet(1, 0, "cpu", "Central", "synchronous", factory_of(), 1.0, {"gpu": 1}),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(attempt: Callable[[], Any]) -> None:
    with pytest.raises(TopologyError) as caught:
        attempt()
    assert str(caught.value)


# --- its faults


def test_db_b1_every_gradient_worker_is_used() -> None:
    with set_of(3) as many:
        many.step()
        assert [worker.iter for worker in many.remote_workers()] == [1, 1, 1]
        assert many.local_worker().iter == 0


def test_db_b2_a_rollout_that_is_cut_short_ends_there() -> None:
    """Whether enough others are through is asked at every step, and ends the rollout, not an inner loop."""
    with worker_of(2, col_fraction_workers=0.5, quota=0.375) as worker:
        worker.get_data()
        assert [(one.steps, one.n_samples) for one in worker.storage.rollouts] == [(8, 16), (3, 6)]


def test_db_b3_the_fraction_of_workers_reaches_the_collectors() -> None:
    """Two of four are through: the others stop once they have a quarter of eight steps."""
    with worker_of(4, col_fraction_workers=0.5, quota=0.25) as worker:
        worker.get_data()
        assert [one.steps for one in worker.storage.rollouts] == [8, 8, 2, 2]


@pytest.mark.rotates
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8, 16, 64])
def test_db_b4_synchronous_round_never_deadlocks(workers: int) -> None:
    """One step is a whole round, so nothing piles up; ten rounds were the end of the original with two workers."""
    with worker_of(workers, collection__rollout=2, collection__envs=1) as worker:
        for number in range(12):
            worker.step()
            assert len(worker.storage.rollouts) == workers
            assert {one.seq for one in worker.storage.rollouts} == {number}
            assert worker.inqueue.qsize() == 0


def test_db_b5_distributed_gradients_are_averaged_over_gradient_workers() -> None:
    """The peers' update is by the mean of their gradients, not by the sum: many alike move weights as far as one."""
    values = {"algorithm__optimizer": '"sgd"', "algorithm__learning_rate": 1.0, "algorithm__clip_gradients": 0}
    moved = []
    for workers in (1, 4):
        with set_of(workers, env="OneState", **values) as many:
            local = many.local_worker()
            size = local.flat.parameter_bytes
            before = local.get_weights().block[:size].view(np.float32).copy()
            many.step(distribute_gradients=True)
            moved.append(float(np.linalg.norm(local.get_weights().block[:size].view(np.float32) - before)))
            assert [worker.iter for worker in many.remote_workers()] == [1] * workers
    assert moved[1] == pytest.approx(moved[0], rel=0.3)


def test_db_b6_resources_of_one_set_are_not_those_of_another() -> None:
    mine = {"num_cpus": 4}
    with GWorkerSet(0, 0, None, "Central", "synchronous", factory_of(), 1.0, mine) as one:
        assert one.remote_config["num_cpus"] == 4
        one.remote_config["num_cpus"] = 9
    with set_of(0) as other:
        assert other.remote_config["num_cpus"] == 1
    assert mine == {"num_cpus": 4}


def test_db_b7_version_and_weights_are_read_together_and_never_alias_live_ones() -> None:
    with worker_of(2, "asynchronous") as worker:
        for _ in range(20):
            worker.step()
            held = worker.get_weights()
            kept = held.block.tobytes()
            worker.apply_gradients()
            assert held.block.tobytes() == kept
        assert isinstance(held, Snapshot)
        assert not held.block.flags.writeable


def test_db_b7_asynchronous_collection_has_weights_of_its_own() -> None:
    """What is collected ahead is made with the weights of its version, whatever the worker has updated meanwhile."""
    with worker_of(0, "asynchronous") as worker:
        for _ in range(6):
            _, info = worker.step()
            assert info["PolicyLag"] == info["Version"]["Gradient"] - info["Version"]["Collection"]
            worker.apply_gradients()
        assert 0 <= info["PolicyLag"] <= 6


def test_db_b8_weights_are_broadcast_once_a_round_not_once_a_minibatch() -> None:
    values = {"algorithm__name": '"ppo"', "algorithm__epochs": 4, "algorithm__minibatches": 4}
    sent: list[int] = []
    with worker_of(2, **values) as worker:
        remote = worker.remote_workers[0]
        given = remote.set_weights
        remote.set_weights = lambda w: (sent.append(w.version), given(w))[1]  # type: ignore[method-assign, union-attr, func-returns-value]
        for _ in range(64):
            worker.step()
            worker.apply_gradients()
    assert sent == [0, 16, 32, 48]


def test_db_b9_only_the_launcher_of_hosts_knows_ray() -> None:
    files = Path(hive.__file__).parent.rglob("*.py")
    knowing = [path.name for path in files if re.search(r"^\s*(import|from) ray\b", path.read_text(), re.MULTILINE)]
    assert knowing == ["ray_launcher.py"]


@pytest.mark.parametrize("collectors", [0, 2])
@pytest.mark.parametrize("communication", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("begun", [False, True])
def test_db_b10_stop_ends_everything(collectors: int, communication: str, begun: bool) -> None:
    """Also of one that has not begun, and of one that has been stopped; the thread is joined."""
    gc.collect()
    before = threading.enumerate(), len(os.listdir("/proc/self/fd"))
    worker = worker_of(collectors, communication)
    if begun:
        worker.step()
    assert (threading.enumerate() == before[0]) == (not begun or communication == "synchronous")
    worker.stop()
    worker.stop()
    gc.collect()
    assert (threading.enumerate(), len(os.listdir("/proc/self/fd"))) == before
    assert worker.collector.stopped


def test_db_b18_what_a_step_tells_is_nobody_elses() -> None:
    with worker_of() as worker:
        first = worker.step()[1]
        told = {name: dict(part) if isinstance(part, dict) else part for name, part in first.items()}
        second = worker.step()[1]
        assert all(second[name] is not first[name] for name in ("Algorithm", "Version", "Time", "Episodes"))
        assert first == told


def test_db_b19_no_two_workers_share_a_seed() -> None:
    """More than a hundred environments, more than ten collectors: each begins somewhere else."""
    sources, starts = set(), set()
    for parent in range(5):
        with GWorker(parent, factory_of(11), col_execution="Parallel") as worker:
            worker.get_data()
            for one in worker.storage.rollouts:
                sources.add(one.worker_id)
                starts |= {row.tobytes() for row in one.data["observations"][0]}
    assert len(sources) == 5 * 11
    assert len(starts) == 5 * 11 * 2


def test_db_b19_the_same_seed_is_the_same_training() -> None:
    def trained(seed: int) -> bytes:
        with worker_of(2, run__seed=seed) as worker:
            for _ in range(5):
                worker.step()
                worker.apply_gradients()
            return worker.get_weights().block.tobytes()

    assert trained(1) == trained(1)
    assert trained(1) != trained(2)


@pytest.mark.parametrize(("compress", "ratio"), [(True, 2.0), ("fp16", 2.0), ("top-k", 5.0)])
def test_db_b21_compression_makes_gradients_smaller_wherever_they_are_made(compress: bool | str, ratio: float) -> None:
    """By step, by get_grads, and in the workers of a set."""
    wide = {"network__middleware": [64, 64]}
    with worker_of(compress_grads_to_send=compress, **wide) as worker:
        made = [worker.step()[0], worker.get_grads()[0]]
    many = GWorkerSet(2, 0, "cpu", "Central", "synchronous", factory_of(**wide), 1.0, {}, compress)
    with many:
        assert all(info["CompressionRatio"] == pytest.approx(ratio, rel=0.02) for info in many.step())
    for grads in made:
        assert grads.plain_bytes / grads.sent_bytes == pytest.approx(ratio, rel=0.02)


def steps(worker: GWorker, count: int) -> None:
    for _ in range(count):
        worker.step()


@pytest.mark.parametrize("collectors", [0, 2])
@pytest.mark.parametrize("communication", ["synchronous", "asynchronous"])
def test_db_b22_what_collection_raises_is_not_taken_for_the_end_of_the_data(
    collectors: int, communication: str
) -> None:
    with worker_of(collectors, communication, env="Fails", env__options="{when=12}") as worker:
        worker.step()
        with pytest.raises(HiveError, match="the motor is stuck") as caught:
            steps(worker, 10)
        assert type(caught.value) is EnvironmentFailed


def test_db_b23_a_collector_begins_its_next_rollout_before_the_last_is_taken() -> None:
    """Asynchronous collectors are ahead of what they have been asked for, each by the slots that it has."""
    with worker_of(2, "asynchronous") as worker:
        full, put = threading.Event(), worker.inqueue.put

        def watched(step: Any) -> None:
            if worker.inqueue.full():
                full.set()
            put(step)

        worker.inqueue.put = watched  # type: ignore[method-assign, assignment]
        worker.get_data()
        assert full.wait(30)
        taken = [(one.seq, one.version_collected) for one in worker.collector.get()]
        assert taken
        assert {version for _, version in taken} == {0}


def test_unknown_parameters_are_told_not_ignored() -> None:
    with worker_of() as worker, pytest.raises(ConfigError, match="no parameter `lr`"):
        worker.update_algorithm_parameter("lr", 0.1)
