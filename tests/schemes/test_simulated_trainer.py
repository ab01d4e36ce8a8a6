"""The built-in trainer in the simulator: what its schedules cover, that they pass, and what broken slots look like."""

from __future__ import annotations

import dataclasses
import functools
import gc
import itertools
import re
import runpy
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulation import Faults, Simulation, simulate, simulated_process, trainer
from simulation.trainer import MOST, Schedule, run, schedule

from hive import _native
from hive.config import load_config
from hive.gradients import EPISODES
from hive.networks.weights.state import StateLayout
from hive.runtime.memory.segments import Bytes, SlabView

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "simulate"
MODES = ("synchronous", "pipelined", "asynchronous")
SEEDS = range(300)  # seeds that CI simulates
FIRST = 8  # number of these seeds in the everyday tier
PATIENCE_S = 20.0  # timeout in virtual seconds; a run that ends takes less than 2
LIMIT_S = 3_600  # timeout of a program, in seconds; only a hung program reaches it


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A run that hangs is found sooner; SlabView.Words is put back."""
    monkeypatch.setattr(trainer, "simulate", functools.partial(simulate, limit_s=PATIENCE_S))
    monkeypatch.setattr(simulated_process, "MOST_AT_ONCE", 20_000)
    monkeypatch.setattr(SlabView, "Words", SlabView.Words)
    return monkeypatch


def told(simulation: Simulation) -> tuple[Any, ...]:
    """Story, events and ending. Real time that a page or the optimizer_state holds is left out."""
    events = [re.sub(r" after \d+\.\d s", "", event) for event in simulation.events]
    outcome = simulation.outcome
    assert outcome is not None
    ending = outcome.state, outcome.reason, outcome.exact, outcome.restarts, outcome.channels, outcome.digest
    return simulation.history, events, ending, simulation.wrong, simulation.callbacks, simulation.virtual_s


# --- what the schedules cover


@functools.cache
def configs() -> list[tuple[Schedule, dict[str, str]]]:
    """The schedules of CI, and what each sets, by key."""
    planned = [schedule(seed) for seed in SEEDS]
    return [(one, dict(text.split("=", 1) for text in one.sets)) for one in planned]


def counted(key: Callable[[Schedule, dict[str, str]], Any]) -> Counter[Any]:
    return Counter(key(planned, sets) for planned, sets in configs())


def test_every_pair_of_modes_occurs_often() -> None:
    pairs = counted(lambda _, sets: (sets["collection.communication"], sets["gradients.communication"]))
    assert set(pairs) == {(one, other) for one in MODES for other in MODES}
    assert min(pairs.values()) > 15


def test_every_placement_and_ownership_occurs() -> None:
    counts = counted(lambda _, sets: tuple(sets[f"{t}.workers"] == "0" for t in ("collection", "gradients")))
    assert min(counts[True, False], counts[False, True]) > 10, (
        "collectors in their gradient workers, all in the learner"
    )
    owners = counted(lambda _, sets: sets.get("collection.ownership"))
    assert min(owners["gradient_worker"], owners[None]) > 30


@pytest.mark.parametrize("table", ["collection", "gradients"])
def test_from_one_to_64_workers_occur(table: str) -> None:
    counts = counted(lambda _, sets: int(sets[f"{table}.workers"]))
    assert min(counts) == 0
    assert 60 <= max(counts) <= MOST == 64
    assert counts[1] > 15, "small ones are the common ones: they cost less, and no less goes wrong in them"
    assert sum(n for workers, n in counts.items() if workers >= 32) > 30


def test_all_kinds_of_faults_and_barriers_occur() -> None:
    assert set(counted(lambda planned, _: planned.faults.deaths)) == {0, 1, 2, 4}
    assert set(counted(lambda planned, _: planned.faults.stops)) == {0, 1}
    for fault in ("preempted", "full"):
        rates = [getattr(planned.faults, fault) for planned, _ in configs()]
        assert min(rates.count(0.0), len(rates) - rates.count(0.0)) > 30, fault
    assert set(counted(lambda planned, _: planned.moments)) == {False, True}
    assert {1, 2, 4} <= set(counted(lambda planned, _: planned.gradients_per_round))
    for key in (
        *("gradients.bootstrap_rounds", "gradients.decentralized", "gradients.max_lag"),
        *("collection.broadcast_interval", "collection.fraction_workers", "collection.max_lag", "run.carrier"),
    ):
        present = sum(key in sets for _, sets in configs())
        assert 30 < present < len(SEEDS) - 30, key
    assert {"{}", "{updates=1}", "{updates=2}", "{updates=3}"} == set(counted(lambda _, sets: sets["checkpoint.every"]))


def test_every_schedule_is_a_config_that_hive_takes() -> None:
    for planned, _ in configs()[:100]:
        load_config("simulated.toml", planned.sets, text='[env]\nid = "none"')


def test_a_seed_is_one_schedule_and_describes_it() -> None:
    assert schedule(17) == schedule(17)
    assert schedule(17) != schedule(18)
    text = str(schedule(17))
    assert text.startswith("seed 17: collection.communication=")
    assert all(part in text for part in (*schedule(17).sets, "gradients a round", "Faults(deaths="))
    assert all(int(value) <= 3 for value in re.findall(r"\.workers=(\d+)", str(schedule(17, most=3))))


# --- what is simulated is right, and is judged


def small(
    *sets: str, per_round: int = 1, steps: int = 8, faults: Faults | None = None, moments: bool = False
) -> Schedule:
    """Two collectors and two gradient workers in a world where nothing goes wrong, unless told otherwise."""
    size = ("collection.workers=2", "gradients.workers=2", "checkpoint.every={updates=2}", f"run.steps={steps}")
    return Schedule(0, (*size, *sets), per_round, moments, faults or Faults())


@pytest.mark.rotates
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("sets", "per_round", "moments"),
    [
        ((), 1, False),
        (("gradients.bootstrap_rounds=2",), 4, False),
        (("gradients.decentralized=true",), 3, True),
        (("collection.communication=pipelined", "gradients.communication=pipelined"), 2, False),
    ],
    ids=["plain", "bootstrap", "decentralized", "pipelined"],
)
def test_every_rollout_of_an_exact_run_is_applied_once(
    sets: tuple[str, ...], per_round: int, moments: bool, seed: int
) -> None:
    planned = small(*sets, per_round=per_round, moments=moments)
    simulation = run(dataclasses.replace(planned, seed=seed))
    outcome = simulation.outcome
    assert (simulation.wrong, simulation.errors) == ([], [])
    assert outcome is not None
    assert (outcome.state, outcome.reason, outcome.exact) == ("finished", "8 steps", True)
    assert (outcome.results["env_steps"], outcome.results["episodes"]) == (8, 8)
    updates = per_round - moments if "gradients.bootstrap_rounds=2" not in sets else per_round // 2
    assert outcome.results["updates"] == 4 * updates
    assert outcome.channels["metrics"]["consumed"] >= 1
    assert outcome.channels["checkpoints"]["produced"] >= 1


def test_the_order_of_the_world_changes_nothing_of_an_exact_run() -> None:
    endings = set()
    for seed in range(5):
        outcome = run(dataclasses.replace(small(faults=Faults(preempted=0.3)), seed=seed)).outcome
        assert outcome is not None
        endings.add((outcome.digest, outcome.results["mean_return_100"], outcome.channels["gradients"]["consumed"]))
    assert len(endings) == 1


def test_a_rollout_that_is_used_twice_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that labels its second rollout as its first."""

    def collect(self: Any, rollout: Any, *, sequence: int, version: int, **rest: Any) -> None:
        sound(self, rollout, sequence=sequence, version=version, **rest)
        rollout["episode_returns"][:] = self.source * trainer.PER_COLLECTOR + max(0, sequence - 1)

    sound = trainer._Collector.collect
    monkeypatch.setattr(trainer._Collector, "collect", collect)
    assert "rollouts that were applied twice: [0, 65536]" in run(small()).wrong


