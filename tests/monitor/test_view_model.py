"""The state of the terminal UI: keys change it and screens are drawn from it, without a terminal and without a run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from canned_runs import COLLECTING, lively, snapshot
from canned_status import starting

from hive.monitor import Snapshot, snapshot_of
from hive.monitor.actions import SCREENS, Effect
from hive.monitor.actors_screen import Inspection
from hive.monitor.drawing import DIM, PLAIN, plain, width_of
from hive.monitor.keys import ACTIONS
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
def state(tmp_path: Path) -> MonitorState:
    directory = run(tmp_path)
    return made(directory)


def made(
    directory: RunDirectory, seen: Snapshot | None = None, others: Sequence[RunDirectory] = (), **more: bool
) -> MonitorState:
    series = Series(directory.metrics_file)
    series.read()
    state = MonitorState(directory, series, ACTIONS, lambda: others, **more)
    state.show(seen or lively())
    return state


def screen(state: MonitorState, width: int = 120, height: int = 40) -> str:
    lines = state.lines(width, height)
    assert len(lines) == height
    assert {width_of(line) for line in lines} == {width}
    return plain(lines)


def press(state: MonitorState, *keys: str) -> list[Effect]:
    effects = [state.press(key, key if len(key) == 1 else None) for key in keys]
    return [effect for effect in effects if effect is not None]


# --- screens


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (30, 6)])
def test_every_screen_fills_every_terminal(state: MonitorState, size: tuple[int, int]) -> None:
    for number, name in enumerate(SCREENS, 1):
        press(state, str(number))
        assert state.screen == name
        screen(state, *size)
    press(state, "2", "enter")
    screen(state, *size)
    press(state, "colon")
    screen(state, *size)


@pytest.mark.parametrize(
    "seen", [snapshot_of(starting()), lively(collectors=[COLLECTING] * 64), lively(state="lost", actors=[])]
)
def test_every_screen_of_odd_runs(tmp_path: Path, seen: Snapshot) -> None:
    state = made(run(tmp_path), seen)
    for key in ("1", "2", "enter", "escape", "3", "4"):
        press(state, key)
        assert "cartpole-1" in screen(state, 80, 24)


def test_before_the_first_snapshot(tmp_path: Path) -> None:
    directory = run(tmp_path)
    state = MonitorState(directory, Series(directory.metrics_file), ACTIONS)
    assert "waiting for the supervisor" in screen(state)
    state.problem = "error: the supervisor of cartpole-1 does not answer"
    assert state.problem in screen(state)
    for key in ("2", "enter", "R", "down", "3", "4", "1"):
        assert press(state, key) == []


def test_outdated_values_are_grey(tmp_path: Path) -> None:
    state = made(run(tmp_path), dataclasses.replace(lively(), supervisor="does not answer, since 01:15:02"))
    for key in ("1", "2", "3"):
        press(state, key)
        lines = state.lines(100, 30)
        assert plain(lines[1:2]).strip() == "supervisor does not answer, since 01:15:02"
        assert {style for line in lines[2:-2] for _, style in line} <= {DIM, PLAIN}


def test_keys_are_on_the_screen(state: MonitorState) -> None:
    text = screen(state, 80, 24).splitlines()[-1]
    assert text == " 1 overview  2 actors  3 learning  4 logs    : actions  q leave (run continues)"
    press(state, "2")
    assert "R restart  K kill" in screen(state)
    press(state, "3")
    assert "x axis  o compare with another run  b band" in screen(state)


def test_leaving_is_one_key_everywhere(state: MonitorState) -> None:
    for key in ("1", "2", "3", "4"):
        assert press(state, key, "q") == [Effect("leave")]


# --- actors


def test_the_selected_actor_is_inspected(state: MonitorState) -> None:
    press(state, "2", "down", "down", "down", "up")
    assert press(state, "enter") == [Effect("inspect", "collector-0")]
    assert "waiting for the reply" in screen(state)
    state.inspected = Inspection("collector-0", "in step", ("starting -ready-> ready",))
    assert "in step" in screen(state)
    assert press(state, "s") == [Effect("inspect", "collector-0")]
    press(state, "escape")
    assert "NAME" in screen(state)


def test_the_selection_stays_within_the_table(state: MonitorState) -> None:
    press(state, "2", *["down"] * 99)
    assert state.rows()[state.selected].name == "recorder"
    press(state, "pageup", "pageup")
    assert state.selected == 0
    assert press(state, "enter") == []
    assert "supervisor is not an actor" in screen(state)


def test_the_table_is_sorted(state: MonitorState) -> None:
    press(state, "2", "full_stop", "r")
    assert "↑NAME" in screen(state)
    assert state.rows()[0].name == "supervisor"
    press(state, "comma", "comma")
    assert "↑RS" in screen(state)


def test_a_restart_needs_a_confirmation_that_names_its_consequence(state: MonitorState) -> None:
    press(state, "2", "down", "down")
    assert press(state, "R") == []
    assert "restart collector-0? Its unfinished work is lost; it is restarted.  y / n" in screen(state)
    assert press(state, "n") == []
    assert press(state, "y") == []
    assert press(state, "R", "y") == [Effect("restart", "collector-0")]
    press(state, "K")
    expected = "kill collector-0? Its unfinished work is lost, and this counts as a failure; it is restarted."
    assert expected in screen(state)
    assert press(state, "y") == [Effect("kill", "collector-0")]


def test_killing_an_actor_that_is_not_restarted_warns_that_the_run_ends(tmp_path: Path) -> None:
    state = made(run(tmp_path), lively(changes={"collector-0": {"restart": False}}))
    press(state, "2", "down", "down", "enter", "K")
    assert "the run ends, because it is not restarted" in screen(state)


def test_only_actors_of_a_live_run_can_be_killed(tmp_path: Path) -> None:
    state = made(run(tmp_path))
    assert press(state, "2", "R", "y") == []
    press(state, "R")
    assert "supervisor is not an actor" in screen(state)
    ended = made(run(tmp_path, "other"), lively(state="stopped"))
    assert press(ended, "2", "down", "down", "K", "y", "enter") == []
    assert "the run is not running" in screen(ended)


def test_the_run_is_paused_resumed_and_saved(tmp_path: Path) -> None:
    state = made(run(tmp_path))
    assert press(state, "p", "n") == []
    press(state, "p")
    assert "pause the run? All its state stays in memory.  y / n" in screen(state)
    assert press(state, "y") == [Effect("pause")]
    assert press(state, "s", "y") == [Effect("save")]
    paused = made(run(tmp_path, "other"), lively(state="paused"))
    assert press(paused, "p", "y") == [Effect("resume")]
    assert press(paused, "s", "y") == [Effect("save")]
    ended = made(run(tmp_path, "third"), lively(state="stopped"))
    assert press(ended, "p", "y", "s", "y") == []
    assert "the run is stopped" in screen(ended)
    assert press(made(run(tmp_path, "fourth"), readonly=True), "p", "y", "s", "y") == []


def test_readonly_has_no_key_that_changes_the_run(tmp_path: Path) -> None:
    state = made(run(tmp_path), readonly=True)
    press(state, "2", "down", "down")
    assert press(state, "R", "y", "K", "y") == []
    assert "restart" not in screen(state)
    press(state, "colon", *"kill")
    assert press(state, "enter") == []


# --- learning


def test_learning_is_paged_and_redrawn_over_another_axis(state: MonitorState) -> None:
    press(state, "3")
    text = screen(state, 80, 12)
    assert "page 1 of 1 · over steps" in text
    assert "return/mean_100 19" in text
    press(state, "x", "b", "l", "space")
    assert "page 1 of 1 · over seconds · band · logarithmic" in screen(state)


def test_curves_are_redrawn_every_few_seconds_and_after_a_key(state: MonitorState) -> None:
    press(state, "3")
    before = screen(state)
    state.series._add({"steps": 20, "updates": 20, "seconds": 20, RETURN: 400.0})
    assert screen(state) == before
    press(state, "x")
    assert "return/mean_100 400" in screen(state)


def test_other_runs_are_compared_one_after_another(tmp_path: Path) -> None:
    directory = run(tmp_path)
    others = [run(tmp_path, "a", 5), run(tmp_path, "b", 10)]
    state = made(directory, None, [*others, directory])
    press(state, "3", "o")
    assert "with a-1" in screen(state)
    assert "return/mean_100 19 / 4" in screen(state)
    press(state, "o")
    assert "return/mean_100 19 / 9" in screen(state)
    press(state, "o")
    assert "with a-1" not in screen(state)
    assert "with b-1" not in screen(state)
    alone = made(directory, None, [directory])
    press(alone, "3", "o")
    assert "there is no other run" in screen(alone)


# --- logs


def test_logs_are_filtered_searched_and_scrolled(state: MonitorState) -> None:
    press(state, "4")
    text = screen(state)
    assert "2 lines · all · all actors · following" in text
    assert "learner-0          WARN slow" in text
    press(state, "w")
    assert "1 line · warn · all actors" in screen(state)
    press(state, "d", "a")
    assert "1 line · all · learner-0" in screen(state)
    press(state, "a", "a", "slash", *"savx", "backspace", "e")
    assert state.search == "save"
    assert "1 line · all · all actors · /save" in screen(state)
    press(state, "enter")
    assert state.search == "save"
    press(state, "escape")
    assert "2 lines" in screen(state)
    press(state, "slash", "x", "escape")
    assert state.search == ""


def test_new_lines_are_followed_until_one_scrolls(state: MonitorState) -> None:
    press(state, "4")
    with state.directory.log_file("recorder").open("a") as file:
        file.writelines(f"2026-11-21 01:13:{n:02}.000 recorder INFO line {n}\n" for n in range(50))
    state.show(lively())
    assert "INFO line 49" in screen(state)
    press(state, "up", "up")
    text = screen(state)
    assert "2 below" in text
    assert "INFO line 49" not in text
    press(state, "f")
    assert "following" in screen(state)


def test_the_newest_crash_report_is_read(state: MonitorState) -> None:
    press(state, "c")
    assert "there is no crash report" in screen(state)
    for n, text in enumerate(("old", "collector-0 failed: \x1b[31mit fell\n" + "line\n" * 99 + "the end")):
        path = state.directory.crash_file("collector-0", n + 1)
        path.write_text(text)
        os.utime(path, (n, n))
    press(state, "c")
    assert "collector-0 failed: ?[31mit fell" in screen(state)
    press(state, *["pagedown"] * 20)
    assert screen(state).splitlines()[37].strip() == "the end"
    press(state, "escape")
    assert "bound by" in screen(state)


# --- the palette


def test_the_palette_lists_and_does_everything(state: MonitorState) -> None:
    press(state, "2", "colon")
    text = screen(state)
    assert "actions on this screen" in text
    assert "screen: learning" in text
    press(state, *"learning")
    assert "screen: overview" not in screen(state)
    assert press(state, "enter") == []
    assert state.screen == "learning"
    assert press(state, "question_mark", *"leave", "enter") == [Effect("leave")]


def test_the_palette_is_walked_through_and_left(state: MonitorState) -> None:
    press(state, "colon", "down", "down", "up", *["up"] * 5)
    assert state.chosen == 0
    press(state, "escape")
    assert "bound by" in screen(state)
    press(state, "colon", *"no such action")
    assert press(state, "enter") == []
    assert state.typing == ""


def test_other_keys_do_nothing(state: MonitorState) -> None:
    before = screen(state)
    assert press(state, "z", "f12", "tab", "ctrl+a") == []
    assert screen(state) == before


def test_a_run_without_actors_is_no_trouble(tmp_path: Path) -> None:
    state = made(run(tmp_path), snapshot(actors=[], helpers=[]))
    press(state, "2", "down", "down", "enter", "R")
    screen(state)
