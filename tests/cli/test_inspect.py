"""Stacks and histories of actors, from a scripted supervisor."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from canned_status import actor, status

if TYPE_CHECKING:
    from conftest import Place

    from hive.records import RunDirectory


def housed(name: str, process: str = "", **changes: Any) -> dict[str, Any]:
    return actor(name, process=process or name, **changes)


def three() -> dict[str, Any]:
    """Two actors that share a process, and one that has its own."""
    return status(housed("collector-0", "nest-0", activity=""), housed("collector-1", "nest-0"), housed("learner-0"))


def log_events(run: RunDirectory, *events: dict[str, Any]) -> None:
    with run.events_file.open("a") as file:
        file.writelines(json.dumps({"t": 1.7e9, **event}) + "\n" for event in events)


EVENTS = (
    {"kind": "running", "text": "3 actors in 2 processes"},
    {"kind": "died", "text": "collector-1 died in `env`", "actor": "collector-1"},
    {"kind": "restarted", "text": "nest-0 is back after 40 ms", "process": "nest-0"},
    {"kind": "saved", "text": "checkpoint 000040", "actor": "recorder"},
)


def test_the_stacks_of_all(place: Place) -> None:
    place.live(three())
    done = place.hive("stack")
    assert (done.code, done.err) == (0, "run cartpole-1, running\n")
    pid = three()["pid"]
    assert done.out.splitlines() == [
        f"collector-0 (pid {pid}) running, in start for 0.2 s",
        "    in run of collector-0",
        "",
        f"collector-1 (pid {pid}) running, in step for 0.2 s",
        "    as above",
        "",
        f"learner-0 (pid {pid}) running, in step for 0.2 s",
        "    in run of learner-0",
        "",
    ]


def test_the_stack_of_one_as_data(place: Place) -> None:
    place.live(three())
    (row,) = json.loads(place.hive("stack", "cartpole-1", "learner-0", "--json").out)
    assert row == {
        "name": "learner-0",
        "pid": three()["pid"],
        "state": "running",
        "activity": "step",
        "since_s": 0.25,
        "stack": "in run of learner-0",
    }


def test_an_actor_without_a_stack(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.live(three())
    place.supervisors[0].mute = True
    done = place.hive("stack", "cartpole-1", "learner-0")
    assert done.out.splitlines()[1] == "    no stack: the process is starting, stopped or has exited"


@pytest.mark.parametrize("command", ["stack", "history"])
def test_an_actor_that_is_not_there(place: Place, command: str) -> None:
    place.live(three())
    done = place.hive(command, "cartpole-1", "lerner-0")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: cartpole-1 has no actor `lerner-0`; did you mean `learner-0`?\n\n"
        "hint: its actors are: collector-0, collector-1, learner-0\n"
    )


def test_the_history_of_one(place: Place) -> None:
    log_events(place.live(three()), *EVENTS)
    done = place.hive("history", "cartpole-1", "collector-1")
    first, second, event = done.out.splitlines()
    assert (first, second) == ("collector-1  ready", "    starting -ready-> ready")
    assert event.endswith("collector-1        collector-1 died in `env`")


def test_the_history_of_all(place: Place) -> None:
    log_events(place.live(three()), *EVENTS)
    lines = place.hive("history", "-n", "2").out.splitlines()
    assert lines[:6:2] == ["collector-0  ready", "collector-1  ready", "learner-0  ready"]
    assert [line[9:].split()[0] for line in lines[6:]] == ["supervisor", "recorder"]


def test_the_history_as_data(place: Place) -> None:
    log_events(place.live(three()), *EVENTS)
    told = json.loads(place.hive("history", "--json").out)
    assert told["transitions"]["learner-0"] == ["starting -ready-> ready"]
    assert [event["kind"] for event in told["events"]] == ["running", "died", "restarted", "saved"]


def test_events_that_name_no_actor_are_the_supervisors(place: Place) -> None:
    log_events(place.live(three()), *EVENTS)
    (line,) = place.hive("history", "cartpole-1", "supervisor").out.splitlines()
    assert line.endswith("3 actors in 2 processes")


def test_the_history_of_an_ended_run_is_the_event_log(place: Place) -> None:
    run = place.ended()
    run.log_file("collector-0").touch()
    run.log_file("collector-1").touch()
    log_events(run, *EVENTS)
    done = place.hive("history", "cartpole-1", "collector-1")
    assert (done.code, len(done.out.splitlines())) == (0, 1)
    assert place.hive("history", "cartpole-1", "collector-0").out == ""  # a known actor without events
    done = place.hive("history", "cartpole-1", "colector-0")
    assert done.err.startswith("error: cartpole-1 has no actor `colector-0`; did you mean `collector-0`?\n")


def test_control_characters_in_a_name_are_not_printed(place: Place) -> None:
    place.live(three())
    assert "\x1b" not in place.hive("stack", "cartpole-1", "\x1b[2Jx").err
