"""GWorkerSet: the bytes of a run, an update at a time, with as many workers and in the modes that it is given."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_workers import SAMPLES, in_use, run_of, set_of, sha256

from hive.compat.pytorchrl import CWorkerSet, GWorker, GWorkerSet
from hive.errors import ConfigError, EnvironmentFailed, NotFinite, TopologyError

distributed_or_not = pytest.mark.parametrize("distributed", [False, True])
communications = pytest.mark.parametrize("communication", ["synchronous", "asynchronous"])

ALGORITHMS: dict[str, dict[str, Any]] = {
    "a2c": {"algorithm__learning_rate_schedule": '"linear"'},
    "ppo": {
        "algorithm__name": '"ppo"',
        "algorithm__epochs": 2,
        "algorithm__minibatches": 2,
        "algorithm__normalize_advantages": "false",  # by the samples of one worker, not of all as in a run
    },
    "nstep-q": {"algorithm__name": '"nstep-q"', "algorithm__target_interval": 3},
    "pqn": {"algorithm__name": '"pqn"', "algorithm__epochs": 2, "algorithm__minibatches": 2},
    "normalised": {"network__normalize_observations": "true"},
    "compressed": {"gradients__compression": '"top-k"', "network__middleware": [32, 32]},
}

OTHER = pytest.mark.full(reason="the other combinations", rotates=True)


# --- the bytes of a run


@pytest.mark.rotates
@distributed_or_not
@pytest.mark.parametrize(
    ("name", "workers", "collectors"),
    [
        *(("a2c", workers, 0) for workers in (0, 1, 2)),
        *((name, 2, 1) for name in ALGORITHMS),
        *(pytest.param(name, workers, 0, marks=OTHER) for name in list(ALGORITHMS)[1:] for workers in (0, 1, 2)),
    ],
)
def test_it_is_the_run_of_the_config_byte_for_byte(
    workers: int, collectors: int, name: str, distributed: bool, tmp_path: Path
) -> None:
    count = max(workers, 1) * max(collectors, 1)
    values = {
        "collection__workers": count,
        "gradients__workers": max(workers, 1),
        "gradients__decentralized": str(distributed).lower(),
        "run__steps": 5 * count * SAMPLES,
        **ALGORITHMS[name],
    }
    outcome = run_of(tmp_path, **values)
    with set_of(workers, collectors=collectors, **values) as made:
        made.step(distributed)
        per_round = made.local_worker().algo.gradients_per_round
        for _ in range(5 * per_round - 1):
            infos = made.step(distributed)
            assert len(infos) == max(workers, 1)
        assert made.actor_version == 5 * per_round
        assert sha256(made.local_worker().get_weights()) == outcome.digest


@pytest.mark.rotates
@pytest.mark.parametrize("compress", [False, "bf16"])
def test_distributed_or_not_the_bytes_are_the_same_every_time(compress: bool | str) -> None:
    ends = set()
    for distributed in (False, True, False, True):
        with set_of(3, compress=compress) as made:
            for _ in range(10):
                made.step(distributed)
            assert made.actor_version == 10
            ends.add(sha256(made.local_worker().get_weights()))
    assert len(ends) == 1


def test_with_one_worker_it_is_a_g_worker() -> None:
    with set_of(0) as made, GWorker(0, CWorkerSet.create_factory(made.local_worker().blueprint)) as alone:
        for _ in range(5):
            (info,) = made.step()
            _, expected = alone.step()
            alone.apply_gradients()
            del expected["Time"]
            del info["Time"]
            assert info == expected
        assert sha256(made.local_worker().get_weights()) == sha256(alone.get_weights())


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("distributed", "compress"),
    [
        *((False, False), (True, "top-k")),
        *(pytest.param(*both, marks=OTHER) for both in ((False, "bf16"), (True, False), (True, "bf16"))),
    ],
)
def test_it_learns(distributed: bool, compress: bool | str) -> None:
    """Guessing earns 0.5."""
    values = {"collection__envs": 8, "algorithm__learning_rate": 0.01}
    assert learned(set_of(2, "Bandit", compress=compress, **values), distributed) >= 0.95


@pytest.mark.rotates
@distributed_or_not
@pytest.mark.parametrize("collectors", [0, 2])
def test_it_learns_asynchronously(distributed: bool, collectors: int) -> None:
    values = {"collection__envs": 8, "algorithm__learning_rate": 0.01, "algorithm__name": '"impala"'}
    assert learned(set_of(2, "Bandit", collectors, communication="asynchronous", **values), distributed) >= 0.95


def learned(made: GWorkerSet, distributed: bool) -> float:
    """The mean return of the last 100 episodes of 120 steps."""
    returns: list[float] = []
    with made:
        for _ in range(120):
            for info in made.step(distributed):
                returns += info["Episodes"]["TrainReward"]
    return float(np.mean(returns[-100:]))


@distributed_or_not
def test_observation_moments_of_all_workers_are_merged(distributed: bool) -> None:
    """Observations are normalised by the same numbers everywhere, and each is counted once."""
    with set_of(2, network__normalize_observations="true") as made:
        seen = sum(info["NumberSamples"] for _ in range(6) for info in made.step(distributed))
        local = made.local_worker()
        assert local.flat.buffer_arrays(local.get_weights().block)["normalizer.seen"][0] == seen == 6 * 2 * SAMPLES


@distributed_or_not
def test_a_rate_that_has_fallen_to_zero_ends_nothing(distributed: bool) -> None:
    """A set has no goal: neither steps nor a return end it. The third update already has a rate of 0."""
    values = {
        "run__steps": 3 * SAMPLES,
        "run__stop_at_return": -100.0,
        "algorithm__learning_rate_schedule": '"linear"',
    }
    with set_of(1, **values) as made:
        ends = []
        for _ in range(8):
            made.step(distributed)
            ends.append(sha256(made.local_worker().get_weights()))
    assert len(set(ends[:2])) == 2
    assert len(set(ends[1:])) == 1


def test_evaluations_and_checkpoints_of_the_config_are_a_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {
        "evaluation__every": "{updates=2}",
        "checkpoint__every": "{updates=2}",
        "checkpoint__autosave_s": 1e-6,
    }
    with set_of(2, **values) as made:
        for _ in range(12):
            made.step()
        assert made.actor_version == 12
    assert not list(tmp_path.iterdir())


# --- what it says


@communications
def test_versions_and_lags_are_in_updates(communication: str) -> None:
    """PPO makes four of a round: the last is three updates younger than the rollouts."""
    values = {"algorithm__name": '"ppo"', "algorithm__epochs": 2, "algorithm__minibatches": 2}
    values |= {"algorithm__normalize_advantages": "false"}
    with set_of(2, communication=communication, **values) as made:
        infos = [info for _ in range(16) for info in made.step()]
    assert [info["Version"]["Gradient"] for info in infos] == [n for n in range(16) for _ in range(2)]
    assert all(i["PolicyLag"] == i["Version"]["Gradient"] - i["Version"]["Collection"] for i in infos)
    if communication == "synchronous":
        assert [info["PolicyLag"] for info in infos] == [n for n in (0, 1, 2, 3) for _ in range(2)] * 4
    assert [info["NumberSamples"] > 0 for info in infos] == [n == 0 for n in (0, 1, 2, 3) for _ in range(2)] * 4


@pytest.mark.parametrize(
    ("compress", "ratio", "config"),
    [
        (False, 1.0, {}),
        (True, 2.0, {}),
        ("top-k", 5.0, {}),
        (True, 10.0, {"gradients__compression": '"top-k"', "gradients__top_k": 0.05}),
        ("top-k", 10.0, {"gradients__compression": '"top-k"', "gradients__top_k": 0.05}),
    ],
)
def test_compressed_gradients_are_small(compress: bool | str, ratio: float, config: dict[str, Any]) -> None:
    with set_of(2, compress=compress, network__middleware=[64, 64], **config) as made:
        assert all(info["CompressionRatio"] == pytest.approx(ratio, rel=0.02) for info in made.step())


@distributed_or_not
def test_every_worker_is_used(distributed: bool) -> None:
    with set_of(3) as made:
        for _ in range(4):
            made.step(distributed)
        assert [(worker.index_worker, worker.iter, worker.actor_version) for worker in made.remote_workers()] == [
            (0, 4, 4),
            (1, 4, 4),
            (2, 4, 4),
        ]
        assert (made.local_worker().iter, made.actor_version) == (0, 4)
        everybody = (made.local_worker(), *made.remote_workers())
        assert len({sha256(worker.get_weights()) for worker in everybody}) == 1


def test_updates_may_be_distributed_and_not_in_turn() -> None:
    """Optimizer states are the same everywhere, too."""
    ends = set()
    for modes in ([False] * 6, [True, False] * 3, [False, False, True, True, False, True]):
        with set_of(2, algorithm__name='"nstep-q"', algorithm__target_interval=2) as made:
            for distributed in modes:
                made.step(distributed)
            for worker in (made.local_worker(), *made.remote_workers()):
                parts = worker.state.weights, worker.state.optimizer_state
                ends.add(hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest())
    assert len(ends) == 1


def test_workers_of_a_set_collect_for_themselves() -> None:
    """Each has collectors of its own, and may be stepped by hand."""
    with set_of(2, collectors=2) as made:
        one, other = made.remote_workers()
        grads, info = one.step()
        assert (one.iter, other.iter, info["NumberSamples"]) == (1, 0, 2 * SAMPLES)
        other.step()
        assert [rollout.worker_id for worker in (one, other) for rollout in worker.storage.rollouts] == [0, 1, 2, 3]
        assert one.apply_gradients(grads).applied
        assert (one.actor_version, other.actor_version) == (1, 0)


def test_no_two_sets_share_seeds() -> None:
    """First observations differ, and so do the streams of their gradient workers."""
    starts: set[int] = set()
    workers: set[int] = set()
    first: set[str] = set()
    for parent in range(4):
        with set_of(2, collectors=2, parent=parent) as made:
            made.step()
            workers |= {worker.index_worker for worker in made.remote_workers()}
            starts |= {int(one.source) for worker in made.remote_workers() for one in worker._rollouts}
            first.add(sha256(made.local_worker().get_weights()))
    assert (len(starts), len(workers), len(first)) == (4 * 4, 4 * 2, 4)


# --- weights and parameters


@pytest.mark.parametrize("workers", [0, 2])
def test_it_continues_from_given_weights(workers: int) -> None:
    with set_of(workers) as one:
        for _ in range(3):
            one.step()
        given = one.local_worker().get_weights()
    with set_of(workers, initial=given) as other:
        assert other.actor_version == 3
        assert other.local_worker().get_weights().block.tobytes() == given.block.tobytes()
        infos = other.step()
        assert (
            {info["Version"]["Gradient"] for info in infos} == {info["Version"]["Collection"] for info in infos} == {3}
        )
        assert other.actor_version == 4
        assert sha256(other.local_worker().get_weights()) != sha256(given)


@pytest.mark.rotates
@distributed_or_not
@pytest.mark.parametrize("when", [0, 2])
def test_a_parameter_changes_for_all(distributed: bool, when: int) -> None:
    """Before the first step and between two; the gradients and the updates are others from then on."""

    def trained(**values: Any) -> list[str]:
        ends = []
        with set_of(2) as made:
            for number in range(4):
                if number == when:
                    for name, value in values.items():
                        made.update_algorithm_parameter(name, value)
                made.step(distributed)
                ends.append(sha256(made.local_worker().get_weights()))
            workers = (made.local_worker(), *made.remote_workers())
            everybody: list[Any] = [part for worker in workers for part in (worker.algo, worker.state.learner)]
            for name, value in values.items():
                assert {getattr(one.config, name) for one in everybody} == {value}
        return ends

    plain = trained()
    for values in ({"learning_rate": 0.25}, {"discount": 0.5}):
        changed = trained(**values)
        assert [one == other for one, other in zip(plain, changed, strict=True)] == [n < when for n in range(4)]
        assert changed == trained(**values)


def test_a_parameter_that_is_refused_changes_nothing() -> None:
    with set_of(2) as made:
        made.step()
        made.update_algorithm_parameter("discount", 0.5)
        with pytest.raises(ConfigError):
            made.update_algorithm_parameter("discount", 1.5)
        with pytest.raises(ConfigError, match="no parameter `lr`"):
            made.update_algorithm_parameter("lr", 0.1)
        workers = (made.local_worker(), *made.remote_workers())
        everybody: list[Any] = [part for worker in workers for part in (worker.algo, worker.state.learner)]
        assert {one.config.discount for one in everybody} == {0.5}


# --- the end


def test_invalid_combinations_are_refused() -> None:
    with set_of(2) as made:
        factory = made.worker_params["col_workers_factory"]
    for arguments in ((-1, 0, "cpu", "Central"), (1, 0, "cuda", "Central"), (1, 0, "cpu", "Parallel")):
        with pytest.raises(TopologyError):
            GWorkerSet(*arguments, "synchronous", factory, 1.0, {})  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="grad_worker_resources has an unknown key `gpus`"):
        GWorkerSet(1, 0, "cpu", "Central", "synchronous", factory, 1.0, {"gpus": 1})
    with pytest.raises(TopologyError, match="the set has 1200 collectors, the maximum is 1024"):
        set_of(300, collectors=4)


@distributed_or_not
@communications
def test_nothing_is_left_of_it(distributed: bool, communication: str) -> None:
    before, threads = in_use(), threading.enumerate()
    made = set_of(2, "Counted", collectors=2, communication=communication)
    assert in_use() == before
    made.step(distributed)
    assert in_use()[2] == before[2] + 2 * 2 * 2
    assert (threading.enumerate() == threads) == (communication == "synchronous")
    made.stop()
    made.stop()
    assert in_use() == before
    with pytest.raises(RuntimeError, match="has been stopped"):
        made.step(distributed)
    assert made.actor_version == 1


def test_a_set_that_never_stepped_can_be_stopped() -> None:
    before = in_use()
    made = set_of(2, "Counted")
    made.stop()
    with pytest.raises(RuntimeError, match="has been stopped"):
        made.step()
    del made
    assert in_use() == before


def steps(made: GWorkerSet, count: int, distributed: bool) -> None:
    for _ in range(count):
        made.step(distributed)


@distributed_or_not
@communications
def test_an_environments_error_comes_out_of_the_step(distributed: bool, communication: str) -> None:
    before = in_use()
    with set_of(2, "Counted", communication=communication, env__options="{when=20}") as made:
        with pytest.raises(EnvironmentFailed, match="the motor is stuck"):
            steps(made, 10, distributed)
        with pytest.raises(EnvironmentFailed, match="the motor is stuck"):
            made.step(distributed)
        assert made.actor_version > 0
    del made
    assert in_use() == before


def test_a_set_stops_at_a_gradient_that_is_not_finite_if_the_config_says_so() -> None:
    values = {"env__options": "{when=12}", "supervision__non_finite": '"stop"'}
    with set_of(2, "Explodes", **values) as made:
        made.step()
        with pytest.raises(NotFinite, match="the loss of update 2 was not finite"):
            made.step()


def test_a_gradient_that_is_not_finite_is_passed_over() -> None:
    with set_of(2, "Explodes", env__options="{when=12}") as made:
        made.step()
        before = sha256(made.local_worker().get_weights())
        made.step()
        assert sha256(made.local_worker().get_weights()) == before
        made.step()
        assert sha256(made.local_worker().get_weights()) != before
        assert made.actor_version == 2
