"""Commands that control a live run, with a scripted supervisor."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from canned_status import actor, results, status

from hive.launch import control
from hive.records import RunDirectory, Summary, runs, write_checkpoint

if TYPE_CHECKING:
    from conftest import Place


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands poll without pauses and report every wait at once."""
    monkeypatch.setattr(control, "POLL_S", 0.0)
    monkeypatch.setattr(control, "REPORT_S", 0.0)


@pytest.fixture
def stand_in() -> Iterator[subprocess.Popen[bytes]]:
    """A process that may die, as a supervisor does."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process
        if process.poll() is None:
            process.kill()


def event(run: RunDirectory, kind: str, text: str, **fields: Any) -> None:
    with run.events_file.open("a") as file:
        file.write(json.dumps({"t": 1.7e9, "kind": kind, "text": text, **fields}) + "\n")


def saying(place: Place, *states: dict[str, Any]) -> None:
    """The supervisor says one after the other, and the last one from then on."""
    (supervisor,) = place.supervisors
    supervisor.script = list(states)


# --- pause and resume


def test_a_pause_waits_until_the_run_rests(place: Place) -> None:
    place.live(status(pausing=None))
    waiting = status(pausing=["collector-0 (in env)", "evaluator-0 (in episode)"])
    saying(place, waiting, status(pausing=[]), status(state="paused", pausing=[]))
    done = place.hive("pause")
    assert (done.code, done.out) == (0, "cartpole-1 paused at 20,480 steps\n")
    assert done.err == (
        "still waiting for collector-0 (in env), evaluator-0 (in episode)\n"
        "still waiting for the last messages\n"
        "hint: hive resume cartpole-1\n"
    )
    assert place.supervisors[0].steered == ["pause"]


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (status(state="draining", reason="500,000 steps", pausing=None), "it is draining (500,000 steps)"),
        (status(pausing=None), "another command resumed it"),
    ],
)
def test_a_pause_that_comes_to_nothing(place: Place, then: dict[str, Any], why: str) -> None:
    place.live(status(pausing=None))
    saying(place, then)
    done = place.hive("pause", "cartpole-1")
    assert (done.code, done.out, done.err) == (2, "", f"error: cartpole-1 did not pause: {why}\n")


def test_a_paused_run_is_resumed(place: Place) -> None:
    place.live(status(state="paused", pausing=[]))
    for words in (["cart"], []):
        done = place.hive("resume", *words)
        assert (done.code, done.out, done.err) == (0, "cartpole-1 running\n", "")
    assert place.supervisors[0].steered == ["resume", "resume"]


@pytest.mark.parametrize("words", [("--exact",), ("--set", "run.seed=3")])
def test_a_paused_run_can_only_continue_unchanged(place: Place, words: tuple[str, ...]) -> None:
    place.live(status(state="paused", pausing=[]))
    done = place.hive("resume", "cartpole-1", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: cartpole-1 is paused and can only continue unchanged\n\n"
        "hint: to change it: hive down cartpole-1, then resume it with --exact or --set\n"
    )
    assert place.supervisors[0].steered == []


def test_a_run_that_runs_is_not_resumed(place: Place) -> None:
    place.live(status(pausing=None))
    done = place.hive("resume", "cartpole-1")
    assert done.err.startswith("error: cartpole-1 is running")
    assert "hive ps cartpole-1" in done.err


@pytest.mark.parametrize("command", ["pause", "save", "stack"])
def test_only_live_runs_are_controlled(place: Place, command: str) -> None:
    place.ended()
    done = place.hive(command)
    assert done.code == 2
    assert done.err.startswith("error: no run is live - last: cartpole-1 (finished ")
    done = place.hive(command, "cartpole-1")
    assert (done.code, done.err) == (2, "error: cartpole-1 is not running: it finished\n")


def test_a_refusal_is_reported(place: Place) -> None:
    place.live(status())
    place.supervisors[0].refusal = "nothing would stop"
    for command in ("pause", "save"):
        done = place.hive(command)
        assert (done.code, done.out, done.err) == (2, "", "error: nothing would stop\n")


# --- save


def test_a_save_waits_for_the_checkpoint(place: Place) -> None:
    run = place.live(status())
    event(run, "saved", "checkpoint 000001 at 10 steps", path="old")

    def obey() -> None:
        event(run, "saved", "checkpoint 000039 at 20,000 steps", path="routine", by_hand=False)
        event(run, "not saved", "the disk was full", by_hand=False)
        event(run, "not done", "update of learner-0: no such key", method="update")
        event(run, "saved", "checkpoint 000040 at 20,480 steps", actor="recorder", path="/there/000040", by_hand=True)

    place.supervisors[0].on_save = obey
    done = place.hive("save")
    assert (done.code, done.out) == (0, "/there/000040\n")
    assert place.supervisors[0].steered == ["save"]


@pytest.mark.parametrize("kind", ["not saved", "not done"])
def test_a_save_that_cannot_be(place: Place, kind: str) -> None:
    run = place.live(status())
    place.supervisors[0].on_save = lambda: event(run, kind, "the disk is full")
    done = place.hive("save")
    assert (done.code, done.out, done.err) == (2, "", "error: cartpole-1 was not saved: the disk is full\n")


def test_a_run_that_ends_before_it_is_saved(place: Place, stand_in: subprocess.Popen[bytes]) -> None:
    place.live(status(), pid=stand_in.pid)

    def die() -> None:
        stand_in.kill()
        stand_in.wait()

    place.supervisors[0].on_save = die
    done = place.hive("save")
    assert (done.code, done.err.splitlines()[-1]) == (2, "error: cartpole-1 ended before it was saved")


def test_a_run_that_ends_before_the_request_is_done(place: Place, stand_in: subprocess.Popen[bytes]) -> None:
    run = place.live(status(), pid=stand_in.pid)

    def die() -> None:
        event(run, "saved", "checkpoint 000040", path="/there")
        stand_in.kill()
        stand_in.wait()

    place.supervisors[0].on_save = die
    assert place.hive("save").out == "/there\n"


# --- set


def test_a_change_is_asked_for(place: Place) -> None:
    place.live(status())
    done = place.hive("set", "cartpole-1", "algorithm.learning_rate=1e-4", "algorithm.discount=0.9")
    assert (done.code, done.err) == (0, "")
    assert done.out == "cartpole-1 continues with algorithm.learning_rate=1e-4 algorithm.discount=0.9\n"
    assert place.supervisors[0].steered == ["set algorithm.learning_rate=1e-4 algorithm.discount=0.9"]
    place.supervisors[0].refusal = "it has that already"
    assert place.hive("set", "cartpole-1", "algorithm.discount=0.9").err == "error: it has that already\n"


@pytest.mark.parametrize("settings", [["algorithm.discount=0.9"], ["algorithm.discount=0.9", "algorithm.epochs=2"]])
def test_a_change_without_a_run_is_that_of_the_only_live_one(place: Place, settings: list[str]) -> None:
    place.live(status())
    assert place.hive("set", *settings).out == f"cartpole-1 continues with {' '.join(settings)}\n"
    assert place.supervisors[0].steered == [f"set {' '.join(settings)}"]
    assert place.hive("set", "cartpole-1").err.startswith("error: `cartpole-1` is not a setting\n")


# --- scale


def scaled(**changes: Any) -> dict[str, Any]:
    return status(actor("learner-0", counters=results()), stage=0, refused="") | changes


def test_a_scaled_run_is_waited_for(place: Place) -> None:
    place.live(scaled())
    saying(place, scaled(), scaled(state="draining"), scaled(stage=1, state="starting"), scaled(stage=1))
    done = place.hive("scale", "cartpole-1", "collection.workers=4")
    assert done.code == 0
    assert done.out.startswith("cartpole-1 running with collection.workers=4 after 0.")
    assert place.supervisors[0].scaled == [("collection.workers=4",)]


def test_the_only_live_run_is_scaled(place: Place) -> None:
    place.live(scaled())
    saying(place, scaled(), scaled(stage=1))
    assert place.hive("scale", "gradients.workers=2", "collection.workers=4").code == 0
    assert place.supervisors[0].scaled == [("gradients.workers=2", "collection.workers=4")]


@pytest.mark.parametrize("before", ["", "there is no room"])
def test_a_run_that_cannot_be_scaled_continues(place: Place, before: str) -> None:
    place.live(scaled())
    saying(place, scaled(refused=before), scaled(stage=1, refused="there is no room"))
    done = place.hive("scale", "cartpole-1", "collection.workers=4")
    assert (done.code, done.err) == (2, "error: cartpole-1 continues unchanged: there is no room\n")


# --- down


@pytest.mark.parametrize("words", [(), ("--now",), ("cartpole-1",), ("cart", "--now")])
def test_down_asks_and_waits(
    place: Place, stand_in: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(control, "REPORT_S", 60.0)
    run = place.live(status(), pid=stand_in.pid)
    (supervisor,) = place.supervisors

    def obey() -> None:
        if "--now" not in words:
            write_checkpoint(run.checkpoints, 976, tensors={}, parts={}, state={"env_steps": 500_000})
        place.end(run, state="stopped")
        stand_in.kill()

    supervisor.on_down = obey
    done = place.hive("down", *words)
    assert (done.code, done.out) == (0, "cartpole-1 stopped\n")
    assert done.err == (
        "at 500,000 steps; nothing was saved\n"
        if "--now" in words
        else "saved at 500,000 steps · to continue it: hive resume cartpole-1\n"
    )
    assert supervisor.asked == [("hive down", "--now" in words)]
    assert Summary.read(run.summary_file).state == "stopped"


def test_down_names_the_actors_that_it_waits_for(
    place: Place, stand_in: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "REPORT_S", 0.0)
    run = place.live(status(), pid=stand_in.pid)
    again = actor("collector-1", activity="wait for env", since_s=0.25)  # it polls, and has waited for longer
    stuck = status(
        actor("collector-0", state="draining", activity="env", since_s=11.2), again, actor("l-0", state="finished")
    )
    place.supervisors[0].script = [stuck]

    def look(pid: int) -> int | None:
        looks.append(pid)
        if len(looks) == 4:
            place.end(run, state="stopped")
            stand_in.kill()
            stand_in.wait()
        return before(pid)

    looks: list[int] = []
    before = runs.process_start_time
    monkeypatch.setattr(runs, "process_start_time", look)
    done = place.hive("down")
    assert (done.code, done.out) == (0, "cartpole-1 stopped\n")
    assert "still waiting for collector-0 (in env, 11 s), collector-1 (in wait for env)\n" in done.err


def test_down_of_a_supervisor_that_dies_over_it(place: Place, stand_in: subprocess.Popen[bytes]) -> None:
    place.live(status(), pid=stand_in.pid)
    place.supervisors[0].on_down = stand_in.kill
    done = place.hive("down")
    assert (done.code, done.out) == (0, "cartpole-1 lost\n")


def test_down_where_nothing_runs(place: Place) -> None:
    assert place.hive("down").err == "error: no run is live\n"
    place.ended()
    done = place.hive("down", "cartpole-1")
    assert (done.code, done.out, done.err) == (2, "", "error: cartpole-1 is not running: it finished\n")
    assert place.hive("down", "carpole").code == 2


def test_down_of_one_of_several(place: Place) -> None:
    place.live(status(), "a", started=1.0)
    place.live(status(), "b", started=2.0)
    done = place.hive("down")
    assert (done.code, done.err) == (2, "error: several runs are live: a-1, b-1\n\nhint: add the name of one\n")
    assert [supervisor.asked for supervisor in place.supervisors] == [[], []]


def test_down_signals_no_process_that_is_no_supervisor(place: Place) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        place.live(None, pid=stranger.pid)
        done = place.hive("down", "cartpole-1")
        assert (done.code, f"process {stranger.pid}, which is no supervisor" in done.err) == (2, True)
        assert stranger.poll() is None
        stranger.kill()
