"""Runs with hosts in the simulator: what the schedules cover, that they pass, and schedules that showed faults."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from simulation import Faults, hosts, simulated_process
from simulation.hosts import EVENTS, Event, Schedule, run, schedule
from simulation.simulated_links import LinkFaults

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "simulate"
SEEDS = range(100)  # seeds that CI simulates in the full tier
PATIENCE_S = 60.0  # virtual seconds; a run takes less than 30
LIMIT_S = 3_600  # timeout of a program, in seconds; only a hung program reaches it

FOUND = {
    2: "messages of an earlier incarnation arrive",
    40: "a connection breaks before the head has rollouts that were sent",
    9: "the head waited for the next version when a kill had lost the last one, and tried without a pause",
    11: "an agent asked to join, and sent its status, as fast as the answers came",
    44: "frames of an earlier incarnation arrive",
    101: "the run ended while an agent was away, which took it for a refusal",
    186: "a full queue refused a Holds, which was never repeated",
    23: "a connection breaks with rollouts on their way",
    99: "a connection breaks with rollouts on their way, at the end",
    225: "rollouts are sent again on a new connection",
}
"""Seeds, and the fault that they showed or the case that they cover."""
EVALUATING = (
    *("hosts.cores={left=1}", "hosts.silence_s=2.0", 'collection.hosts=["left"]', "collection.workers=1"),
    *("run.steps=100", "collection.communication=synchronous", "collection.slots=2", "gradients.workers=1"),
    *("evaluation.every={updates=1}", 'evaluation.hosts=["left"]', "evaluation.workers=1"),
)
"""Keys of a run whose only host collects, and evaluates each turn."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find a run that hangs or spins sooner."""
    monkeypatch.setattr(hosts, "LIMIT_S", PATIENCE_S)
    monkeypatch.setattr(simulated_process, "MOST_AT_ONCE", 20_000)


def test_the_schedules_cover_the_modes_and_faults() -> None:
    planned = [schedule(seed) for seed in SEEDS]
    settings = [dict(text.split("=", 1) for text in one.sets) for one in planned]
    for key, values in {
        "hosts.cores": {"{left=1}", "{left=1,right=1}"},
        "collection.communication": {"synchronous", "pipelined", "asynchronous"},
        "run.carrier": {"slots", "zmq"},
        "evaluation.every": {None, "{updates=1}", "{updates=2}"},
    }.items():
        assert {sets.get(key) for sets in settings} == values, key
    assert {event.kind for one in planned for event in one.events} == {*EVENTS}
    assert schedule(17) == schedule(17)
    assert str(schedule(17)).startswith("seed 17: hosts.cores=")


@pytest.mark.rotates
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("seed", FOUND)
def test_schedules_that_showed_a_fault_pass(seed: int) -> None:
    assert run(schedule(seed)).wrong == []


@pytest.mark.usefixtures("quick")
def test_a_seed_fixes_the_schedule() -> None:
    first, second = run(schedule(44)), run(schedule(44))
    assert (first.callbacks, first.virtual_s) == (second.callbacks, second.virtual_s)


@pytest.mark.rotates
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("seed", range(4))
def test_evaluations_and_their_requests_are_sent_again(seed: int) -> None:
    """Connections of a host break one after the other, with a request or its result on the way."""
    breaks = tuple(Event(300 + 200 * number, "break", "left") for number in range(8))
    planned = Schedule(seed, EVALUATING, 1, Faults(), LinkFaults(delay_s=0.05), breaks)
    assert run(planned).wrong == []


@pytest.mark.usefixtures("quick")
@pytest.mark.xfail(reason="a request that arrives while its evaluator still holds the weights before is never answered")
def test_a_request_that_follows_its_result_at_once_is_answered() -> None:
    assert run(schedule(109)).wrong == []


@pytest.mark.full(reason="many runs of the simulator with hosts")
def test_the_schedules_of_ci_break_no_promise() -> None:
    command = [sys.executable, str(SCRIPT), "--of", "hosts", "--schedules", str(len(SEEDS))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.fullmatch(rf"{len(SEEDS):,} schedules, [\d,]+ callbacks in [\d.]+ s: 0 failed\n", done.stdout)
