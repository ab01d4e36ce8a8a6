"""The run that a command applies to."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from typing import TYPE_CHECKING

import pytest
from canned_status import status

from hive import __version__
from hive.errors import UsageError
from hive.launch.select_run import (
    _age,
    chosen_run,
    live_elsewhere,
    live_here,
    live_run,
    name_from_here,
    named_run,
    report_swept,
)
from hive.records import RunDirectory, read_run_facts, run_state, write_checkpoint, write_run_facts
from hive.runtime.run.control import PROTOCOL
from hive.runtime.run.folders import make_socket_folder

if TYPE_CHECKING:
    from conftest import Place


def test_the_only_live_run_is_meant(place: Place) -> None:
    place.live(status(), "old", started=1.0)
    place.ended("new", started=2.0)
    assert live_run(None).name == "old-1"
    assert live_run("old").name == "old-1"
    assert place.hive("ps").out.startswith("old-1  running\n")


def test_the_newest_run_is_selected_if_none_is_live(place: Place) -> None:
    place.ended(started=1.0)
    place.ended(started=2.0)
    assert place.hive("ps").out.startswith("cartpole-2  finished\n")


def test_all_that_live_are_looked_at(place: Place) -> None:
    place.live(status(), "a", started=3.0)
    place.live(status(), "b", started=4.0)
    done = place.hive("ps")
    assert [line for line in done.out.splitlines() if "  running" in line and "-1" in line] == [
        "a-1  running",
        "b-1  running",
    ]
    assert {row["run"] for row in json.loads(place.hive("ps", "--json").out)} == {"a-1", "b-1"}
    assert place.hive("ps", "a").out.startswith("a-1  running\n")
    assert chosen_run(None).name == "b-1"


def test_a_run_of_another_version_is_reported_and_the_others_are_listed(place: Place) -> None:
    place.live(status(), "a", started=3.0)
    other = place.live(status(), "b", started=4.0)
    write_run_facts(other, dataclasses.replace(read_run_facts(other), protocol=PROTOCOL + 1))
    done = place.hive("ps")
    assert done.code == 0
    assert done.out.startswith("a-1  running\n")
    assert "b-1" not in done.out
    assert f"error: this hive ({__version__}) speaks protocol {PROTOCOL}, b-1 speaks {PROTOCOL + 1}\n" in done.err
    assert "`kill -TERM " in done.err
    assert place.hive("down", "b").code == 2


def elsewhere(place: Place, name: str) -> RunDirectory:
    """A run of this user that lives in another $HIVE_HOME."""
    directory = RunDirectory.create(place.folder / "other", name)
    place.serve(directory, status(), started=5.0)
    make_socket_folder(directory.path)
    return directory


def test_live_runs_elsewhere_are_named_but_not_changed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    pong = elsewhere(place, "pong")
    assert [run.name for run in [*live_here(), *live_elsewhere()]] == ["pong-1"]
    alone = place.hive()
    head = ["NAME", "ENV", "ALGORITHM", "STATE", "STEPS", "RETURN", "WALL", "STARTED", "IN"]
    assert alone.out.splitlines()[0].split() == head
    assert alone.out.splitlines()[1].split()[-1] == str(pong.path.parent)
    told = f"\n\nhint: live elsewhere: pong-1 in {pong.path.parent}\n"
    for command in ("ps", "logs", "eval", "export", "play", "resume", "monitor"):
        done = place.hive(command)
        assert (done.code, done.out, done.err) == (2, "", f"error: no run in `{place.runs}` yet{told}")
    assert place.hive("ps", "pong").out.startswith("pong-1  running\n")
    assert named_run("pong") == pong
    done = place.hive("down")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: no run is live{told}"
    assert place.supervisors[0].asked == []
    ended = place.ended()
    assert chosen_run(None) == ended
    assert place.hive("ps").out.startswith("cartpole-1  finished\n")
    assert "; ended: cartpole-1; live elsewhere: pong-1\n" in place.hive("ps", "other").err


def test_the_run_taken_is_said_where_the_output_does_not_name_it(place: Place) -> None:
    place.live(status(), "old", started=1.0)
    place.ended("new", started=2.0)
    assert place.hive("logs").err == "run old-1, running\n"
    assert place.hive("logs", "new").err == ""


def test_the_newest_of_several_live_runs_is_looked_at(place: Place) -> None:
    place.live(status(), "a", started=3.0)
    place.live(status(), "b", started=4.0)
    place.ended("c", started=5.0)
    assert chosen_run(None).name == "b-1"


def test_a_name_here_goes_before_one_elsewhere(place: Place) -> None:
    elsewhere(place, "cartpole")
    here = place.ended()
    assert named_run("cartpole-1") == here
    elsewhere(place, "cartwheel")
    assert named_run("cart") == here  # also by a prefix
    assert named_run("cartw").name == "cartwheel-1"
    assert named_run(str(place.folder / "other" / "cartpole-1")).path != here.path


def test_a_run_that_was_removed_under_its_supervisor(place: Place) -> None:
    shutil.rmtree(elsewhere(place, "pong").path)
    assert [*live_here(), *live_elsewhere()] == []


def test_live_runs_in_the_home_are_listed_once(place: Place) -> None:
    here = place.live(status())
    make_socket_folder(here.path)
    assert [*live_here(), *live_elsewhere()] == [here]
    assert "IN" not in place.hive().out.splitlines()[0].split()


@pytest.mark.parametrize("command", ["ps", "logs"])
def test_a_run_that_is_not_there(place: Place, command: str) -> None:
    done = place.hive(command)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: no run in `{place.runs}` yet\n\nhint: start one: `hive up config.toml`\n"
    place.ended(started=1.0)
    place.ended(started=2.0)
    done = place.hive(command, "cartpool-1")
    assert (done.code, done.err) == (
        2,
        "error: no run matches `cartpool-1`; ended: cartpole-2, cartpole-1\n\nhint: did you mean `cartpole-1`?\n",
    )
    done = place.hive(command, "cartpole-9")  # another number is no typing error
    assert done.err == "error: no run matches `cartpole-9`; ended: cartpole-2, cartpole-1\n"
    done = place.hive(command, "cart")
    assert (done.code, done.err) == (2, "error: `cart` matches cartpole-2 and cartpole-1\n\nhint: write a whole name\n")


def test_no_run_is_live(place: Place) -> None:
    with pytest.raises(UsageError, match=r"(?m)^no run is live$"):
        live_run(None)
    place.ended(started=time.time() - 2 * 3600)
    with pytest.raises(
        UsageError, match=r"(?m)^no run is live - last: cartpole-1 \(finished 2 h ago at 500,000 steps\)$"
    ):
        live_run(None)
    with pytest.raises(UsageError, match=r"(?m)^cartpole-1 is not running: it finished$"):
        live_run("latest")
    place.lost()
    with pytest.raises(UsageError, match=r"(?m)^cartpole-2 is not running: it was lost$"):
        live_run("cartpole-2")


def test_the_text_about_a_lost_run(place: Place) -> None:
    run = place.lost()
    with pytest.raises(UsageError, match=r"(?m)- last: cartpole-1 \(lost\)$"):  # it never began
        live_run(None)
    run.metrics_file.write_text(
        json.dumps({"t": time.time() - 200_000, "steps": 12_345, "return/mean_100": 9.5}) + "\n"
    )
    with pytest.raises(UsageError, match=r"(?m)- last: cartpole-1 \(lost 2 d ago at 12,345 steps\)$"):
        live_run(None)


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (59, "59 s"), (60, "1 min"), (3_599, "60 min"), (3_600, "1 h"), (90_000, "1 d")]
)
def test_ages_are_rounded(seconds: float, text: str) -> None:
    assert _age(seconds) == text


def test_leftovers_of_a_killed_run_are_removed_and_reported_once(place: Place) -> None:
    run = place.lost()
    learner = {"t": time.time(), "steps": 7, "return/mean_100": None}
    evaluation = {"t": time.time(), "steps": 3, "evaluation/mean_return": 5.0}  # evaluates an earlier version
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in (learner, evaluation)))
    write_checkpoint(run.checkpoints, 5, tensors={}, parts={}, state={})
    never = place.never_begun("pong")
    for directory in (run.path, never.path, place.folder / "removed"):
        (make_socket_folder(directory) / "owner").write_text(f"{1 << 30} 1\n{directory}")
    done = place.hive("ls")
    assert done.out.startswith("NAME")
    assert done.err.splitlines() == [
        "cleaned up after cartpole-1 (lost 0 s ago at 7 steps) - to continue it: hive resume cartpole-1",
        f"cleaned up after pong-1 ({run_state(never)})",
    ]
    assert place.hive("ls").err == ""


def test_no_resume_is_suggested_for_finished_or_unreadable_runs(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    finished, unreadable = place.ended(), place.lost("pong")
    write_checkpoint(finished.checkpoints, 5, tensors={}, parts={}, state={})
    shutil.rmtree(unreadable.checkpoints)
    unreadable.checkpoints.touch()
    report_swept([finished.path, unreadable.path, finished.path])
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("cleaned up after cartpole-1 (finished ")
    assert "hive resume" not in told


def test_a_run_of_another_folder_is_named_by_its_path(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    run = elsewhere(place, "pong")
    assert name_from_here(run) == str(run.path)
    assert name_from_here(place.ended()) == "cartpole-1"


def test_several_runs_live(place: Place) -> None:
    place.live(None, "a", started=1.0)
    place.live(None, "b", started=2.0)
    with pytest.raises(UsageError, match=r"(?m)^several runs are live: a-1, b-1$") as caught:
        live_run(None)
    assert caught.value.hint == "add the name of one"
