"""The command `monitor`: one snapshot as text or JSON, and the error without a terminal."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
from canned_runs import trainer

from hive.cli import monitor
from hive.runtime.run import control_server

if TYPE_CHECKING:
    from conftest import Place

KEYS = {"run", "state", "env_steps", "steps_per_s", "bound_by", "actors", "channels"}
ACTOR_KEYS = {"name", "state", "activity", "since_s", "busy", "wait_in", "wait_out"}


@pytest.fixture(autouse=True)
def niceness(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The arguments of `os.nice`, which is replaced so that tests keep their priority."""
    asked: list[int] = []
    monkeypatch.setattr(control_server, "PUSH_S", 0.05)
    monkeypatch.setattr(os, "nice", lambda by: asked.append(by) or 0)  # type: ignore[func-returns-value]
    return asked


def test_one_snapshot_as_json(place: Place, niceness: list[int]) -> None:
    place.live(trainer(10.0, pid=os.getpid()))
    done = place.hive("monitor", "--json")
    assert (done.code, done.err) == (0, "")
    snapshot = json.loads(done.out)
    assert snapshot.keys() >= KEYS
    assert all(actor.keys() >= ACTOR_KEYS for actor in snapshot["actors"])
    assert (snapshot["run"], snapshot["state"], snapshot["env_steps"]) == ("cartpole-1", "running", 50_000)
    assert snapshot["channels"]["rollouts"]["in_flight"] == 4
    assert niceness == [0, monitor.NICE]


def test_one_screen_as_text(place: Place) -> None:
    place.live(trainer(10.0, pid=os.getpid()))
    done = place.hive("monitor", "cartpole", "--once")
    assert done.code == 0
    assert done.out.startswith(" cartpole-1  running ")
    assert " rollouts " in done.out
    assert "\x1b" not in done.out
    assert place.hive("monitor", "--once", "--ascii").out.isascii()
    assert json.loads(place.hive("monitor", "cartpole-1", "--once", "--json").out)["run"] == "cartpole-1"


def test_ended_and_lost_runs_are_replayed(place: Place) -> None:
    place.ended("cartpole")
    assert json.loads(place.hive("monitor", "--json").out)["state"] == "finished"
    lost = place.lost("pendulum")
    snapshot = json.loads(place.hive("monitor", lost.name, "--once", "--json").out)
    assert (snapshot["state"], snapshot["bound_by"]) == ("lost", "nothing, the run is lost")
    assert snapshot["supervisor"].startswith("gone since ")


def test_without_a_terminal_the_hint_names_the_alternatives(place: Place) -> None:
    place.ended()
    done = place.hive("monitor")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: `monitor` needs a terminal\n\nhint: without one, use `hive monitor --once` or `--json`\n"


def test_a_run_that_is_not_there(place: Place) -> None:
    done = place.hive("monitor", "cartpool", "--json")
    assert done.code == 2
    assert "no run matches `cartpool`" in done.err


def test_the_terminal_ui_is_loaded_when_it_is_opened(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from hive.monitor.terminal import app

    opened = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(app, "watch", lambda run, **options: opened.append((run.name, options)))
    place.ended()
    assert place.hive("monitor", "--readonly").code == 0
    assert opened == [("cartpole-1", {"ascii_only": False, "readonly": True})]
