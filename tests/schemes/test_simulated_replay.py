"""The trainer with a replay memory in the simulator: what its schedules cover, that they pass, and what faults show."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from simulation import replay, simulate
from simulation.replay import run, schedule

from hive.training import ReplayLearnerActor
from hive.training.update.replay_memory import ReplaySize

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "simulate"
LONG = pytest.mark.full(reason="many runs of the simulator with real gradients")
SEEDS = range(100)  # seeds that CI simulates in the full tier
FIRST = range(4)  # those of the everyday tier
PATIENCE_S = 20.0  # timeout in virtual seconds
LIMIT_S = 3_600  # timeout of a program, in seconds; only a hung program reaches it


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A run that hangs is found sooner, and runs of broken code are not kept."""
    monkeypatch.setattr(replay, "simulate", functools.partial(simulate, limit_s=PATIENCE_S))
    replay._undisturbed.cache_clear()
    yield monkeypatch
    replay._undisturbed.cache_clear()


def test_the_schedules_cover_the_modes_and_sizes() -> None:
    planned = [schedule(seed) for seed in SEEDS]
    settings = [dict(text.split("=", 1) for text in one.sets) for one in planned]
    for table, most in (("collection", 3), ("gradients", 3)):
        assert {int(sets[f"{table}.workers"]) for sets in settings} == set(range(most + 1))
        assert {sets.get(f"{table}.max_lag") for sets in settings} == {None, "1", "2", "3"}
    assert {sets["collection.communication"] for sets in settings} == {"synchronous", "pipelined", "asynchronous"}
    for key, values in {
        "run.carrier": {"slots", "zmq"},
        "collection.broadcast_interval": {"1", "2"},
        "algorithm.n_step": {"1", "2", "3"},
        "algorithm.priority_exponent": {"0.0", "0.6"},
        "run.scheme": {"dqn", "sac", "td3"},
        "algorithm.initial_errors": {None, "false", "true"},
        "algorithm.critic_first": {None, "false", "true"},
        "network.normalize_rewards": {None, "true"},
    }.items():
        assert {sets.get(key) for sets in settings} == values, key
    assert 40 < sum(one.exact for one in planned) < 90
    assert all(one.faults.victims == () for one in planned if not one.exact)
    assert not any("collector" in one.faults.victims for one in planned)
    assert schedule(17) == schedule(17)
    assert schedule(17) != schedule(18)
    assert str(schedule(17)).startswith("seed 17: collection.workers=")


@pytest.mark.rotates
@pytest.mark.parametrize("seed", FIRST)
def test_kills_change_no_byte_and_lose_no_round(quick: pytest.MonkeyPatch, seed: int) -> None:
    assert run(schedule(seed)).wrong == []


