"""GWorker in plain scripts: it learns in every mode, its bytes are those of a run, and it ends."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_workers import LEARN, MODES, SAMPLES, in_use, run_of, sha256, worker_of

from hive.compat.pytorchrl import CWorkerSet, Gradients, GWorker
from hive.errors import ConfigError, EnvironmentFailed, NetworkError, RecordError, TopologyError
from hive.records import checkpoint_at

every_mode = pytest.mark.parametrize(("workers", "execution", "communication"), MODES)
synchronous = pytest.mark.parametrize(("workers", "execution"), [mode[:2] for mode in MODES[:2]])
asynchronous = pytest.mark.parametrize(("workers", "execution"), [mode[:2] for mode in MODES[2:]])
OTHER = pytest.mark.full(reason="the other compressions", rotates=True)

ALGORITHMS: dict[str, dict[str, Any]] = {
    "a2c": {"algorithm__learning_rate_schedule": '"linear"'},
    "ppo": {"algorithm__name": '"ppo"', "algorithm__epochs": 2, "algorithm__minibatches": 2},
    "impala": {"algorithm__name": '"impala"'},
    "nstep-q": {"algorithm__name": '"nstep-q"', "algorithm__target_interval": 3},
    "normalised": {"network__normalize_observations": "true", "algorithm__normalize_advantages": "true"},
    "compressed": {"gradients__compression": '"top-k"', "network__middleware": [32, 32]},
}


def trained(worker: GWorker, steps: int) -> float:
    """The mean return of the last 100 episodes."""
    returns: list[float] = []
    with worker:
        for _ in range(steps):
            _, info = worker.step()
            worker.apply_gradients()
            returns += info["Episodes"]["TrainReward"]
    return float(np.mean(returns[-100:]))


@pytest.mark.rotates
@synchronous
@pytest.mark.parametrize("compress", [False, "top-k", *(pytest.param(kind, marks=OTHER) for kind in (True, "fp16"))])
def test_it_learns(workers: int, execution: str, compress: bool | str) -> None:
    """Guessing earns 0.5; the last episodes must earn more."""
    made = worker_of(workers, execution, compress_grads_to_send=compress, **LEARN)
    assert trained(made, 150) >= 0.95


@pytest.mark.rotates
@asynchronous
@pytest.mark.parametrize("compress", [False, True])
def test_it_learns_asynchronously(workers: int, execution: str, compress: bool) -> None:
    """IMPALA, since rollouts are some updates old."""
    made = worker_of(
        workers, execution, "asynchronous", compress_grads_to_send=compress, algorithm__name='"impala"', **LEARN
    )
    assert trained(made, 150) >= 0.95


def test_without_updates_nothing_is_learned() -> None:
    with worker_of(**LEARN) as made:
        returns = [value for _ in range(30) for value in made.step()[1]["Episodes"]["TrainReward"]]
    assert np.mean(returns) < 0.7


# --- the bytes of a run


@pytest.mark.rotates
@pytest.mark.parametrize("name", ALGORITHMS)
@synchronous
def test_it_is_the_run_of_the_config_byte_for_byte(workers: int, execution: str, name: str, tmp_path: Path) -> None:
    """As many updates, the last by the learning rate of the run's last."""
    count = max(workers, 1)
    values = {"collection__workers": count, "run__steps": 6 * count * SAMPLES, **ALGORITHMS[name]}
    outcome = run_of(tmp_path, **values)
    with worker_of(workers, execution, **values) as made:
        for _ in range(int(outcome.results["updates"])):
            made.step()
            assert made.apply_gradients().applied
        assert sha256(made.get_weights()) == outcome.digest
        assert made.actor_version == outcome.results["updates"] >= 6


def test_of_another_number_it_is_another_run(tmp_path: Path) -> None:
    found = set()
    for index in (0, 1):
        with worker_of(index=index) as made:
            made.step()
            made.apply_gradients()
            found.add(sha256(made.get_weights()))
    assert len(found) == 2


