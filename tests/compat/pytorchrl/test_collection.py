"""CWorkerSet and CollectorThread: the rollouts of a run's collectors, made on demand or in a thread of their own."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from small_trainer import allocate
from small_trainer import weights_of as initial_weights
from small_workers import MODES, Counted, blueprint_of, in_use

from hive.compat.pytorchrl import CollectedRollout, CollectorThread, CWorkerSet, Snapshot
from hive.compat.pytorchrl.collector_thread import QUEUE_STEPS
from hive.errors import ConfigError, EnvironmentFailed, NetworkError, TopologyError
from hive.training import Blueprint

AHEAD = QUEUE_STEPS + 1 + 2 + 1  # waiting, about to wait, in slots, being collected: rollouts of one collector

every_mode = pytest.mark.parametrize(("workers", "execution", "communication"), MODES)


def set_of(workers: int = 0, parent: int = 0, fraction_samples: float = 0.0, **values: Any) -> CWorkerSet:
    return CWorkerSet(blueprint_of(**values), workers, parent, None, fraction_samples)


def task_of(
    workers: int = 0,
    communication: str = "synchronous",
    fraction: float = 1.0,
    interval: int = 1,
    **options: Any,
) -> CollectorThread:
    fraction_samples = options.pop("fraction_samples", 0.0)
    return thread_of(set_of(workers, **options), 3, communication, fraction, interval, fraction_samples)


def thread_of(
    workers: CWorkerSet,
    index: int = 0,
    communication: str = "synchronous",
    fraction: float = 1.0,
    interval: int = 1,
    fraction_samples: float = 0.0,
) -> CollectorThread:
    execution, local = "Parallel" if workers.num_workers else "Central", workers.local_worker()
    return CollectorThread(
        index,
        local,
        workers.remote_workers(),
        fraction,
        communication,
        execution,
        interval,
        fraction_samples=fraction_samples,
    )


def weights_of(blueprint: Blueprint, factor: float, version: int) -> dict[str, Any]:
    """The initial weights, multiplied."""
    block = initial_weights(blueprint)[: blueprint.flat.block_bytes]
    named = {name: torch.from_numpy(array.copy() * factor) for name, array in blueprint.flat.arrays(block).items()}
    return {"version": version, "weights": named}


# --- what it brings


def test_a_rollout_lies_in_memory_of_its_own() -> None:
    task = task_of()
    (first,) = task.get()
    before = {name: array.copy() for name, array in first.data.items()}
    following = [task.get()[0] for _ in range(5)]  # more than there are slots
    assert all(np.array_equal(first.data[name].view(np.uint8), array.view(np.uint8)) for name, array in before.items())
    assert [one.seq for one in following] == [1, 2, 3, 4, 5]
    assert (first.seq, first.n_samples, first.steps, first.version_collected) == (0, 16, 8, 0)
    assert first.seconds > 0
    task.stop()
    assert all(np.array_equal(first.data[name].view(np.uint8), array.view(np.uint8)) for name, array in before.items())


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_they_are_the_collectors_of_a_run(workers: int) -> None:
    """The same bytes for the same source, number and weights."""
    blueprint = blueprint_of()
    task = task_of(workers)
    rounds = [task.get() for _ in range(3)]
    for source in range(max(workers, 1)):
        collector = blueprint.collector(source)
        collector.reset()
        arrays = allocate(blueprint.rollout_layout)
        collector.bind(initial_weights(blueprint))
        for number, round_ in enumerate(rounds):
            collector.collect(arrays, sequence=number, version=0)
            made = round_[source].data
            assert all(np.array_equal(made[name], arrays[name]) for name in ("rewards", "observations", "actions"))
        collector.close()
    task.stop()


@pytest.mark.rotates
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 64])
def test_a_synchronous_item_is_a_whole_round_in_order(workers: int) -> None:
    task = task_of(workers, collection__rollout=2, collection__envs=1)
    for number in range(12):
        round_ = task.get()
        assert [(one.worker_id, one.seq) for one in round_] == [(w, number) for w in range(workers)]
        assert task.queue.empty()
    task.stop()


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_an_asynchronous_item_is_one_rollout_and_none_is_lost(workers: int) -> None:
    task = task_of(workers, "asynchronous")
    taken: dict[int, list[int]] = {}
    for _ in range(60):
        (one,) = task.get()
        taken.setdefault(one.worker_id, []).append(one.seq)
    assert all(numbers == list(range(len(numbers))) for numbers in taken.values())
    assert sorted(taken) == list(range(max(workers, 1)))
    assert sum(map(len, taken.values())) == 60
    task.stop()


@pytest.mark.parametrize("workers", [0, 2])
def test_synchronous_collection_brings_the_same_rollouts_every_time(workers: int) -> None:
    def taken() -> list[tuple[int, int, int, bytes]]:
        task = thread_of(set_of(workers), interval=2)
        found = []
        for number in range(12):
            task.local_worker.set_weights(weights_of(task.local_worker.blueprint, 1.0 + number, number))
            found += [
                (one.worker_id, one.seq, one.version_collected, one.data["actions"].tobytes()) for one in task.get()
            ]
        task.stop()
        return found

    assert taken() == taken()


def test_steps_wait_in_the_queue_in_their_order_and_the_caller_is_not_left_waiting_for_a_place() -> None:
    task = task_of(2)
    for _ in range(QUEUE_STEPS):
        task.step()
    with pytest.raises(RuntimeError, match="2 collection steps wait in the queue"):
        task.step()
    assert [[one.seq for one in task.get()] for _ in range(4)] == [[0, 0], [1, 1], [2, 2], [3, 3]]
    task.stop()


@pytest.mark.parametrize("workers", [0, 2])
def test_synchronous_collection_works_only_when_it_is_asked_in_the_callers_thread(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, steps = threading.enumerate(), [0]
    reward = Counted.reward

    def watched(self: Counted, action: Any) -> float:
        steps[0] += 1
        assert threading.current_thread() is threading.main_thread()
        assert threading.enumerate() == before
        return reward(self, action)

    monkeypatch.setattr(Counted, "reward", watched)
    task = task_of(workers, env="Counted")
    assert steps == [0]
    for number in range(3):
        task.get()
        assert steps == [(number + 1) * 16 * max(workers, 1)]
        assert threading.enumerate() == before
        assert task.queue.empty()
    task.stop()
    assert threading.enumerate() == before


def test_run_collects_in_the_callers_thread_until_a_step_stops_it() -> None:
    task = task_of()
    step, made = task.step, []

    def counted() -> None:
        step()
        made.append(len(task.queue.get()))
        if len(made) == 3:
            task.stop()

    task.step = counted  # type: ignore[method-assign]
    task.run()
    assert made == [1, 1, 1]


# --- the thread


@pytest.mark.parametrize("communication", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_started_thread_collects_by_itself(workers: int, communication: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All environments are stepped there, and no step is lost or comes twice."""
    threads, reward = set(), Counted.reward

    def watched(self: Counted, action: Any) -> float:
        threads.add(threading.current_thread())
        return reward(self, action)

    monkeypatch.setattr(Counted, "reward", watched)
    task = task_of(workers, communication, env="Counted")
    assert isinstance(task, threading.Thread)
    task.start()
    numbers: dict[int, list[int]] = {}
    for _ in range(12):
        for one in task.get():
            numbers.setdefault(one.worker_id, []).append(one.seq)
    assert threads == {task}
    assert all(taken == list(range(len(taken))) for taken in numbers.values())
    with pytest.raises(RuntimeError, match="the thread makes the collection steps itself"):
        task.step()
    task.stop()
    assert not task.is_alive()


