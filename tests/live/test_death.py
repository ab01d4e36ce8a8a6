"""Killing and stopping every role of a training run: it says who, how and in what, goes on, and accounts for all."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from hive.runtime.process.stop_signals import TERMINATED

if TYPE_CHECKING:
    from conftest import House

FAST = "[supervision]\nrestarts = 50\n"


def started(house: House, words: Sequence[str] = (), **config: Any) -> None:
    done = house.hive("up", house.cartpole(**config), "-d", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "cart-1"
    house.until_steps("cart-1", 1_000)


def death_of(house: House, name: str) -> dict[str, Any] | None:
    return next(
        (e for e in reversed(house.events("cart-1")) if e["kind"] == "died" and e.get("actor", "fork-server") == name),
        None,
    )


ZMQ = pytest.param("zmq", marks=pytest.mark.full(reason="the other carrier", rotates=True))


@pytest.mark.parametrize("carrier", ["slots", ZMQ])
def test_killed_actors_come_back_and_nothing_is_lost_uncounted(house: House, carrier: str) -> None:
    started(house, more=FAST, words=[f"--set=run.carrier={carrier}", "--set=gradients.workers=1"])
    for name in ("collector-0", "gradient-worker-0", "learner-0", "recorder"):
        before = house.ps("cart-1")
        os.kill(before[name]["pid"], signal.SIGKILL)
        house.until(lambda name=name: house.ps("cart-1")[name]["restarts"] == 1)  # type: ignore[misc]
        event = death_of(house, name)
        assert event is not None
        assert event["how"] == "killed by SIGKILL"
        assert event["text"].startswith(f"{name} died in `{event['doing']}`")
        steps = before["learner-0"]["counters"]["env_steps"]
        house.until_steps("cart-1", int(steps) + 2_000)  # training goes on
    down = house.hive("down", "cart-1")
    assert down.returncode == 0, down.stderr
    summary = house.ended("cart-1")
    assert summary["state"] == "stopped"
    assert summary["exact"] is False
    assert summary["restarts"] == {"collector-0": 1, "gradient-worker-0": 1, "learner-0": 1, "recorder": 1}, (
        house.events("cart-1")
    )
    for account in summary["channels"].values():
        assert account["produced"] == account["consumed"] + sum(account["dropped"].values())
        assert account["in_flight"] == 0


@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGKILL, "killed by SIGKILL"),
        pytest.param(
            signal.SIGSTOP,
            "it was stopped (SIGSTOP)",
            marks=pytest.mark.full("its end takes the same path", rotates=True),
        ),
    ],
)
def test_the_end_of_a_helper_is_that_of_its_collector(house: House, number: int, how: str) -> None:
    words = ["--set=collection.helpers=2", "--set=env.vector=python"]
    started(house, more=FAST, words=words)
    said = next(event for event in house.events("cart-1") if event["kind"] == "helpers")
    assert said["text"] == "2 helpers step environments of collector-0"
    os.kill(said["pids"][1], number)
    house.until(lambda: house.ps("cart-1")["collector-0"]["restarts"] == 1)
    event = death_of(house, "collector-0")
    assert event is not None
    assert f"the helper of environments 5 to 7 has ended: {how}" in event["text"]
    house.until_steps("cart-1", int(house.ps("cart-1")["learner-0"]["counters"]["env_steps"]) + 2_000)
    assert house.hive("down").returncode == 0
    house.ended("cart-1")


def test_a_stopped_actor_is_found_named_and_replaced(house: House) -> None:
    started(house, more=FAST)
    os.kill(house.ps("cart-1")["collector-0"]["pid"], signal.SIGSTOP)
    house.until(lambda: house.ps("cart-1")["collector-0"]["restarts"] == 1)
    event = death_of(house, "collector-0")
    assert event is not None
    assert "it was stopped (SIGSTOP)" in event["text"]
    steps = house.ps("cart-1")["learner-0"]["counters"]["env_steps"]
    house.until_steps("cart-1", int(steps) + 2_000)
    assert house.hive("down").returncode == 0
    house.ended("cart-1")


@pytest.mark.full(reason="a fork server is only needed for a restart, and rarely dies", rotates=True)
def test_a_killed_fork_server_is_replaced_and_the_next_restart_uses_it(house: House) -> None:
    started(house, more=FAST)
    first = house.ps("cart-1")["fork-server"]["pid"]
    os.kill(first, signal.SIGKILL)
    os.kill(house.ps("cart-1")["collector-0"]["pid"], signal.SIGKILL)
    house.until(
        lambda: (
            house.ps("cart-1")["collector-0"]["restarts"] == 1
            and house.ps("cart-1")["collector-0"]["state"] == "running"
        )
    )
    second = house.ps("cart-1")["fork-server"]
    assert second["pid"] != first
    assert second["state"] == "running"
    assert house.hive("down").returncode == 0


@pytest.mark.full(reason="a killed fork server takes the same path", rotates=True)
def test_a_stopped_fork_server_is_replaced(house: House) -> None:
    started(house, more=FAST)
    first = house.ps("cart-1")["fork-server"]["pid"]
    os.kill(first, signal.SIGSTOP)
    os.kill(house.ps("cart-1")["learner-0"]["pid"], signal.SIGKILL)
    house.until(lambda: house.ps("cart-1")["learner-0"]["restarts"] == 1)
    house.until(lambda: house.ps("cart-1")["learner-0"]["state"] == "running")
    assert house.ps("cart-1")["fork-server"]["pid"] != first
    assert any(e["text"] == "fork-server was stopped (SIGSTOP) and so was killed" for e in house.events("cart-1"))
    assert house.hive("down").returncode == 0


def test_whoever_was_forked_and_not_told_of_is_replaced_by_another(house: House) -> None:
    """It says Hello to the supervisor by itself, and may have begun when it is found that nobody knows of it."""
    house.env["STOPPED_ONCE"] = str(house.folder / "stopped")
    config = house.config('[run]\nname = "lost"\ntopology = "stopped_server:topology"\n[env]\nid = "CartPole-v1"\n')
    assert house.hive("up", config, "-d").returncode == 0
    os.kill(house.ps("lost-1")["worker-0"]["pid"], signal.SIGKILL)
    house.until(lambda: house.ps("lost-1")["worker-0"]["restarts"] == 1)
    house.until((house.folder / "stopped").exists)
    house.until(lambda: "fork-server is back" in [event["text"] for event in house.events("lost-1")])
    house.until(lambda: house.ps("lost-1")["worker-0"]["state"] == "running")
    sent = house.ps("lost-1")["worker-0"]["counters"]["sent"]
    house.until(lambda: house.ps("lost-1")["worker-0"]["counters"]["sent"] > sent + 5)
    assert house.hive("down").returncode == 0
    house.ended("lost-1")


def test_a_killed_supervisor_leaves_nothing_within_two_seconds(house: House) -> None:
    started(house)
    assert len(house.processes()) >= 5
    assert house.sockets()
    os.kill(house.ps("cart-1")["supervisor"]["pid"], signal.SIGKILL)
    house.until(lambda: not house.processes() and not house.sockets(), limit_s=2.0)
    listed = house.hive("ls")
    assert "lost" in listed.stdout


@pytest.mark.full(reason="a second way for everything to die at once", rotates=True)
def test_when_the_fork_server_dies_too_the_next_command_sweeps(house: House) -> None:
    started(house)
    rows = house.ps("cart-1")
    os.kill(rows["supervisor"]["pid"], signal.SIGSTOP)  # so that it cannot start another fork server
    os.kill(rows["fork-server"]["pid"], signal.SIGKILL)
    os.kill(rows["supervisor"]["pid"], signal.SIGKILL)
    house.until(lambda: not house.processes())
    assert house.sockets()
    listed = house.hive("ls")
    assert listed.returncode == 0
    assert listed.stderr.startswith("cleaned up after cart-1 (lost")
    assert not house.sockets()


def test_too_many_deaths_end_the_run_with_a_report(house: House) -> None:
    more = "[supervision]\nrestarts = 0\n[gradients]\nworkers = 1\n"
    up = house.start("up", house.cartpole(more=more))
    house.until(lambda: (house.home / "cart-1" / "run.json").exists())
    house.until(lambda: "learner-0" in house.ps("cart-1"))
    house.until_steps("cart-1", 1_000)
    os.kill(house.ps("cart-1")["gradient-worker-0"]["pid"], signal.SIGKILL)
    _, err = up.communicate()
    assert up.returncode == 1
    assert "error: gradient-worker-0 failed in `" in err
    assert "killed by SIGKILL (once within 60 s; [supervision] restarts = 0)" in err
    summary = house.ended("cart-1")
    assert summary["state"] == "failed"
    assert summary["stop_reason"] == "gradient-worker-0 failed"
    assert summary["weights_sha256"]
    saved = f"{summary['updates']:,}"
    report = house.home / "cart-1" / "crash" / "gradient-worker-0-1.txt"
    ways_out = "for failures that happen at random, raise supervision.restarts"
    assert f"hint: {ways_out}; the report is in {report}; `hive resume cart-1` continues from update {saved}" in err
    sections = dict(part.partition("\n")[::2] for part in report.read_text().split("\n\n"))
    assert sections.keys() >= {"doing", "transition history", "events", "stacks"}
    assert "running: 4 actors in 4 processes" in sections["events"]
    for other in ("collector-0", "learner-0", "recorder"):  # who could not say would be missing
        stack = report.read_text().partition(f"\n{other}\n")[2].partition("\n\n")[0]
        assert "node.py" in stack or "actor_context.py" in stack


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.full(reason="SIGTERM takes the same path", rotates=True)),
        signal.SIGTERM,
    ],
)
def test_a_signal_drains_and_saves(house: House, number: signal.Signals) -> None:
    up = house.start("up", house.cartpole())
    house.until(lambda: (house.home / "cart-1" / "run.json").exists())
    house.until(lambda: "learner-0" in house.ps("cart-1"))
    house.until_steps("cart-1", 1_000)
    up.send_signal(number)
    _, err = up.communicate()
    assert up.returncode == (TERMINATED if number == signal.SIGTERM else 0), err
    assert "stopping" in err
    summary = house.summary("cart-1")
    reason = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    assert (summary["state"], summary["stop_reason"]) == ("stopped", reason)
    assert f"stopped by {reason}; saved at {summary['env_steps']:,} steps, " in err
    assert (house.home / "cart-1" / "checkpoints" / f"{summary['updates']:06d}" / "DONE").exists()


def test_a_second_signal_stops_now(house: House) -> None:
    # An actor that cannot drain keeps the run draining until the second signal comes.
    up = house.start(
        "up",
        house.config(
            '[run]\nname = "hang"\n[env]\nid = "breaking_environments:Hangs"\n[collection]\nenvs = 2\nrollout = 64\n'
        ),
    )
    house.until(lambda: (house.home / "hang-1" / "run.json").exists())
    house.until(lambda: house.ps("hang-1").get("collector-0", {}).get("activity") == "env")
    up.send_signal(signal.SIGINT)
    house.until(lambda: any(e["kind"] == "draining" for e in house.events("hang-1")))
    up.send_signal(signal.SIGINT)
    _, err = up.communicate()
    assert up.returncode == 130, err
    assert house.summary("hang-1")["state"] == "stopped"