@asynchronous
def test_asynchronous_rollouts_are_older_than_the_weights_but_not_by_much(workers: int, execution: str) -> None:
    """How much older depends on the speed of two threads, so two such runs need not agree."""
    with worker_of(workers, execution, "asynchronous") as made:
        lags = []
        for _ in range(20):
            version = made.step()[1]["Version"]
            lags.append(version["Gradient"] - version["Collection"])
            made.apply_gradients()
    assert min(lags) >= 0
    assert max(lags) < 20


# --- gradients


@every_mode
def test_ppo_makes_all_gradients_of_a_round_before_the_next(workers: int, execution: str, communication: str) -> None:
    values = {"algorithm__name": '"ppo"', "algorithm__epochs": 2, "algorithm__minibatches": 2}
    with worker_of(workers, execution, communication, **values) as made:
        infos = []
        for _ in range(8):
            infos.append(made.step()[1])
            made.apply_gradients()
    rounds = [info["NumberSamples"] > 0 for info in infos]
    assert rounds == [True, False, False, False] * 2
    assert (made.iter, made.actor_version) == (8, 8)
    if communication == "synchronous":
        assert [info["PolicyLag"] for info in infos] == [0, 1, 2, 3] * 2
        assert sum(info["NumberSamples"] for info in infos) == 2 * 16 * max(workers, 1)


def test_get_data_and_get_grads_are_a_step() -> None:
    with worker_of() as one, worker_of() as other:
        batch = one.get_data()
        assert batch == one.get_data()
        assert one.storage.samples == 16
        grads, _ = one.get_grads()
        for mine, same in zip(grads, other.step()[0], strict=True):
            assert torch.equal(mine, same)
        assert one.storage.left == 0


def test_gradients_are_tensors_one_for_each_parameter() -> None:
    with worker_of() as made:
        grads, info = made.step()
        parameters = dict(made.actor.named_parameters())
        assert isinstance(grads, Gradients)
        assert [g.shape for g in grads] == [parameters[name].shape for name in grads.names]
        assert (grads.n_samples, grads.version_gradient, len(grads[1:])) == (16, 0, len(parameters) - 1)
        assert set(info) == {
            *("Algorithm", "Version", "Time", "NumberSamples", "Episodes", "PolicyLag", "CompressionRatio")
        }
        assert info is not made.step()[1]
        assert any(tensor.any() for tensor in grads)


@pytest.mark.parametrize(
    ("compress", "ratio"), [(False, 1.0), (True, 2.0), ("bf16", 2.0), ("fp16", 2.0), ("top-k", 5.0)]
)
def test_compression_is_real(compress: bool | str, ratio: float) -> None:
    with worker_of(compress_grads_to_send=compress, network__middleware=[64, 64]) as made:
        grads, info = made.step()
        assert info["CompressionRatio"] == pytest.approx(ratio, rel=0.02)
        assert sum(a.nbytes for a in grads.slot.values()) < grads.plain_bytes / ratio + 2000
        with worker_of(network__middleware=[64, 64]) as other:
            plain = other.step()[0]
        distance = np.sqrt(sum(float(((a - b) ** 2).sum()) for a, b in zip(grads, plain, strict=True)))
        assert (distance == 0) == (compress is False)


def test_applying_tensors_gradients_or_the_last_is_the_same() -> None:
    ends = []
    for given in (lambda g: None, lambda g: g, lambda g: [g], lambda g: list(g), lambda g: [t.numpy() for t in g]):
        with worker_of() as made:
            for _ in range(3):
                grads, _ = made.step()
                assert made.apply_gradients(given(grads)).applied
            ends.append(made.get_weights().block.tobytes())
    assert len(set(ends)) == 1


def test_gradients_that_cannot_be_applied_are_refused() -> None:
    with worker_of() as made:
        with pytest.raises(RuntimeError, match="no gradient has been computed yet"):
            made.apply_gradients()
        grads, _ = made.step()
        with pytest.raises(NetworkError, match="expected gradients of shapes"):
            made.apply_gradients(list(grads)[1:])
        bad = [torch.full_like(tensor, float("nan")) for tensor in grads]
        before = made.get_weights().block.tobytes()
        assert (made.apply_gradients(bad).cause, made.actor_version) == ("gradient", 0)
        assert made.get_weights().block.tobytes() == before