def test_asynchronous_collection_starts_the_thread_at_the_first_rollout() -> None:
    task = task_of(2, "asynchronous")
    assert not task.is_alive()
    task.get()
    assert task.is_alive()
    assert task.daemon
    task.stop()
    task.stop()


@pytest.mark.parametrize("by_attribute", [False, True])
def test_the_queue_is_bounded(by_attribute: bool) -> None:
    """The thread waits for a place, and `stop` ends it there; so does `stopped`, which PyTorchRL's workers set."""
    task, full = task_of(0, "asynchronous"), threading.Event()
    put = task.queue.put

    def watched(item: Any) -> None:
        if task.queue.full():
            full.set()
        put(item)

    task.queue.put = watched  # type: ignore[method-assign, assignment]
    task.start()
    assert full.wait(30)
    assert task.queue.qsize() == QUEUE_STEPS
    if by_attribute:
        task.stopped = True
        task.join(30)
    else:
        task.stop()
    assert not task.is_alive()
    task.stop()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="has been stopped"):
            task.get()


def test_a_rollout_of_the_thread_is_a_copy() -> None:
    task = task_of(0, "asynchronous")
    (first,) = task.get()
    before = {name: array.tobytes() for name, array in first.data.items()}
    for _ in range(6):
        task.get()
    assert {name: array.tobytes() for name, array in first.data.items()} == before
    task.stop()


