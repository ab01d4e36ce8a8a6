"""Decentralized updates: every gradient worker applies all gradients itself, and all come to the same bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_trainer import config_of

from hive.gradients import SAMPLES, clear
from hive.records import RunDirectory
from hive.schemes.trainer import assemble
from hive.testing import run_inline
from hive.training import Blueprint, GradientWorkerActor, LearnerActor, Replica, replica_slots
from hive.training.run_start import write_first_state

ENV = "small_environments:Drift"
LIMIT_S = 60.0  # only a test that fails takes so long

MODES: dict[str, dict[str, Any]] = {
    "a2c": {},
    "a2c of two rounds": {"gradients__bootstrap_rounds": 2},
    "a2c normalised": {"algorithm__normalize_advantages": "true"},
    "a2c pipelined": {"gradients__communication": '"pipelined"', "gradients__max_lag": 2},
    "ppo": {"run__scheme": '"ppo"', "algorithm__minibatches": 2, "algorithm__epochs": 2},
    "ppo pipelined": {"run__scheme": '"ppo"', "gradients__communication": '"pipelined"', "algorithm__epochs": 1},
}


class WatchedReplica(Replica):
    """Records its weights after each turn."""

    seen: dict[int, set[str]]
    size: int

    def advance(self, *arguments: Any) -> bool:
        done = super().advance(*arguments)
        if done:
            digest = hashlib.sha256(self.weights[: self.size]).hexdigest()
            self.seen.setdefault(self.turn, set()).add(digest)
        return done


class WatchedWorker(GradientWorkerActor):
    """Its replica shares one record with those of the other workers."""

    def __init__(self, blueprint: Blueprint, directory: Path) -> None:
        super().__init__(blueprint, directory)
        if self.replica is not None:
            self.replica = replica = WatchedReplica(blueprint.learner(), blueprint.state.bytes)
            replica.seen, replica.size = blueprint.__dict__.setdefault("seen", {}), blueprint.flat.parameter_bytes


class WatchedLearner(LearnerActor):
    """Records the learner's weights after each turn."""

    def _turn(self, claimed: Any) -> None:
        super()._turn(claimed)
        block = self.weights.board.read(self.turn)[: self.blueprint.flat.parameter_bytes]
        self.blueprint.__dict__.setdefault("truth", {})[self.turn] = hashlib.sha256(block).hexdigest()


def train(folder: Path, decentralized: bool, workers: int = 2, **values: Any) -> tuple[str, Blueprint]:
    """Return the digest of the run and the recorded weights."""
    config = config_of(
        ENV,
        **{"run__steps": 384, "collection__workers": workers, "gradients__workers": workers, **values},
        gradients__decentralized=str(decentralized).lower(),
    )
    directory = RunDirectory.create(folder, "run")
    blueprint = Blueprint(config)
    topology = assemble(blueprint, directory.path)
    topology["learner"].cls = WatchedLearner
    topology["gradient-workers"].cls = WatchedWorker
    outcome = run_inline(topology, seconds=LIMIT_S)
    assert (outcome.state, outcome.exact) == ("finished", True)
    return outcome.digest, blueprint


@pytest.mark.rotates
@pytest.mark.parametrize("mode", MODES)
def test_all_replicas_have_the_bytes_of_the_learner_after_every_turn(tmp_path: Path, mode: str) -> None:
    digest, blueprint = train(tmp_path / "apart", True, **MODES[mode])
    seen, truth = blueprint.__dict__["seen"], blueprint.__dict__["truth"]
    assert len(truth) >= 6
    assert len(set(truth.values())) > len(truth) / 2  # it does learn
    shared = seen.keys() & truth.keys()
    assert len(shared) >= len(truth) - 1 - blueprint.config.gradients.max_lag
    for turn in shared:
        assert seen[turn] == {truth[turn]}, turn
    central, _ = train(tmp_path / "central", False, **MODES[mode])
    assert digest == central


def test_three_replicas(tmp_path: Path) -> None:
    digest, blueprint = train(tmp_path / "apart", True, workers=3)
    assert all(len(digests) == 1 for digests in blueprint.__dict__["seen"].values())
    assert digest == train(tmp_path / "central", False, workers=3)[0]


# --- the object by itself


def gradient(blueprint: Blueprint, number: int, value: float) -> dict[str, Any]:
    layout = blueprint.gradient_layout(1)
    arrays = layout.views(np.zeros(layout.bytes + 64, np.uint8)[: layout.bytes])
    clear(arrays, version=0, sequence=number)
    arrays["header"][SAMPLES] = 1
    arrays["gradient"][:] = value
    return arrays


@pytest.fixture
def blueprint() -> Blueprint:
    return Blueprint(config_of(ENV, gradients__workers=2, collection__workers=2))


def copied(blueprint: Blueprint) -> Replica:
    replica = Replica(blueprint.learner(), blueprint.state.bytes)
    state, optimizer_state = (
        np.zeros(blueprint.state.bytes, np.uint8),
        np.zeros(blueprint.optimizer_state_bytes, np.uint8),
    )
    replica.copy(write_first_state(blueprint, state, optimizer_state), state, optimizer_state)
    return replica


def test_a_replica_advances_alone_after_one_copy(blueprint: Blueprint) -> None:
    replica = copied(blueprint)
    before = replica.weights.copy()
    assert replica.turn == 0
    assert replica.advance([gradient(blueprint, 0, 0.1), gradient(blueprint, 0, 0.3)], [0, 0])
    assert replica.turn == 1
    assert not np.array_equal(replica.weights, before)
    assert replica.weights.ctypes.data % 64 == 0


def test_a_gradient_that_is_another_by_now_is_not_applied(blueprint: Blueprint) -> None:
    replica = copied(blueprint)
    before = replica.weights.copy()
    assert not replica.advance([gradient(blueprint, 0, 0.1), gradient(blueprint, 4, 0.3)], [0, 0])
    assert replica.turn == 0
    assert np.array_equal(replica.weights, before)


def test_a_gradient_that_is_overwritten_meanwhile_is_not_applied(blueprint: Blueprint) -> None:
    replica = copied(blueprint)
    before = replica.weights.copy()
    gradients = [gradient(blueprint, 0, 0.1), gradient(blueprint, 0, 0.3)]
    turn = replica.learner.turn

    def overtaken(*arguments: Any) -> Any:
        done = turn(*arguments)
        clear(gradients[1], version=2, sequence=2)
        return done

    replica.learner.turn = overtaken  # type: ignore[method-assign]
    assert not replica.advance(gradients, [0, 0])
    assert (replica.turn, np.array_equal(replica.weights, before)) == (0, True)


@pytest.mark.parametrize(("lag", "per_turn", "slots"), [(0, 1, 2), (1, 1, 4), (0, 3, 6), (2, 2, 12)])
def test_slots(lag: int, per_turn: int, slots: int) -> None:
    assert replica_slots(lag, per_turn) == slots