def test_gradients_that_do_not_fit_change_nothing() -> None:
    with (
        worker_of() as made,
        worker_of(compress_grads_to_send="fp16") as other,
        worker_of(network__middleware="[3]") as stranger,
    ):
        grads, _ = made.step()
        before = made.get_weights().block.tobytes()
        for given, cause in (
            ([], "the sequence of gradients is empty"),
            ([grads, other.step()[0]], "of different compressions"),
            (stranger.step()[0], "the gradients are of another network"),
            ([grads, grads[0]], "expected gradients of shapes"),
        ):
            with pytest.raises(NetworkError, match=cause):
                made.apply_gradients(given)
        assert (made.actor_version, made.get_weights().block.tobytes()) == (0, before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(bad: float) -> None:
    with worker_of() as made:
        before = made.get_weights()
        named = {name: tensor.detach().clone() for name, tensor in made.actor.named_parameters()}
        last = list(named)[-1]
        named[last].view(-1)[-1] = bad
        for given in (named, {"version": 7, "weights": named}):
            with pytest.raises(NetworkError, match=f"the weights of `{last}` are not finite"):
                made.set_weights(given)
            with pytest.raises(NetworkError, match="are not finite"):
                worker_of(initial_weights=given)
            with pytest.raises(NetworkError, match="are not finite"):
                GWorker(0, lambda *_: made.col_workers, initial_weights=given).get_weights()
        assert (made.actor_version, made.local_worker.actor_version) == (0, 0)
        assert made.get_weights().block.tobytes() == before.block.tobytes()
        assert all(torch.isfinite(tensor).all() for tensor in made.actor.parameters())


def test_weights_go_from_one_to_another() -> None:
    with worker_of() as one, worker_of() as other:
        for _ in range(3):
            one.step()
            one.apply_gradients()
        other.set_weights(one.get_weights())
        assert other.actor_version == 3
        assert other.get_weights().block.tobytes() == one.get_weights().block.tobytes()
        named = {name: tensor.detach().clone() for name, tensor in one.actor.named_parameters()}
        other.set_weights(named)
        assert all(torch.equal(tensor, named[name]) for name, tensor in other.actor.named_parameters())
        third = GWorker(5, CWorkerSet.create_factory(one.blueprint), initial_weights=one.get_weights())
        assert third.actor_version == 3
        assert all(torch.equal(tensor, named[name]) for name, tensor in third.actor.named_parameters())


def test_a_parameter_changes_everywhere() -> None:
    with worker_of(2, "Parallel") as made:
        made.update_algorithm_parameter("learning_rate", 0.5)
        made.update_algorithm_parameter("entropy_weight", 0.25)
        everybody = [made.algo, made.state.learner]
        assert {(one.config.learning_rate, one.config.entropy_weight) for one in everybody} == {(0.5, 0.25)}  # type: ignore[attr-defined]
        made.step()
        assert made.apply_gradients().learning_rate == 0.5
        with pytest.raises(ConfigError, match="no parameter `lerning_rate`") as caught:
            made.update_algorithm_parameter("lerning_rate", 1.0)
        assert caught.value.hint == "did you mean `learning_rate`?"


def test_a_saved_model_is_a_checkpoint(tmp_path: Path) -> None:
    with worker_of() as made:
        made.step()
        made.apply_gradients()
        name = made.save_model(tmp_path / "model")
        tensors = checkpoint_at(name).tensors()
        assert all(np.array_equal(tensors[n], p.detach().numpy()) for n, p in made.actor.named_parameters())
        with pytest.raises(RecordError):
            made.save_model(tmp_path / "model")
        made.step()
        made.apply_gradients()
        assert made.save_model(tmp_path / "model") != name


def test_a_model_is_not_saved_over_a_file(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_text("mine")
    with worker_of() as made:
        for place in (file, file / "below"):
            with pytest.raises(RecordError, match="cannot hold checkpoints"):
                made.save_model(place)
    assert file.read_text() == "mine"


# --- collection


@every_mode
def test_collectors_get_the_weights_of_whole_rounds(workers: int, execution: str, communication: str) -> None:
    """Every update is a version; a synchronous round is made with the newest."""
    with worker_of(workers, execution, communication, broadcast_interval=2) as made:
        versions = []
        for _ in range(8):
            _, info = made.step()
            versions.append(info["Version"]["Collection"])
            assert info["PolicyLag"] == info["Version"]["Gradient"] - info["Version"]["Collection"]
            made.apply_gradients()
    if communication == "synchronous":
        assert versions == [0, 0, 2, 2, 4, 4, 6, 6]
    else:
        assert all(0 <= version <= number for number, version in enumerate(versions))


def test_a_round_that_ends_early_is_weighted_by_its_samples() -> None:
    with worker_of(4, "Parallel", col_fraction_workers=0.5, fraction_samples=0.25) as made:
        for _ in range(3):
            grads, info = made.step()
            assert grads.n_samples == info["NumberSamples"] == 2 * (8 + 8 + 2 + 2)
            assert sorted(one.steps for one in made.storage.rollouts) == [2, 2, 8, 8]


def test_no_two_parents_share_seeds() -> None:
    """Neither the first observations of their environments nor the minibatches of their rounds."""
    values = {"algorithm__name": '"ppo"', "algorithm__epochs": 1, "algorithm__minibatches": 4}
    starts: set[bytes] = set()
    orders: set[bytes] = set()
    for index in range(6):
        with worker_of(2, "Parallel", index=index, **values) as made:
            made.get_data()
            for one in made.storage.rollouts:
                starts |= {row.tobytes() for row in one.data["observations"][0]}
            made.get_grads()
            assert made._noise is not None
            orders.add(made._noise.random(8).tobytes())
    assert (len(starts), len(orders)) == (6 * 2 * 2, 6)


# --- the end


@every_mode
def test_nothing_is_left_of_a_stopped_worker(workers: int, execution: str, communication: str) -> None:
    before, threads = in_use(), threading.enumerate()
    made = worker_of(workers, execution, communication, env="Counted")
    made.step()
    assert in_use()[1:] > before[1:]
    assert (threading.enumerate() == threads) == (communication == "synchronous")
    made.stop()
    made.stop()
    assert in_use() == before
    assert made.apply_gradients().applied
    with pytest.raises(RuntimeError, match="has been stopped"):
        made.step()


@every_mode
def test_an_environments_error_comes_out_of_the_step(workers: int, execution: str, communication: str) -> None:
    before = in_use()
    with worker_of(workers, execution, communication, env="Counted", env__options="{when=20}") as made:
        steps = [made.step() for _ in range(2 * max(workers, 1) if communication == "asynchronous" else 2)]
        for _ in range(2):
            with pytest.raises(EnvironmentFailed, match="the motor is stuck"):
                made.step()
        made.apply_gradients([grads for grads, _ in steps])
        assert made.actor_version == 1
    del made, steps
    assert in_use() == before


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    with worker_of(env="Explodes", env__options="{when=12}") as made:
        for _ in range(2):
            grads, _ = made.step()
            turn = made.apply_gradients(grads)
        assert (turn.applied, turn.cause, made.actor_version) == (False, "loss", 1)
        assert all(torch.isfinite(tensor).all() for tensor in made.actor.parameters())


def test_it_works_inside_a_running_loop() -> None:
    """As in a cell of a notebook; the bytes are those of a script."""

    async def cell() -> str:
        with worker_of(2, "Parallel") as made:
            for _ in range(3):
                made.step()
                made.apply_gradients()
            return sha256(made.get_weights())

    before = threading.enumerate()
    inside = asyncio.run(cell())
    with worker_of(2, "Parallel") as made:
        for _ in range(3):
            made.step()
            made.apply_gradients()
        assert sha256(made.get_weights()) == inside
    assert threading.enumerate() == before


def test_invalid_modes_are_refused_at_once() -> None:
    for options in (
        {"execution": "Parallel"},
        {"workers": 2},
        {"communication": "pipelined"},
        {"device": "cuda:0"},
        {"col_fraction_workers": 0.5},
        {"compress_grads_to_send": "zip"},
        {"compress_grads_to_send": 3},
    ):
        with pytest.raises(TopologyError):
            worker_of(**options)