# --- rounds that are cut short


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("fraction", "samples", "steps"),
    [(0.5, 0.25, [8, 8, 2, 2]), (0.75, 0.5, [8, 8, 8, 4]), (0.4, 0.0, [8, 8, 1, 1]), (0.25, 0.3, [8, 3, 3, 3])],
)
def test_a_round_is_over_when_enough_are_through(fraction: float, samples: float, steps: list[int]) -> None:
    """The others stop once they have their share of the samples; which, is the same every time."""
    found = []
    for _ in range(2):
        task = task_of(4, fraction=fraction, fraction_samples=samples)
        rounds = [task.get() for _ in range(5)]
        found.append([[one.steps for one in round_] for round_ in rounds])
        assert all(one.n_samples == 2 * one.steps for round_ in rounds for one in round_)
        task.stop()
    assert found[0] == found[1]
    assert all(sorted(round_, reverse=True) == steps for round_ in found[0])
    assert found[0][0] == steps


# --- weights


def test_weights_act_from_the_next_broadcast_on() -> None:
    """The same rollout of the same seed, but for the policy."""
    one, other = task_of(), task_of()
    assert np.array_equal(one.get()[0].data["actions"], other.get()[0].data["actions"])
    one.local_worker.set_weights(weights_of(one.local_worker.blueprint, 30.0, 7))
    (rollout,) = one.get()
    assert rollout.version_collected == one.local_worker.actor_version == 7
    assert not np.array_equal(rollout.data["actions"], other.get()[0].data["actions"])
    one.stop()
    other.stop()


@pytest.mark.parametrize("communication", ["synchronous", "asynchronous"])
def test_other_weights_of_the_same_version_act_too(communication: str) -> None:
    """As `set_weights` of a mapping of names makes them."""
    one, other = task_of(0, communication), task_of(0, communication)
    one.get(), other.get()
    one.local_worker.set_weights(weights_of(one.local_worker.blueprint, 30.0, 0)["weights"])
    last = [[task.get()[0] for _ in range(AHEAD + 2)][-1] for task in (one, other)]
    assert [rollout.version_collected for rollout in last] == [0, 0]
    assert not np.array_equal(last[0].data["actions"], last[1].data["actions"])
    one.stop()
    other.stop()


def test_weights_are_broadcast_at_their_interval_in_one_piece() -> None:
    task = task_of(2, interval=2)
    local, versions = task.local_worker, []
    for number in range(6):
        local.set_weights(weights_of(local.blueprint, 1.0, number + 1))
        assert task.should_broadcast() == (task.num_sent_since_broadcast >= 2)
        versions.append([one.version_collected for one in task.get()])
    assert versions == [[v, v] for v in (1, 1, 3, 3, 5, 5)]
    task.step()
    task.broadcast_new_weights()
    assert task.num_sent_since_broadcast == 0
    assert {id(worker.get_weights()) for worker in (local, *task.remote_workers)} == {id(local.get_weights())}
    task.stop()


def test_weights_are_broadcast_by_hand() -> None:
    task = task_of(2, interval=100)
    local = task.local_worker
    assert [one.version_collected for one in task.get()] == [0, 0]
    local.set_weights(weights_of(local.blueprint, 30.0, 5))
    assert [one.version_collected for one in task.get()] == [0, 0]
    task.broadcast_new_weights()
    assert [one.version_collected for one in task.get()] == [5, 5]
    task.stop()


def test_the_version_of_an_asynchronous_rollout_is_that_of_its_weights() -> None:
    """It may be some broadcasts old; it is never one that its actions were not made with."""
    task, versions = task_of(2, "asynchronous"), []
    for number in range(20):
        task.local_worker.set_weights(weights_of(task.local_worker.blueprint, 1.0, 3 * number))
        (one,) = task.get()
        versions.append(one.version_collected)
        assert one.version_collected % 3 == 0
        assert one.version_collected <= 3 * number
    assert versions[-1] > 0
    task.stop()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop(next(iter(w))), "the weights are of another network"),
        (lambda w: w.update(extra=torch.zeros(1)), "the weights are of another network"),
        (lambda w: w.update({next(iter(w)): torch.zeros(3)}), r"is float32 \[3\], expected"),
        (lambda w: next(iter(w.values())).fill_(np.nan), "are not finite"),
    ],
)
def test_weights_of_another_network_are_refused(change: Any, message: str) -> None:
    worker = set_of().local_worker()
    weights = weights_of(worker.blueprint, 1.0, 4)["weights"]
    change(weights)
    before = worker.get_weights()
    with pytest.raises(NetworkError, match=message):
        worker.set_weights(weights)
    assert worker.get_weights() is before


def test_a_snapshot_of_another_network_is_refused() -> None:
    worker = set_of().local_worker()
    for size in (4, 16):
        with pytest.raises(NetworkError, match="the weights of this network take"):
            worker.set_weights(set_of(network__middleware=[size]).local_worker().get_weights())


# --- sets