@LONG
def test_the_schedules_of_ci_break_no_promise() -> None:
    command = [sys.executable, str(SCRIPT), "--of", "replay", "--schedules", str(len(SEEDS))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.fullmatch(rf"{len(SEEDS):,} schedules, [\d,]+ callbacks in [\d.]+ s: 0 failed\n", done.stdout)


# --- faults of the trainer, and their symptoms


class PublishesFirst(ReplayLearnerActor):
    """Publishes the ledger before the rows are written."""

    async def _admit(self) -> None:
        admit, publish = self.replay.admit, self.ledger.board.publish

        def published_first(rollouts: Any, before: Any, after: Any, largest: int) -> None:
            admit_to = {name: array.copy() for name, array in after.items()}
            written, made = before["written"].copy(), before["rollouts"].copy()
            for name, array in before.items():
                after[name][:] = array
            for rollout in rollouts:
                written[rollout.source] += rollout.length + bool(written[rollout.source] and rollout.begins)
                made[rollout.source] += 1
            after["written"][:], after["rollouts"][:] = written, made
            publish(self.ledger.board.latest + len(rollouts))
            admit(rollouts, before, admit_to, largest)
            for name, array in admit_to.items():
                after[name][:] = array

        self.replay.admit = published_first  # type: ignore[method-assign]
        self.ledger.board.publish = lambda version: None  # type: ignore[method-assign]
        try:
            await super()._admit()
        finally:
            self.replay.admit, self.ledger.board.publish = admit, publish  # type: ignore[method-assign]


class LearnsAfterTheCommit(ReplayLearnerActor):
    """Sets the priorities of a turn after it is committed."""

    def _turn(self, claimed: Any) -> None:
        super()._turn(claimed)
        plan = self.plan_views(self.plans.board.read((self.turn - 1) // self.per_batch))
        self.replay.learn(plan, [slot.arrays["errors"] for slot in claimed])

    def _learned(self, claimed: Any, after: Any) -> None: ...


class LearnsOfAnotherPlan(ReplayLearnerActor):
    """Draws the plan of a turn again instead of reading it."""

    def _learned(self, claimed: Any, after: Any) -> None:
        plan = {
            name: array.copy()
            for name, array in self.plan_views(self.plans.board.read(self.plans.board.latest)).items()
        }
        super(type(self.replay), self.replay).draw(self.turn // self.per_batch, self._ledger(), plan)
        self.replay.learn(plan, [slot.arrays["errors"] for slot in claimed])


class DoesNotWait(ReplayLearnerActor):
    """Overwrites rows that a checkpoint still needs."""

    async def _until_saved(self, rollouts: Any) -> None: ...


class CountsBeforeTheCommit(ReplayLearnerActor):
    """Adds the steps of rollouts to the statistics of the ledger that is published already."""

    async def _admit(self) -> None:
        admit = self.replay.admit

        def counted_first(rollouts: Any, before: Any, after: Any, largest: int) -> None:
            for rollout in rollouts:
                self.replay._observe(rollout, before)
            self.replay._observe = lambda rollout, ledger: None  # type: ignore[method-assign]
            admit(rollouts, before, after, largest)
            del self.replay._observe

        self.replay.admit = counted_first  # type: ignore[method-assign]
        try:
            await super()._admit()
        finally:
            self.replay.admit = admit  # type: ignore[method-assign]


RING_SEED = 25  # a seed in which gradients lag far behind
OTHER_BYTES = "not (as|those) in the run without faults|are not those of the run without faults"
MUTANTS: list[tuple[type[ReplayLearnerActor], int, str]] = [  # with a seed that finds it, until schedules change
    (PublishesFirst, 6, "was admitted twice, or not at all"),
    (LearnsAfterTheCommit, 126, OTHER_BYTES),
    (LearnsOfAnotherPlan, 14, OTHER_BYTES),
    (CountsBeforeTheCommit, 0, "are in the statistics"),
    (DoesNotWait, 2, "was overwritten before it was saved"),
]


def broken(first: int, symptom: str) -> bool:
    """Return whether a schedule breaks a promise with this symptom. The seed `first` is tried first."""
    for seed in (first, *SEEDS):
        try:
            wrong = run(schedule(seed)).wrong
        except RuntimeError as error:  # also without faults
            wrong = [str(error)]
        if wrong:
            assert any(re.search(symptom, text) for text in wrong), (seed, wrong)
            return True
    return False


@LONG
@pytest.mark.parametrize(("mutant", "seed", "symptom"), MUTANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_faulty_learner_is_found(
    mutant: type[ReplayLearnerActor], seed: int, symptom: str, quick: pytest.MonkeyPatch
) -> None:
    assert run(schedule(seed)).wrong == []
    replay._undisturbed.cache_clear()
    assemble: Callable[..., Any] = replay.assemble

    def assembled(blueprint: Any, directory: Path) -> Any:
        topology = assemble(blueprint, directory)
        topology["learner"].cls = mutant
        return topology

    quick.setattr(replay, "assemble", assembled)
    assert broken(seed, symptom)


@LONG
def test_a_ring_without_room_for_the_rounds_ahead_is_found(quick: pytest.MonkeyPatch) -> None:
    small = property(lambda size: size.kept + size.steps + 1 + size.n_step + size.stack)
    quick.setattr(ReplaySize, "rows", small)
    assert broken(RING_SEED, "was gathered as|was overwritten before")