def test_a_rollout_that_is_left_out_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient worker that makes its second gradient of nothing, and counts it all the same."""

    def compute(self: Any, rollouts: Sequence[Any], out: Any, *, sequence: int, **rest: Any) -> None:
        sound(self, rollouts, out, sequence=sequence, **rest)
        if sequence == 1:
            out["header"][EPISODES] = 0

    sound = trainer._GradientWorker.compute
    monkeypatch.setattr(trainer._GradientWorker, "compute", compute)
    assert "rollouts that were not applied: [1, 65537]" in run(small()).wrong


def test_an_actor_that_raises_is_wrong_though_it_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[int] = []

    def collect(self: Any, rollout: Any, *, sequence: int, version: int, **rest: Any) -> None:
        if sequence == 2 and not raised:
            raised.append(sequence)
            raise ValueError("no more")
        sound(self, rollout, sequence=sequence, version=version, **rest)

    sound = trainer._Collector.collect
    monkeypatch.setattr(trainer._Collector, "collect", collect)
    assert run(small()).wrong == ["an actor raised ValueError('no more')"]


# --- what they find


def harsh(seed: int) -> Schedule:
    """Few processes, of which many are killed: in most of these schedules one is killed while it holds a slot."""
    planned = schedule(seed, most=6)
    return dataclasses.replace(planned, faults=dataclasses.replace(planned.faults, deaths=30, after=600))


def verdict(seed: int) -> tuple[list[str], tuple[Any, ...]]:
    """Return the problem and its report. A run that cannot continue is a problem too, as in scripts/simulate."""
    try:
        simulation = run(harsh(seed))
    except RuntimeError as error:
        return [str(error)], (str(error),)
    return simulation.wrong, told(simulation)


DOZENS = range(10)


def test_sound_slots_break_no_promise(quick: pytest.MonkeyPatch) -> None:
    deaths = 0
    for seed in DOZENS:
        simulation = run(harsh(seed))
        assert simulation.wrong == [], f"harsh({seed})"
        assert simulation.outcome is not None
        assert simulation.outcome.results["env_steps"] > 0
        deaths += sum("killed" in line for line in simulation.history)
    assert deaths > 5 * len(DOZENS)


FILLING, COMMITTING, FULL, CLAIMED, RETIRING = range(1, 6)
HEADER, PRODUCED, SLOT, TALLIES = 8, 3, 16, slice(1, 9)  # in words of 8 bytes, see native/include/hive/slots.hpp


class Broken(_native.Slab):
    """Slot words with access to their memory, for invalid transitions."""

    def __init__(self, memory: Bytes) -> None:
        super().__init__(memory)
        self.control = memory.view(np.uint64)

    def words_of(self, slot: int) -> Any:
        """The word of a slot and its tallies."""
        start = HEADER + SLOT * slot
        return self.control[start : start + SLOT]

    def put(self, slot: int, state: int, actor: int, incarnation: int) -> None:
        sequence = int(self.words_of(slot)[0]) & 0xFFFFFFFF
        self.words_of(slot)[0] = state << 56 | actor << 46 | (incarnation & 0xFF) << 38 | sequence

    def held(self, actor: int, incarnation: int, *states: int) -> list[int]:
        mine = (actor, incarnation & 0xFF)
        return [i for i in range(self.slots) if self.state(i)[0] in states and self.state(i)[1:3] == mine]

    def recover_all_but(self, states: Sequence[int], actor: int, incarnation: int, *rest: Any) -> int:
        """Leaves what the dead one held in these states as it was."""
        kept = {i: self.words_of(i).copy() for i in self.held(actor, incarnation, *states)}
        held = super().recover(actor, incarnation, *rest)
        for slot, words in kept.items():
            self.words_of(slot)[:] = words
        return held


class ForgetsWhatWasFilled(Broken):
    def recover(self, *args: Any) -> int:
        return self.recover_all_but([FILLING], *args)


class ForgetsWhatWasClaimed(Broken):
    def recover(self, *args: Any) -> int:
        return self.recover_all_but([CLAIMED], *args)


class LeavesHalfStates(Broken):
    def recover(self, *args: Any) -> int:
        return self.recover_all_but([COMMITTING, RETIRING], *args)


class CountsHalfCommitsAgain(Broken):
    """Completes a half commit as if it had never been counted."""

    def recover(self, actor: int, incarnation: int, *rest: Any) -> int:
        made, halves = self.produced, self.held(actor, incarnation, COMMITTING)
        held = super().recover(actor, incarnation, *rest)
        if halves:
            self.control[PRODUCED] = made + 1
        return held


class NeverOffersAgain(Broken):
    def recover(self, actor: int, incarnation: int, reoffer: bool, reason: int) -> int:
        return super().recover(actor, incarnation, False, reason)


class AlwaysOffersAgain(Broken):
    """Also the rollouts that a gradient may have been made of."""

    def recover(self, actor: int, incarnation: int, reoffer: bool, reason: int) -> int:
        return super().recover(actor, incarnation, True, reason)


class RetiresUncounted(Broken):
    def retire(self, slot: int, *args: Any) -> None:
        tallies = self.words_of(slot)[TALLIES].copy()
        super().retire(slot, *args)
        self.words_of(slot)[TALLIES] = tallies


class GivesOutWhatOthersHold(Broken):
    """If no slot is full, claim a slot that another consumer has claimed."""

    def claim(self, actor: int, incarnation: int, sequence: int = -1) -> int:
        slot = super().claim(actor, incarnation, sequence)
        for other in range(self.slots) if slot < 0 else ():
            state, owner, _, number = self.state(other)
            if state == CLAIMED and owner != actor and sequence in (-1, number):
                self.put(other, CLAIMED, actor, incarnation)
                return other
        return slot


class GivesOutTwice(Broken):
    """The next one gets it too."""

    def claim(self, actor: int, incarnation: int, sequence: int = -1) -> int:
        slot = super().claim(actor, incarnation, sequence)
        if slot >= 0:
            self.put(slot, FULL, actor, incarnation)
        return slot


class FillsWhatIsFull(Broken):
    """If no slot is free, overwrite a message that no consumer has read."""

    def reserve(self, actor: int, incarnation: int, *only: int) -> int:
        slot = super().reserve(actor, incarnation, *only)
        for full in range(self.slots) if slot < 0 else ():
            if self.state(full)[0] == FULL:
                self.put(full, FILLING, actor, incarnation)
                return full
        return slot


class CountsCommitsTwice(Broken):
    def commit(self, *args: int) -> int:
        sequence = super().commit(*args)
        self.control[PRODUCED] += np.uint64(1)
        return sequence


class CommitsUncounted(Broken):
    def commit(self, *args: int) -> int:
        sequence = super().commit(*args)
        self.control[PRODUCED] -= np.uint64(1)
        return sequence


HANGS = "the run ended as stopped: it did not end within|something still spins"
UNBALANCED = r"the account of \w+ does not add up|has retired more than was produced"
RAISED = "cannot (retire|commit) slot"
TWICE = "rollouts that were applied twice"
MUTANTS: list[tuple[type[Broken], str]] = [
    (ForgetsWhatWasFilled, HANGS),
    (ForgetsWhatWasClaimed, HANGS),
    (LeavesHalfStates, HANGS),
    (CountsHalfCommitsAgain, f"{HANGS}|{UNBALANCED}"),
    (NeverOffersAgain, HANGS),
    (AlwaysOffersAgain, TWICE),
    (RetiresUncounted, UNBALANCED),
    (GivesOutWhatOthersHold, f"{RAISED}|{TWICE}"),
    (GivesOutTwice, f"{HANGS}|{RAISED}"),
    (FillsWhatIsFull, f"{HANGS}|{UNBALANCED}|{RAISED}"),
    (CountsCommitsTwice, f"{HANGS}|{UNBALANCED}"),
    (CommitsUncounted, f"{HANGS}|{UNBALANCED}"),
]


@pytest.mark.rotates
# What spins is given up in the middle of everything, and Python says so of each of its coroutines.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("mutant", "symptom"), MUTANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_transition_is_found_and_the_seed_that_finds_it_replays_exactly(
    mutant: type[Broken], symptom: str, quick: pytest.MonkeyPatch
) -> None:
    quick.setattr(SlabView, "Words", mutant)
    seed, (wrong, story) = next((seed, found) for seed in range(30) if (found := verdict(seed))[0])
    assert any(re.search(symptom, text) for text in wrong), (seed, wrong)
    assert verdict(seed) == (wrong, story)
    gc.collect()


# --- target networks


def with_target(seed: int) -> Schedule:
    """Few actors of which many die, half of the time in the middle of something, with a target that moves often."""
    planned = schedule(seed, most=2)
    mine = ("algorithm.name=nstep-q", f"algorithm.target_interval={1 + seed % 3}", "checkpoint.every={updates=2}")
    return dataclasses.replace(
        planned,
        sets=(*(one for one in planned.sets if "checkpoint.every" not in one and "algorithm" not in one), *mine),
        faults=dataclasses.replace(planned.faults, deaths=6, torn=1.0, after=40, full=0.0),
    )


def test_a_learner_may_die_between_any_two_stores_of_a_target(quick: pytest.MonkeyPatch) -> None:
    """Weights, target and optimizer_state are the state by one store: whatever was written before it does not exist."""
    torn = 0
    for seed in range(60):
        simulation = run(with_target(seed))
        assert simulation.wrong == [], f"with_target({seed})"
        torn += sum("torn a store of learner-0" in line for line in simulation.history)
    assert torn >= 5


def stale(layout: StateLayout, before: Any, after: Any, rate: float, version: int) -> None:
    """Keeps whatever target the block happens to hold."""
    if rate > 0.0:
        layout._write_target(layout.weights(after), after, version)


def early(layout: StateLayout, before: Any, after: Any, rate: float, version: int) -> None:
    """Takes the weights before the update."""
    layout._write_target(layout.weights(before) if rate else layout.target(before), after, version)


@pytest.mark.parametrize("mutant", [stale, early])
def test_a_target_that_does_not_follow_its_schedule_is_found(mutant: Any, quick: pytest.MonkeyPatch) -> None:
    quick.setattr(StateLayout, "follow", mutant)
    wrong = next(wrong for seed in range(60) if (wrong := run(with_target(seed)).wrong))
    assert any("does not follow its schedule" in text for text in wrong)


@pytest.mark.rotates
@pytest.mark.parametrize("seed", [1, 5, 36])
def test_a_schedule_is_the_same_however_fast_the_machine_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = schedule(seed, most=8)
    quickly = told(run(planned))
    ticks = itertools.count(1)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(ticks) * 10**10)
    assert told(run(planned)) == quickly


# --- every transition may be the last


LONG = pytest.mark.full(reason="hundreds of runs of the simulator")
OTHER_MODE = pytest.mark.full(reason="the same in another mode", rotates=True)


class LastWords(_native.Slab):
    """Raises before or after one transition of the run, by its number: its process fails, and comes back."""

    at = 0
    after = False
    made = 0

    def fail(self, transition: Callable[..., Any], *args: Any) -> Any:
        cls = type(self)
        cls.made += 1
        last = cls.made == cls.at
        if last and not cls.after:
            raise ArithmeticError("before")
        result = transition(*args)
        if last:
            raise ArithmeticError("after")
        return result

    def reserve(self, *args: int) -> int:
        return int(self.fail(super().reserve, *args))

    def commit(self, *args: int) -> int:
        return int(self.fail(super().commit, *args))

    def claim(self, *args: int) -> int:
        return int(self.fail(super().claim, *args))

    def retire(self, *args: int) -> None:
        self.fail(super().retire, *args)


BOOTSTRAP = ("gradients.bootstrap_rounds=2",)
PIPELINED = ("collection.communication=pipelined", "collection.max_lag=3")


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("sets", "per_round", "after"),
    [
        pytest.param(BOOTSTRAP, 2, True, marks=pytest.mark.rotates, id="bootstrap, after"),
        pytest.param(PIPELINED, 1, False, marks=pytest.mark.rotates, id="pipelined, before"),
        pytest.param(BOOTSTRAP, 2, False, marks=OTHER_MODE, id="bootstrap, before"),
        pytest.param(PIPELINED, 1, True, marks=OTHER_MODE, id="pipelined, after"),
        pytest.param(("gradients.communication=asynchronous",), 1, True, marks=OTHER_MODE, id="asynchronous, after"),
        pytest.param(("gradients.decentralized=true",), 2, False, marks=OTHER_MODE, id="decentralized, before"),
    ],
)
def test_a_failure_at_any_transition_does_not_stop_the_run(
    sets: tuple[str, ...], per_round: int, after: bool, quick: pytest.MonkeyPatch
) -> None:
    """Not by chance but one by one: among them is a learner that dies with the gradients of a round half retired."""
    planned = small(*sets, per_round=per_round, steps=6)
    at, failures = 0, 0
    while True:
        at += 1
        words: type[LastWords] = type("Words", (LastWords,), {"at": at, "after": after})
        quick.setattr(SlabView, "Words", words)
        simulation = run(planned)
        errors = [error for error in simulation.errors if not isinstance(error, ArithmeticError)]
        assert errors == [], (at, errors)
        assert [text for text in simulation.wrong if "ArithmeticError" not in text] == [], at
        assert simulation.outcome is not None
        assert simulation.outcome.results["env_steps"] >= 6
        failures += bool(simulation.errors)
        if words.made < at:
            break
    assert failures > 30


# --- the program


def simulated(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


@LONG
def test_the_schedules_of_ci_break_no_promise() -> None:
    done = simulated("--schedules", str(len(SEEDS)))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.fullmatch(rf"{len(SEEDS):,} schedules, [\d,]+ callbacks in [\d.]+ s: 0 failed\n", done.stdout)


def test_one_seed_is_described_in_full() -> None:
    seed = next(seed for seed in SEEDS if killed_early(schedule(seed, most=MOST)))
    done = simulated("--seed", str(seed))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == str(schedule(seed))
    times = [float(line.split()[0]) for line in lines[1:-1]]
    assert times == sorted(times)
    for word in (" killed ", " died: ", " running: ", " draining: "):
        assert any(word in line for line in lines[1:-1]), word
    assert re.match(r"[\d,]+ callbacks, [\d.]+ virtual s, Outcome\(state='finished'", lines[-1])


def killed_early(planned: Schedule) -> bool:
    """A small schedule in which a process is certainly killed."""
    sizes = [int(value) for value in re.findall(r"\.workers=(\d+)", str(planned))]
    return planned.faults.deaths == 4 and planned.faults.after < 60 and sum(sizes) < 10


@pytest.fixture
def program(quick: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """scripts/simulate in this process, where slots can be broken. Settings of the whole process are restored."""
    threshold = gc.get_threshold()

    def call(*arguments: str) -> int:
        quick.setattr(sys, "argv", [str(SCRIPT), *arguments])
        return int(runpy.run_path(str(SCRIPT))["main"]())

    yield call
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_the_first_schedules_break_no_promise(program: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert program("--schedules", str(FIRST), "--jobs", "1") == 0
    assert re.fullmatch(rf"{FIRST} schedules, [\d,]+ callbacks in [\d.]+ s: 0 failed\n", capsys.readouterr().out)


@pytest.mark.full(reason="twenty runs of the simulator, which a seed repeats")
def test_failing_seeds_are_named_and_can_be_had_again(
    program: Callable[..., int], quick: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick.setattr(SlabView, "Words", RetiresUncounted)
    assert program("--first", "30", "--schedules", "21", "--jobs", "1") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == [f"seed {seed}" for seed in range(30, 50)], "20 are enough"
    assert re.fullmatch(r"21 schedules, .*: 21 failed", lines[-1])
    assert program("--seed", "31") == 1
    again = capsys.readouterr().out
    assert again.startswith(str(schedule(31)))
    assert all("add up" in line for line in again.splitlines() if line.startswith("wrong: "))
    assert "\nwrong: the account of " in again


def test_a_simulation_that_cannot_go_on_fails_and_the_others_go_on(
    program: Callable[..., int], quick: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refusing(_native.Slab):
        made = 0

        def __init__(self, memory: Bytes) -> None:
            super().__init__(memory)
            Refusing.made += 1
            if Refusing.made == 1:
                raise OSError("no memory")

    quick.setattr(SlabView, "Words", Refusing)
    assert program("--schedules", "3", "--jobs", "1") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "seed 0: OSError: no memory"
    assert lines[-1].endswith(": 1 failed")
    assert len(lines) == 2