def test_a_set() -> None:
    with pytest.raises(TopologyError, match="num_workers"):
        set_of(-1)
    with pytest.raises(TopologyError, match="col_fraction_samples"):
        set_of(1, fraction_samples=1.5)
    blueprint = blueprint_of()
    start = Snapshot(9, set_of().local_worker().get_weights().block)
    made = CWorkerSet.create_factory(blueprint, 2, 0.3)("cpu", start, 4)
    everybody = (made.local_worker(), *made.remote_workers())
    assert [worker.index_worker for worker in everybody] == [0, 1, 2]
    assert {(worker.index_parent, worker.actor_version) for worker in everybody} == {(4, 9)}
    with pytest.raises(TopologyError, match="cuda"):
        CWorkerSet.create_factory(blueprint)("cuda:0", None, 0)
    with pytest.raises(ConfigError):
        made.local_worker().update_algorithm_parameter("discount", 2.0)


def test_no_two_collectors_of_any_parents_share_a_seed() -> None:
    """The first observations of all environments differ, and so do their sources."""
    sources: list[int] = []
    first: set[bytes] = set()
    for parent in range(5):
        task = task_of(11, parent=parent)
        for one in task.get():
            sources.append(one.worker_id)
            first |= {row.tobytes() for row in one.data["observations"][0]}
        task.stop()
    assert len(set(sources)) == len(sources) == 5 * 11
    assert len(first) == 5 * 11 * 2


# --- the end


def failing(workers: int, communication: str) -> CollectorThread:
    blueprint = blueprint_of("Counted", env__options="{when=12}")
    return thread_of(CWorkerSet(blueprint, workers), 0, communication)


def take_all(task: CollectorThread, taken: list[list[CollectedRollout]]) -> None:
    while True:
        taken.append(task.get())


@every_mode
def test_an_environments_error_is_raised_by_the_step(workers: int, execution: str, communication: str) -> None:
    before = in_use()
    task = failing(workers, communication)
    taken: list[list[CollectedRollout]] = []
    with pytest.raises(EnvironmentFailed, match="the motor is stuck"):
        take_all(task, taken)
    assert [one.seq for items in taken for one in items] == [0] * max(workers, 1)
    with pytest.raises(EnvironmentFailed, match="the motor is stuck"):
        task.get()
    task.stop()
    task.stop()
    del task
    assert in_use() == before


def test_an_environment_that_cannot_be_reset_fails_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(2, env="Counted")

    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("no simulator")

    monkeypatch.setattr(Counted, "reset", broken)
    with pytest.raises(EnvironmentFailed, match="no simulator"):
        task.step()
    task.stop()


@every_mode
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_nothing_is_left_of_a_stopped_task(workers: int, execution: str, communication: str, steps: int) -> None:
    before = in_use()
    task = thread_of(set_of(workers, env="Counted"), 0, communication)
    for _ in range(steps):
        task.get()
    if steps:
        assert in_use()[2] == before[2] + 2 * max(workers, 1)
        assert in_use()[1] > before[1]
    task.stop()
    task.stop()
    assert task.stopped
    assert in_use() == before
    with pytest.raises(RuntimeError, match="of gradient worker 0 has been stopped"):
        task.step()


def test_collected_rollouts_are_available_after_the_end() -> None:
    task = task_of()
    task.step()
    task.stop()
    assert [one.seq for one in task.get()] == [0]
    with pytest.raises(RuntimeError, match="has been stopped"):
        task.get()


def test_an_interrupted_step_is_made_by_the_next() -> None:
    """Ctrl-C arrives while collectors work: no round is lost, none is made twice."""
    blueprint, interrupts = blueprint_of(), [5]
    task = thread_of(CWorkerSet(blueprint, 2))
    task.get()
    assert task._run is not None
    until = task._run.until

    def interrupted(condition: Any) -> None:
        def once() -> bool:
            if interrupts:
                interrupts[0] -= 1
                if not interrupts[0]:
                    interrupts.clear()
                    raise KeyboardInterrupt
            return bool(condition())

        until(once)

    task._run.until = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        task.get()
    assert [[one.seq for one in task.get()] for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]
    task.stop()


def test_modes_are_checked_before_anything_is_made() -> None:
    before = in_use()
    local = set_of().local_worker()
    for options in ({"col_fraction_workers": 0.5}, {"col_execution": "Parallel"}, {"broadcast_interval": 0}):
        with pytest.raises(TopologyError):
            CollectorThread(0, local, [], **options)  # type: ignore[arg-type]
    assert in_use() == before


@pytest.mark.parametrize("workers", [0, 2])
def test_a_worker_without_a_stop_closes_its_environments(workers: int) -> None:
    """Otherwise its loop is destroyed with pending tasks, and asyncio prints a page about them."""
    task: CollectorThread | None = task_of(workers, env="Counted", env__options="{when=-1}")
    before = Counted.open
    assert task is not None
    task.step()
    assert Counted.open > before
    task = None
    assert in_use()[2] == before
