"""The desk: keys in, screens out; without a terminal and without a run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from canned_runs import COLLECTING, lively, snapshot
from canned_status import starting

from hive.monitor import Snapshot, snapshot_of
from hive.monitor.actors_screen import Inspected
from hive.monitor.drawing import DIM, PLAIN, plain, width_of
from hive.monitor.keys import SCREENS, Effect
from hive.monitor.series import RETURN, Series
from hive.monitor.view_model import MonitorState
from hive.records import RunDirectory

RETURN_LINE = '{{"steps": {0}, "updates": {0}, "seconds": {0}, "{1}": {0}.0, "learner/loss": 1.0}}\n'


def run(home: Path, name: str = "cartpole", lines: int = 20) -> RunDirectory:
    directory = RunDirectory.create(home, name)
    directory.metrics_file.write_text("".join(RETURN_LINE.format(n, RETURN) for n in range(lines)))
    directory.log_file("learner-0").write_text("2026-11-21 01:12:30.000 learner-0 WARN slow\n")
    directory.log_file("recorder").write_text("2026-11-21 01:12:31.000 recorder INFO saved\n")
    return directory


@pytest.fixture
def desk(tmp_path: Path) -> MonitorState:
    directory = run(tmp_path)
    return made(directory)


def made(
    directory: RunDirectory, seen: Snapshot | None = None, others: Sequence[RunDirectory] = (), **more: bool
) -> MonitorState:
    series = Series(directory.metrics_file)
    series.read()
    desk = MonitorState(directory, series, lambda: others, **more)
    desk.show(seen or lively())
    return desk


def screen(desk: MonitorState, width: int = 120, height: int = 40) -> str:
    lines = desk.lines(width, height)
    assert len(lines) == height
    assert {width_of(line) for line in lines} == {width}
    return plain(lines)


def press(desk: MonitorState, *keys: str) -> list[Effect]:
    effects = [desk.press(key, key if len(key) == 1 else None) for key in keys]
    return [effect for effect in effects if effect is not None]


# --- screens


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (30, 6)])
def test_every_screen_fills_every_terminal(desk: MonitorState, size: tuple[int, int]) -> None:
    for number, name in enumerate(SCREENS, 1):
        press(desk, str(number))
        assert desk.screen == name
        screen(desk, *size)
    press(desk, "2", "enter")
    screen(desk, *size)
    press(desk, "colon")
    screen(desk, *size)


@pytest.mark.parametrize(
    "seen", [snapshot_of(starting()), lively(collectors=[COLLECTING] * 64), lively(state="lost", actors=[])]
)
def test_every_screen_of_odd_runs(tmp_path: Path, seen: Snapshot) -> None:
    desk = made(run(tmp_path), seen)
    for key in ("1", "2", "enter", "escape", "3", "4"):
        press(desk, key)
        assert "cartpole-1" in screen(desk, 80, 24)


def test_before_the_first_snapshot(tmp_path: Path) -> None:
    directory = run(tmp_path)
    desk = MonitorState(directory, Series(directory.metrics_file))
    assert "waiting for the supervisor" in screen(desk)
    desk.problem = "error: the supervisor of cartpole-1 does not answer"
    assert desk.problem in screen(desk)
    for key in ("2", "enter", "R", "down", "3", "4", "1"):
        assert press(desk, key) == []


def test_what_is_not_known_any_more_is_grey(tmp_path: Path) -> None:
    desk = made(run(tmp_path), dataclasses.replace(lively(), supervisor="does not answer, since 01:15:02"))
    for key in ("1", "2", "3"):
        press(desk, key)
        lines = desk.lines(100, 30)
        assert plain(lines[1:2]).strip() == "supervisor does not answer, since 01:15:02"
        assert {style for line in lines[2:-2] for _, style in line} <= {DIM, PLAIN}


def test_keys_are_on_the_screen(desk: MonitorState) -> None:
    text = screen(desk, 80, 24).splitlines()[-1]
    assert text == " 1 house  2 actors  3 learning  4 logs    : actions  q leave (the run goes on)"
    press(desk, "2")
    assert "R restart  K kill" in screen(desk)
    press(desk, "3")
    assert "x axis  o lay another run under it  b band" in screen(desk)


def test_leaving_is_one_key_everywhere(desk: MonitorState) -> None:
    for key in ("1", "2", "3", "4"):
        assert press(desk, key, "q") == [Effect("leave")]


# --- actors


def test_an_actor_is_chosen_and_looked_into(desk: MonitorState) -> None:
    press(desk, "2", "down", "down", "down", "up")
    assert press(desk, "enter") == [Effect("inspect", "collector-0")]
    assert "being asked" in screen(desk)
    desk.answer(Inspected("collector-0", "in step", ("starting -ready-> ready",)))
    assert "in step" in screen(desk)
    assert press(desk, "s") == [Effect("inspect", "collector-0")]
    press(desk, "escape")
    assert "NAME" in screen(desk)


def test_the_selection_stays_within_the_table(desk: MonitorState) -> None:
    press(desk, "2", *["down"] * 99)
    assert desk.rows()[desk.selected].name == "recorder"
    press(desk, "pageup", "pageup")
    assert desk.selected == 0
    assert press(desk, "enter") == []
    assert "it is no actor" in screen(desk)  # the supervisor


def test_the_table_is_sorted(desk: MonitorState) -> None:
    press(desk, "2", "full_stop", "r")
    assert "↑NAME" in screen(desk)
    assert desk.rows()[0].name == "supervisor"
    press(desk, "comma", "comma")
    assert "↑RS" in screen(desk)


def test_a_restart_is_asked_twice_and_names_its_consequence(desk: MonitorState) -> None:
    press(desk, "2", "down", "down")
    assert press(desk, "R") == []
    assert "restart collector-0? What it is making is lost; it comes back.  y / n" in screen(desk)
    assert press(desk, "n") == []
    assert press(desk, "y") == []
    assert press(desk, "R", "y") == [Effect("restart", "collector-0")]
    press(desk, "K")
    assert "kill collector-0? What it is making is lost, which counts as a death; it comes back." in screen(desk)
    assert press(desk, "y") == [Effect("kill", "collector-0")]


def test_who_does_not_come_back_is_told_so(tmp_path: Path) -> None:
    desk = made(run(tmp_path), lively(changes={"collector-0": {"restart": False}}))
    press(desk, "2", "down", "down", "enter", "K")
    assert "the run ends, for it is not restarted" in screen(desk)


def test_what_is_no_actor_and_what_does_not_run_is_left_alone(tmp_path: Path) -> None:
    desk = made(run(tmp_path))
    assert press(desk, "2", "R", "y") == []
    press(desk, "R")
    assert "that is no actor" in screen(desk)
    ended = made(run(tmp_path, "other"), lively(state="stopped"))
    assert press(ended, "2", "down", "down", "K", "y", "enter") == []
    assert "the run is not running" in screen(ended)


def test_the_run_is_paused_goes_on_and_is_saved(tmp_path: Path) -> None:
    desk = made(run(tmp_path))
    assert press(desk, "p", "n") == []
    press(desk, "p")
    assert "pause the run? It comes to rest with all that it has in memory.  y / n" in screen(desk)
    assert press(desk, "y") == [Effect("pause")]
    assert press(desk, "s", "y") == [Effect("save")]
    paused = made(run(tmp_path, "other"), lively(state="paused"))
    assert press(paused, "p", "y") == [Effect("resume")]
    assert press(paused, "s", "y") == [Effect("save")]
    ended = made(run(tmp_path, "third"), lively(state="stopped"))
    assert press(ended, "p", "y", "s", "y") == []
    assert "the run is stopped" in screen(ended)
    assert press(made(run(tmp_path, "fourth"), readonly=True), "p", "y", "s", "y") == []


def test_readonly_has_no_key_that_changes_the_run(tmp_path: Path) -> None:
    desk = made(run(tmp_path), readonly=True)
    press(desk, "2", "down", "down")
    assert press(desk, "R", "y", "K", "y") == []
    assert "restart" not in screen(desk)
    press(desk, "colon", *"kill")
    assert press(desk, "enter") == []


# --- learning


def test_learning_is_paged_and_redrawn_over_another_axis(desk: MonitorState) -> None:
    press(desk, "3")
    text = screen(desk, 80, 12)
    assert "page 1 of 1 · over steps" in text
    assert "return/mean_100 19" in text
    press(desk, "x", "b", "l", "space")
    assert "page 1 of 1 · over seconds · band · logarithmic" in screen(desk)


def test_curves_are_drawn_now_and_then(desk: MonitorState) -> None:
    """They grow slowly; a key shows at once."""
    press(desk, "3")
    before = screen(desk)
    desk.series._add({"steps": 20, "updates": 20, "seconds": 20, RETURN: 400.0})
    assert screen(desk) == before
    press(desk, "x")
    assert "return/mean_100 400" in screen(desk)


def test_other_runs_are_laid_under_it_in_turn(tmp_path: Path) -> None:
    directory = run(tmp_path)
    others = [run(tmp_path, "a", 5), run(tmp_path, "b", 10)]
    desk = made(directory, None, [*others, directory])
    press(desk, "3", "o")
    assert "with a-1" in screen(desk)
    assert "return/mean_100 19 / 4" in screen(desk)
    press(desk, "o")
    assert "return/mean_100 19 / 9" in screen(desk)
    press(desk, "o")
    assert "with" not in screen(desk)
    alone = made(directory, None, [directory])
    press(alone, "3", "o")
    assert "there is no other run" in screen(alone)


# --- logs


def test_logs_are_filtered_searched_and_scrolled(desk: MonitorState) -> None:
    press(desk, "4")
    text = screen(desk)
    assert "2 lines · all · all actors · following" in text
    assert "learner-0          WARN slow" in text
    press(desk, "w")
    assert "1 line · warn · all actors" in screen(desk)
    press(desk, "d", "a")
    assert "1 line · all · learner-0" in screen(desk)
    press(desk, "a", "a", "slash", *"savx", "backspace", "e")
    assert desk.search == "save"
    assert "1 line · all · all actors · /save" in screen(desk)
    press(desk, "enter")
    assert desk.search == "save"
    press(desk, "escape")
    assert "2 lines" in screen(desk)
    press(desk, "slash", "x", "escape")
    assert desk.search == ""


def test_new_lines_are_followed_until_one_scrolls(desk: MonitorState) -> None:
    press(desk, "4")
    with desk.directory.log_file("recorder").open("a") as file:
        file.writelines(f"2026-11-21 01:13:{n:02}.000 recorder INFO line {n}\n" for n in range(50))
    desk.show(lively())
    assert "INFO line 49" in screen(desk)
    press(desk, "up", "up")
    text = screen(desk)
    assert "2 below" in text
    assert "INFO line 49" not in text
    press(desk, "f")
    assert "following" in screen(desk)


def test_the_newest_crash_report_is_read(desk: MonitorState) -> None:
    press(desk, "c")
    assert "there is no crash report" in screen(desk)
    for n, text in enumerate(("old", "collector-0 failed: \x1b[31mit fell\n" + "line\n" * 99 + "the end")):
        path = desk.directory.crash_file("collector-0", n + 1)
        path.write_text(text)
        os.utime(path, (n, n))
    press(desk, "c")
    assert "collector-0 failed:  [31mit fell" in screen(desk)
    press(desk, *["pagedown"] * 20)
    assert screen(desk).splitlines()[37].strip() == "the end"
    press(desk, "escape")
    assert "bound by" in screen(desk)


# --- the palette


def test_the_palette_lists_and_does_everything(desk: MonitorState) -> None:
    press(desk, "2", "colon")
    text = screen(desk)
    assert "every action here" in text
    assert "screen: learning" in text
    press(desk, *"learning")
    assert "screen: house" not in screen(desk)
    assert press(desk, "enter") == []
    assert desk.screen == "learning"
    assert press(desk, "question_mark", *"leave", "enter") == [Effect("leave")]


def test_the_palette_is_walked_through_and_left(desk: MonitorState) -> None:
    press(desk, "colon", "down", "down", "up", *["up"] * 5)
    assert desk.chosen == 0
    press(desk, "escape")
    assert "bound by" in screen(desk)
    press(desk, "colon", *"no such action")
    assert press(desk, "enter") == []
    assert desk.typing == ""


def test_other_keys_do_nothing(desk: MonitorState) -> None:
    before = screen(desk)
    assert press(desk, "z", "f12", "tab", "ctrl+a") == []
    assert screen(desk) == before


def test_a_run_without_actors_is_no_trouble(tmp_path: Path) -> None:
    desk = made(run(tmp_path), snapshot(actors=[], helpers=[]))
    press(desk, "2", "down", "down", "enter", "R")
    screen(desk)
