"""The monitor on real runs: of four troubles it names who, in what and since when, and what the run is bound by.

A sentence may end in "all cores are busy" instead of the key that would help: on a machine with other work it is so.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hive.errors import UsageError
from hive.monitor import ActorRow, Snapshot
from hive.monitor.poller import Poller
from hive.records import RunDirectory, read_run_facts
from hive.runtime.run.control import open_control

if TYPE_CHECKING:
    from conftest import House

CONFIG = """
[run]
name = "patient"
steps = 100_000_000
{run}
[env]
id = "patient_environment:Patient"
options = {{ step_s = {step_s} }}
[collection]
workers = {workers}
envs = 2
rollout = 16
[gradients]
workers = 1
"""


def started(house: House, *, step_s: float = 0.0, workers: int = 1, run: str = 'scheme = "a2c"') -> RunDirectory:
    config = house.config(CONFIG.format(step_s=step_s, workers=workers, run=run), "patient.toml")
    done = house.hive("up", config, "-d")
    assert done.returncode == 0, done.stderr
    house.until_steps("patient-1", 100)
    return RunDirectory.open(house.home / "patient-1")


def row(snapshot: Snapshot, name: str) -> ActorRow:
    return next(row for row in snapshot.actors if row.name == name)


def seen(house: House, poller: Poller, condition: Callable[[Snapshot], bool]) -> Snapshot:
    """The first snapshot of which that is so."""
    found: list[Snapshot] = []

    def is_so() -> bool:
        found[:] = [poller.next()]
        return condition(found[0])

    house.until(is_so)
    return found[0]


def helps(snapshot: Snapshot, key: str) -> bool:
    """Whether the sentence ends in that key, or in that no key helps now: every core is busy, with whatever."""
    return (
        re.search(rf" - {re.escape(key)}$|(core is|cores are) busy$|this run gets .* cores?$", snapshot.bound_by)
        is not None
    )


@pytest.mark.full(reason="watches a run for ten seconds; tests/monitor has the sentence without a run", rotates=True)
def test_a_starved_gradient_worker_waits_for_collectors(house: House) -> None:
    directory = started(house, step_s=0.005)
    with closing(Poller(directory)) as poller:
        snapshot = seen(house, poller, lambda s: s.window_s >= 3)
    assert snapshot.bound_by.startswith("collectors (env ")
    assert helps(snapshot, "collection.workers")
    starved = row(snapshot, "gradient-worker-0")
    assert starved.wait_in is not None
    assert starved.wait_in > 0.8
    assert max(starved.phases, key=lambda phase: starved.phases[phase]) == "wait rollouts"

    answer = house.hive("monitor", "patient-1", "--once", "--json")  # the same from outside
    assert answer.returncode == 0, answer.stderr
    document = json.loads(answer.stdout)
    assert document["bound_by"].startswith("collectors (env ")
    assert document["state"] == "running"
    assert document["steps_per_s"] > 0
    text = house.hive("monitor", "patient-1", "--once", "--ascii").stdout
    assert "bound by: collectors (env" in text
    assert text.isascii()
    assert house.hive("down").returncode == 0
    assert "finished" not in house.hive("monitor", "--once").stdout


@pytest.mark.full(reason="watches a run for ten seconds")
def test_one_that_hangs_in_a_step_and_one_that_is_stopped_are_named(house: House) -> None:
    directory = started(house, step_s=0.002, workers=2)
    with closing(Poller(directory)) as poller:
        victim = row(poller.next(), "collector-1").pid
        (house.home / "hangs").write_text(str(victim))
        snapshot = seen(house, poller, lambda s: s.bound_by.startswith("collector-1 (in `env` for "))
        assert snapshot.bound_by.endswith(" s) - supervision.phase_limit_s")
        hanging = row(snapshot, "collector-1")
        assert (hanging.activity, hanging.state) == ("env", "running")
        assert hanging.since_s >= 3
        assert row(snapshot, "collector-0").activity == "wait behaviour"
        (house.home / "hangs").unlink()
        seen(house, poller, lambda s: row(s, "collector-1").since_s < 1)

        os.kill(row(poller.next(), "collector-0").pid, signal.SIGSTOP)
        snapshot = seen(house, poller, lambda s: row(s, "collector-0").restarts == 1)
        words = seen(house, poller, lambda s: row(s, "collector-0").last_words != "")
        told = row(words, "collector-0").last_words
        assert told.startswith("collector-0 died in `")
        assert " after " in told
        assert "it was stopped (SIGSTOP) and so was killed" in told
        snapshot = seen(house, poller, lambda s: s.window_s >= 4 and "collector-0" not in s.bound_by)
        assert snapshot.bound_by.startswith("collectors (env ")
    assert house.hive("down").returncode == 0


def restarted_by_hand(house: House, directory: RunDirectory) -> None:
    """What the detail of an actor asks of a real supervisor."""
    with closing(open_control(Path(read_run_facts(directory).socket_folder))) as client:
        house.until(lambda: "slow_learner.py" in client.inspect("learner-0")[0])
        assert client.inspect("learner-0")[1] == ("starting -ready-> ready", "ready -begin-> running")
        with pytest.raises(UsageError, match="patient-1 has no actor `lerner-0`"):
            client.inspect("lerner-0")
        client.kill("collector-0", by_hand=True)
        house.until(lambda: house.ps("patient-1")["collector-0"]["restarts"] == 1)
        client.kill("gradient-worker-0", by_hand=False)
        house.until(lambda: house.ps("patient-1")["gradient-worker-0"]["restarts"] == 1)
    restarted, killed = [event["text"] for event in house.events("patient-1") if event["kind"] == "died"]
    assert restarted == "collector-0 was restarted by hand"
    assert killed.endswith(": killed by hand; restart 1 of 5")


@pytest.mark.full(reason="a second bottleneck, watched for seconds")
def test_a_slow_learner_is_what_everybody_waits_for(house: House) -> None:
    directory = started(house, run='scheme = "slow_learner:scheme"')
    with closing(Poller(directory)) as poller:
        snapshot = seen(house, poller, lambda s: s.window_s >= 3)
    assert snapshot.bound_by.startswith("learner (update ")
    assert helps(snapshot, "gradients.bootstrap_rounds")
    busy = row(snapshot, "learner-0").busy
    assert busy is not None
    assert busy > 0.8
    for name in ("collector-0", "gradient-worker-0"):
        assert row(snapshot, name).own < 0.6
    restarted_by_hand(house, directory)
    assert house.hive("down").returncode == 0
