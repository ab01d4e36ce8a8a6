"""GWorker in plain scripts: it learns in every mode, its numbers are those of a run's parts, and it ends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_trainer import Trainer, config_of

from hive.errors import ConfigError, NetworkError, RecordError, TopologyError
from hive.records import checkpoint_at
from hive.workers import Blueprint, CWorkerSet, Gradients, GWorker
from hive.workers.collector_task import QUEUE_ITEMS

MODES = [(0, "Central", "synchronous"), (2, "Parallel", "synchronous")]
LOOSE = [(0, "Central", "asynchronous"), (2, "Parallel", "asynchronous")]
every_mode = pytest.mark.parametrize(("workers", "execution", "communication"), MODES + LOOSE)


def worker_of(
    workers: int = 0, execution: str = "Central", communication: str = "synchronous", env: str = "Drift", **values: Any
) -> GWorker:
    options = {name: values.pop(name) for name in list(values) if "__" not in name}
    blueprint = Blueprint(config_of(f"small_environments:{env}", **values))
    factory = CWorkerSet.create_factory(blueprint, workers)
    return GWorker(0, factory, communication, col_execution=execution, **options)


LEARN = {"env": "Bandit", "collection__envs": 8, "algorithm__learning_rate": 0.01}


def trained(worker: GWorker, steps: int) -> float:
    """The mean return of the last 100 episodes."""
    returns: list[float] = []
    with worker:
        for _ in range(steps):
            _, info = worker.step()
            worker.apply_gradients()
            returns += info["Episodes"]["TrainReward"]
    return float(np.mean(returns[-100:]))


@pytest.mark.parametrize(("workers", "execution", "communication"), MODES)
@pytest.mark.parametrize("compress", [False, True, "fp16", "top-k"])
def test_it_learns(workers: int, execution: str, communication: str, compress: bool | str) -> None:
    """Guessing earns 0.5; the last line is what tells."""
    made = worker_of(workers, execution, communication, compress_grads_to_send=compress, **LEARN)
    assert trained(made, 150) >= 0.95


@pytest.mark.parametrize(("workers", "execution", "communication"), LOOSE)
def test_it_learns_from_whatever_is_ready(workers: int, execution: str, communication: str) -> None:
    """IMPALA, since rollouts may be some updates old, by as much as the threads please."""
    made = worker_of(workers, execution, communication, algorithm__name='"impala"', **LEARN)
    assert trained(made, 300) >= 0.8


def test_without_updates_nothing_is_learned() -> None:
    with worker_of(**LEARN) as made:
        returns = [value for _ in range(30) for value in made.step()[1]["Episodes"]["TrainReward"]]
    assert np.mean(returns) < 0.7


def test_it_is_the_trainer_of_a_run_byte_for_byte() -> None:
    config = config_of("small_environments:Drift", env__options="{truncates=6}")
    trainer = Trainer(config)
    trainer.train(10)
    with GWorker(0, CWorkerSet.create_factory(Blueprint(config))) as made:
        for _ in range(10):
            made.step()
            made.apply_gradients()
        weights = trainer.blueprint.state.weights(trainer.weights[0])
        assert made.get_weights().block.tobytes() == weights.tobytes()


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
        plain = worker_of(network__middleware=[64, 64]).step()[0]
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


def test_what_cannot_be_applied_is_told() -> None:
    with worker_of() as made:
        with pytest.raises(RuntimeError, match="no gradient has been computed yet"):
            made.apply_gradients()
        grads, _ = made.step()
        with pytest.raises(NetworkError, match="the network has"):
            made.apply_gradients(list(grads)[1:])
        bad = [torch.full_like(tensor, float("nan")) for tensor in grads]
        before = made.get_weights().block.tobytes()
        assert (made.apply_gradients(bad).cause, made.actor_version) == ("gradient", 0)
        assert made.get_weights().block.tobytes() == before


def test_what_does_not_fit_changes_nothing() -> None:
    with (
        worker_of() as made,
        worker_of(compress_grads_to_send="fp16") as other,
        worker_of(network__middleware="[3]") as stranger,
    ):
        grads, _ = made.step()
        before = made.get_weights().block.tobytes()
        for given, cause in (
            ([], "there are no gradients to apply"),
            ([grads, other.step()[0]], "of different compressions"),
            (stranger.step()[0], "not gradients of this network"),
            ([grads, grads[0]], "the network has"),
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
            with pytest.raises(NetworkError, match=f"weights `{last}` are not finite"):
                made.set_weights(given)
            with pytest.raises(NetworkError, match="are not finite"):
                worker_of(initial_weights=given)
        assert (made.actor_version, made.local_worker.actor_version) == (0, 0)
        assert made.get_weights().block.tobytes() == before.block.tobytes()
        assert all(torch.isfinite(tensor).all() for tensor in made.actor.parameters())


def test_weights_go_from_one_to_another() -> None:
    with worker_of() as one, worker_of() as other:
        for _ in range(3):
            one.step()
            one.apply_gradients()
        other.set_weights(one.get_weights())
        assert other.actor_version == other.local_worker.actor_version == 3
        assert other.get_weights().block.tobytes() == one.get_weights().block.tobytes()
        named = {name: tensor.detach().clone() for name, tensor in one.actor.named_parameters()}
        other.set_weights(named)
        assert all(torch.equal(tensor, named[name]) for name, tensor in other.actor.named_parameters())
        third = GWorker(5, CWorkerSet.create_factory(one.local_worker.blueprint), initial_weights=one.get_weights())
        assert third.actor_version == 3
        assert all(torch.equal(tensor, named[name]) for name, tensor in third.actor.named_parameters())


def test_a_parameter_changes_everywhere() -> None:
    with worker_of(2, "Parallel") as made:
        made.update_algorithm_parameter("learning_rate", 0.5)
        made.update_algorithm_parameter("entropy_weight", 0.25)
        everybody = [made.algo, made.learner, *(w.algo for w in (made.local_worker, *made.remote_workers))]
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


@every_mode
def test_stop_joins_everything(workers: int, execution: str, communication: str) -> None:
    before = threading.active_count()
    made = worker_of(workers, execution, communication)
    made.step()
    made.stop()
    made.stop()
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="stopped"):
        steps(made, 10 * QUEUE_ITEMS)


def steps(made: GWorker, count: int) -> None:
    for _ in range(count):
        made.step()


def test_what_does_not_go_together_is_refused_at_once() -> None:
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


def test_one_that_does_not_collect_has_no_data() -> None:
    with worker_of(collects=False) as made, pytest.raises(RuntimeError, match="no collection workers of its own"):
        made.step()
