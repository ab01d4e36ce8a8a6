"""The terminal UI through textual's own pilot: screens, sizes, keys, mouse, palette, and requests to a supervisor."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, ValuesView
from pathlib import Path
from typing import Any

import pytest
from canned_runs import COLLECTING, lively, trainer
from canned_status import account, actor, status, warned
from fake_supervisor import FakeSupervisor
from textual.message import Message
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Label

from hive.monitor import Snapshot, poller, snapshot_of
from hive.monitor.actor_detail import ActorInspection
from hive.monitor.poller import Poller
from hive.monitor.series import Curve
from hive.monitor.snapshot import Extras
from hive.monitor.terminal.app import FOCUS, Monitor, NewSnapshot
from hive.monitor.terminal.app import SCREENS as SCREENS_OF_APP
from hive.monitor.terminal.dialogs import ActorDetail, Confirm
from hive.monitor.terminal.learning_pane import LearningPane
from hive.monitor.terminal.overview_pane import heights
from hive.monitor.terminal.palette import Commands
from hive.monitor.terminal.supervisor_requests import Inspected, Noticed
from hive.monitor.terminal.view import Request
from hive.monitor.terminal.widgets import Grid
from hive.records import RunDirectory, RunFacts, process_start_time, write_run_facts
from hive.runtime.run import control, control_server
from hive.runtime.run.control import PROTOCOL


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunDirectory]:
    monkeypatch.setattr(control_server, "PUSH_S", 0.5)
    for module, name in ((poller, "SILENT_S"), (control, "ANSWER_S"), (control_server, "REQUEST_S")):
        monkeypatch.setattr(module, name, PATIENCE_S)  # a fake supervisor on a busy machine is not silent
    monkeypatch.setattr(Monitor, "NOTIFICATION_TIMEOUT", PATIENCE_S)  # a notice stays until its test has seen it
    folder = Path(tempfile.mkdtemp(prefix="hv"))
    yield RunDirectory.create(folder, "cartpole")
    shutil.rmtree(folder)


@pytest.fixture
def supervisor(directory: RunDirectory) -> Iterator[FakeSupervisor]:
    start = process_start_time(os.getpid())
    assert start is not None
    facts = RunFacts(
        directory.name, os.getpid(), start, str(directory.path.parent), 1.7e9, [], "0.1", "3.11", protocol=PROTOCOL
    )
    write_run_facts(directory, facts)
    fake = FakeSupervisor(directory.path.parent, trainer(10.0, pid=os.getpid()))
    yield fake
    fake.close()


PATIENCE_S = 60.0  # seconds until a condition that never holds fails its test
SCREENS = pytest.mark.full(reason="an application for each screen takes half a second")


def shown(app: Monitor) -> str:
    """Return the text that the terminal shows."""
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


def keys_of(app: Monitor) -> set[str]:
    """Return the descriptions of the keys that the line at the bottom offers."""
    return {active.binding.description for active in app.screen.active_bindings.values() if active.binding.show}


def question(app: Monitor) -> str:
    """Return the question of the open dialog; "" if there is none."""
    labels = app.screen.query(Label)
    return str(labels.first().content) if isinstance(app.screen, Confirm) and labels else ""


def notices(app: Monitor) -> str:
    return " ".join(notice.message for notice in app._notifications)


def commands_of(app: Monitor) -> set[str]:
    return {command.name for command in app.commands()}


async def until(condition: Callable[[], Any]) -> None:
    """Wait until the condition holds. Tests wait for nothing else, so a busy machine makes them slow, not wrong."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def sees(app: Monitor, *words: str, missing: str = "") -> None:
    """Wait until the terminal shows all of the words and, if it is given, not the text `missing`."""

    def met() -> bool:
        text = shown(app)
        return all(word in text for word in words) and not (missing and missing in text)

    try:
        await until(met)
    except TimeoutError:
        pytest.fail(f"{words} and not {missing!r} in:\n{shown(app)}")


async def post(app: Monitor, message: Message) -> None:
    """Post a message, and wait until the application has handled it."""
    handled = asyncio.Event()
    app.post_message(message)
    app.call_later(handled.set)
    await asyncio.wait_for(handled.wait(), PATIENCE_S)


async def show(app: Monitor, snapshot: Snapshot) -> None:
    """Post a snapshot, and wait until its run is shown."""
    await post(app, NewSnapshot(snapshot))
    await until(lambda: app.pane is not None and app.focused is not None)


async def go(pilot: Pilot[None], app: Monitor, key: str, words: str) -> None:
    """Open the screen of this key, and wait until it has the focus and shows the words."""
    await pilot.press(key)
    focus = FOCUS[SCREENS_OF_APP[int(key) - 1]]
    await until(lambda: app.focused is not None and f"#{app.focused.id}" == focus)
    await sees(app, words)


async def open_actors(pilot: Pilot[None], app: Monitor) -> Grid:
    """Open the table of actors, and wait until its cursor is at the first of them."""
    await go(pilot, app, "2", "ACTIVITY")
    table = app.query_one("#actors", Grid)
    await until(lambda: table.chosen == "collector-0")
    return table


async def answer(pilot: Pilot[None], app: Monitor, words: str, key: str = "y") -> None:
    """Wait for a question with these words, answer it, and wait until the dialog is gone."""
    await until(lambda: words in question(app))
    dialog = app.screen
    await pilot.press(key)
    await until(lambda: app.screen is not dialog)


async def test_the_four_screens_by_keys_and_mouse(directory: RunDirectory) -> None:
    app = Monitor(directory, None)
    async with app.run_test(size=(120, 40)) as pilot:
        await sees(app, "waiting for the supervisor")
        await show(app, lively(collectors=[COLLECTING] * 4))
        await until(lambda: re.search("collectors +4 ", shown(app)))
        for key, words in (("2", "ACTIVITY"), ("3", "no metrics yet"), ("4", "all actors"), ("1", "bound by:")):
            await go(pilot, app, key, words)
        await pilot.click("#tab-actors")
        await sees(app, "ACTIVITY")
        table = app.query_one("#actors", Grid)
        await until(lambda: table.chosen == "collector-0")
        await sees(app, "─ time")  # in the summary of the actor with the cursor
        await pilot.click(table, offset=(3, 4))
        await until(lambda: table.chosen == "collector-1")
        await pilot.click(table, offset=(3, 0))
        await sees(app, "↑NAME")
        assert table.chosen == "collector-1"
        await pilot.click(table, offset=(3, 0))
        await sees(app, "↓NAME")


@pytest.mark.parametrize(("room", "curve", "events"), [(11, 0, 0), (18, 0, 4), (25, 9, 3), (46, 18, 16)])
def test_the_curve_goes_first_then_events_then_channels(room: int, curve: int, events: int) -> None:
    shown = heights(room, 5, 6, 1)
    assert sum(shown.values()) <= room
    assert shown["top"] == curve
    assert (shown["events"] > 0) == (events > 0)
    assert shown["groups"] == 5
    assert shown["bound"] == 1


@pytest.mark.parametrize("room", [11, 18, 25, 46])
def test_a_wide_terminal_has_the_events_beside_the_channels(room: int) -> None:
    shown = heights(room, 5, 6, 1, wide=True)
    assert sum(shown.values()) == room
    assert shown["events"] == 0
    assert shown["middle"] >= min(room - 7, 6)
    assert shown["top"] >= heights(room, 5, 6, 1)["top"]


async def test_small_and_large_terminals(directory: RunDirectory) -> None:
    app = Monitor(directory, None)
    async with app.run_test(size=(60, 15)) as pilot:
        await show(app, lively())
        await sees(app, "5000 steps/s", "collectors", "rollouts", "bound by:", missing="return (last")
        await pilot.resize_terminal(200, 50)
        await sees(app, "return (last", "10 s   1 min   5 min", "gradient 20%", "collector-1 is back after 37 ms")


async def test_only_cells_that_have_changed_are_updated(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Monitor(directory, None)
    updated: list[str] = []
    async with app.run_test(size=(100, 30)):
        await show(app, lively())
        await until(lambda: all(grid.row_count for grid in app.query("OverviewPane Grid").results(Grid)))
        original = DataTable.update_cell

        def update_cell(self: DataTable[Any], row: str, column: str, value: Any, **more: Any) -> None:
            updated.append(f"{row} {value.plain.strip()}")
            original(self, row, column, value, **more)

        monkeypatch.setattr(DataTable, "update_cell", update_cell)
        await show(app, lively())
        assert updated == []
        rollouts = dataclasses.replace(lively().channels["rollouts"], in_flight=5)
        await show(app, dataclasses.replace(lively(), channels=lively().channels | {"rollouts": rollouts}))
        assert updated == ["channel rollouts ▇ 5/6"]


async def test_a_run_that_ends_keeps_its_rows_and_offers_no_keys_that_do_nothing(directory: RunDirectory) -> None:
    app = Monitor(directory, None)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(app, lively())
        assert {"pause", "save", "end run"} <= keys_of(app)
        table = await open_actors(pilot, app)
        assert {"restart", "kill", "detail"} <= keys_of(app)
        await pilot.press("K")
        await until(lambda: question(app))
        assert question(app).startswith("kill collector-0? Its unfinished work is lost, and this counts as a failure")
        await until(lambda: app.screen.query_one("#no").region)
        await pilot.click("#no")
        await until(lambda: len(app.screen_stack) == 1)
        await pilot.press("up", "up")
        await until(lambda: table.chosen == "supervisor")
        assert not {"restart", "kill"} & keys_of(app)  # the supervisor is no actor
        rows = tuple(dataclasses.replace(row, state="finished", busy=None, pid=0) for row in lively().actors)
        await show(app, dataclasses.replace(lively(), state="finished", pid=0, actors=rows, helpers=()))
        await sees(app, "finished", "collector-0", "92%")
        assert not {"pause", "resume", "save", "end run", "restart", "kill"} & keys_of(app)
        assert not [name for name in commands_of(app) if name.startswith(("set", "scale", "down", "kill", "stack"))]
        await pilot.press("enter")
        await sees(app, "the run is not running")
        assert keys_of(app) == {"back"} | (keys_of(app) & {"commands", "leave"})


async def test_readonly_offers_no_actions(directory: RunDirectory) -> None:
    app = Monitor(directory, None, readonly=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(app, lively())
        await sees(app, "readonly")
        changing = {"pause", "save", "end run", "restart", "kill"}
        assert not changing & keys_of(app)
        await open_actors(pilot, app)
        assert not changing & keys_of(app)
        assert commands_of(app) == {
            *(f"screen {name}" for name in ("overview", "actors", "learning", "logs")),
            *(f"stack {row.name}" for row in lively().actors),
            *("theme", "keys", "leave"),
        }
        await pilot.press("K")
        assert len(app.screen_stack) == 1


HOSTILE = "\x1b[2J\x9b1m\x07\r\n\t\u202e\u2066\ud800\u2028\u200b日本"


def hostile_files(directory: RunDirectory) -> None:
    line = {"t": 1.0, "steps": 1, "updates": 1, "seconds": 1.0, f"{HOSTILE}/{HOSTILE}": 1.0}
    directory.metrics_file.write_text("".join(json.dumps(line | {"steps": n}) + "\n" for n in range(9)))
    text = f"2026-11-21 01:12:30.000 learner-0 WARN {HOSTILE}\n{HOSTILE}\n"
    directory.log_file("learner-0").write_text(text, errors="replace")
    directory.log_file(HOSTILE.replace("\ud800", "\udcff")).write_text(text, errors="replace")
    directory.crash_file("learner-0", 1).write_text(HOSTILE, errors="replace")


def hostile_snapshot() -> Snapshot:
    rows = [
        actor(name, group=HOSTILE, activity=HOSTILE, phases={HOSTILE: 1.0}, kinds={HOSTILE: HOSTILE}, state=state)
        | {"counters": {HOSTILE: 1.0, "env_steps": 1.0}, "sent": {HOSTILE: 1}}
        for name, state in ((HOSTILE, "running"), ("learner-0", HOSTILE))
    ]
    document = status(*rows, run=HOSTILE, state=HOSTILE, reason=HOSTILE, warnings=[warned(HOSTILE)])
    document["channels"] = {HOSTILE: account(1, **{HOSTILE: 1})}
    document["helpers"] = [{"name": HOSTILE, "pid": 1, "state": HOSTILE}]
    document["edges"] = {
        HOSTILE: {"carrier": HOSTILE, "source": HOSTILE, "targets": [HOSTILE], "capacity": 2, "version": None},
        "weights": {"carrier": "board", "source": HOSTILE, "targets": [HOSTILE], "version": 1},
    }
    died = {"t": 1.0, "kind": "died", "actor": "learner-0", "text": HOSTILE}
    return snapshot_of(document, extras=Extras(events=(died, {"t": 1.0, "actor": HOSTILE, "text": HOSTILE})))


async def test_no_screen_shows_what_a_terminal_obeys(directory: RunDirectory) -> None:
    hostile_files(directory)
    seen = hostile_snapshot()
    app = Monitor(directory, None)
    app.view.series.read()

    def safe() -> bool:
        return all(map(str.isprintable, shown(app).split("\n")))

    async with app.run_test(size=(120, 40)) as pilot:
        await post(app, NewSnapshot(None, HOSTILE))
        await pilot.pause()
        assert safe()
        await show(app, dataclasses.replace(seen, supervisor=HOSTILE))
        await post(app, Noticed(HOSTILE))
        for key, words in (("1", "GROUP"), ("2", "ACTIVITY"), ("3", "over steps"), ("4", "all actors")):
            await go(pilot, app, key, words)
            assert safe()
        await go(pilot, app, "2", "ACTIVITY")
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ActorDetail))
        assert isinstance(app.screen, ActorDetail)
        for reply in (ActorInspection(app.screen.actor, HOSTILE, (HOSTILE,)), ActorInspection("x", error=HOSTILE)):
            await post(app, Inspected(reply))
            await sees(app, "transition history")
            assert safe()
        await pilot.press("escape", "colon")
        await sees(app, "Search for commands")
        assert safe()


async def test_leaving(directory: RunDirectory) -> None:
    for key in ("q", "ctrl+c"):
        app = Monitor(directory, None)
        async with app.run_test() as pilot:
            await pilot.press(key)
            await until(lambda app=app: not app.is_running)  # type: ignore[misc]


async def test_a_problem_and_ascii(directory: RunDirectory) -> None:
    app = Monitor(directory, None, ascii_only=True)
    async with app.run_test(size=(80, 24)):
        await post(app, NewSnapshot(None, "error: the supervisor of cartpole-1 does not answer"))
        await sees(app, "does not answer")
        await show(app, lively())
        await sees(app, "rollouts")
        assert shown(app).isascii()


@SCREENS
async def test_themes_change_the_colours(directory: RunDirectory) -> None:
    app = Monitor(directory, None)
    async with app.run_test(size=(100, 30)):
        await show(app, lively())
        table = app.query_one("#groups", Grid)
        await until(lambda: table.row_count)
        before = table.get_row("collectors")
        app.theme = "gruvbox"

        def other_colours() -> bool:
            after = table.get_row("collectors")
            assert [cell.plain for cell in before] == [cell.plain for cell in after]
            return bool(before[0].style != after[0].style)

        await until(other_colours)


@SCREENS
async def test_curves_are_in_a_grid_with_the_return_first(directory: RunDirectory) -> None:
    names = ("learner/kl", "learner/entropy", "return/mean_100", "episodes")
    lines = [{"steps": n, "updates": n, "seconds": n, **dict.fromkeys(names, float(n))} for n in range(9)]
    directory.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    app = Monitor(directory, None)
    app.view.series.read()
    async with app.run_test(size=(120, 40)) as pilot:
        await show(app, lively())
        await go(pilot, app, "3", "over steps")
        await sees(app, "return/mean_100 8", "learner/entropy 8", "learner/kl 8", "episodes 8")
        text = shown(app)
        assert text.index("return/mean_100 8") < text.index("learner/entropy 8") < text.index("learner/kl 8")
        assert text.index("learner/kl 8") < text.index("episodes 8")
        await pilot.press("x", "l")
        await sees(app, "over seconds · logarithmic")
        assert not {"band", "compare"} & keys_of(app)  # there is nothing for them
        await pilot.press("tab")
        await until(lambda: "enlarge" in keys_of(app))
        await pilot.press("enter")
        await sees(app, "return/mean_100 8", missing="learner/kl 8")
        assert {"all curves", "axis"} <= keys_of(app)
        assert "page" not in keys_of(app)
        await pilot.press("escape")
        await sees(app, "learner/kl 8")
        assert {"enlarge", "page"} <= keys_of(app)


def test_curves_are_read_under_the_lock_of_the_thread_that_adds_points(directory: RunDirectory) -> None:
    class Guarded(dict[str, Curve]):
        def values(self) -> ValuesView[Curve]:
            assert app.lock.locked()
            return super().values()

    app = Monitor(directory, None)
    app.view.series.curves = Guarded(learner=Curve())
    assert LearningPane(app.view).check_action("switch", ("band",)) is False


@SCREENS
async def test_logs_are_filtered_searched_and_wrapped(directory: RunDirectory) -> None:
    for name, level, text in (("learner-0", "INFO", f"hello {'x' * 90} end"), ("collector-0", "ERROR", "it fell")):
        directory.log_file(name).write_text(f"2026-11-21 01:12:30.000 {name} {level} {text}\n")
    app = Monitor(directory, None)
    async with app.run_test(size=(100, 20)) as pilot:
        await show(app, lively())
        await go(pilot, app, "4", "2 lines · all · all actors")
        await sees(app, "xx end")
        await pilot.press("z")
        await sees(app, "long lines are cut", missing="xx end")
        await pilot.press("e")
        await sees(app, "1 line · error", missing="hello")
        await pilot.press("d", "slash")
        await until(lambda: isinstance(app.focused, Input))
        await pilot.press("h", "e", "l")
        await sees(app, "1 line · all · all actors · /hel")
        await pilot.press("enter")
        await until(lambda: not isinstance(app.focused, Input))
        await pilot.press("escape")
        await sees(app, "2 lines · all · all actors")


@SCREENS
async def test_the_newest_crash_report_is_read(directory: RunDirectory) -> None:
    app = Monitor(directory, None)
    async with app.run_test(size=(100, 20)) as pilot:
        await show(app, lively())
        assert "crash" not in keys_of(app)
        directory.crashes.mkdir(exist_ok=True)
        (directory.crashes / "collector-0.txt").write_text("Traceback: it fell")
        await until(lambda: "crash" in keys_of(app))
        await pilot.press("c")
        await sees(app, "Traceback: it fell")
        await pilot.press("escape")
        await until(lambda: len(app.screen_stack) == 1)


async def test_a_live_run_is_followed_and_its_actors_inspected_and_restarted(
    directory: RunDirectory, supervisor: FakeSupervisor
) -> None:
    app = Monitor(directory, Poller(directory))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: app.view.snapshot)
        supervisor.status = trainer(30.0, pid=os.getpid())
        await until(lambda: app.view.snapshot and app.view.snapshot.env_steps == 150_000)
        await sees(app, "150k / 500k")
        await open_actors(pilot, app)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ActorDetail))
        await sees(app, "in run of collector-0")
        await until(lambda: "restart" in keys_of(app))
        await pilot.press("R")
        await answer(pilot, app, "restart collector-0?")
        await until(lambda: supervisor.killed == [("collector-0", True)])
        await until(lambda: "collector-0 was killed" in notices(app))
        supervisor.refusal = "collector-0 is not running"
        app.post_message(Request("kill", "collector-0"))
        await answer(pilot, app, "counts as a failure")
        await until(lambda: supervisor.refusal in notices(app))
    assert supervisor.asked == []  # leaving stops nothing


@SCREENS
async def test_the_palette_sets_scales_and_ends_the_run(directory: RunDirectory, supervisor: FakeSupervisor) -> None:
    app = Monitor(directory, Poller(directory))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: app.pane is not None)
        provider = Commands(app.screen)
        hits = [hit async for hit in provider.search("stack learner")]
        assert str(hits[0].match_display) == "stack learner-0"

        async def ask(name: str, text: str) -> None:
            next(command for command in app.commands() if command.name == name).run()
            await until(lambda: len(app.screen_stack) == 2 and app.screen.query(Input))
            app.screen.query_one(Input).value = text
            await pilot.press("enter")
            await answer(pilot, app, f"{text}?")
            await until(lambda: len(app.screen_stack) == 1)

        async def press(key: str, words: str) -> None:
            await pilot.press(key)
            await answer(pilot, app, words)

        await ask("set", "algorithm.learning_rate=1e-4")
        await until(lambda: supervisor.steered == ["set algorithm.learning_rate=1e-4"])
        await ask("scale", "collection.workers=4")
        await until(lambda: supervisor.scaled == [("collection.workers=4",)])
        await press("p", "pause the run?")
        await until(lambda: supervisor.steered[1:] == ["pause"])
        supervisor.status = supervisor.status | {"state": "paused"}
        await until(lambda: "resume" in keys_of(app))
        await press("s", "save a checkpoint")
        await until(lambda: supervisor.steered[2:] == ["save"])
        await press("p", "resume the run?")
        await until(lambda: supervisor.steered[3:] == ["resume"])
        await press("D", "end the run?")
        await until(lambda: supervisor.asked == [("hive monitor", False)])


async def test_a_supervisor_that_is_gone_is_reported(directory: RunDirectory) -> None:
    app = Monitor(directory, Poller(directory))
    async with app.run_test(size=(120, 40)):
        await sees(app, "supervisor gone since")


@pytest.mark.full(reason="starts two processes and tmux")
def test_it_runs_in_a_terminal(directory: RunDirectory) -> None:
    tmux = shutil.which("tmux")
    if tmux is None:
        pytest.skip("tmux is not installed")
    server = [tmux, "-L", f"hive-{os.getpid()}", "-f", "/dev/null"]
    command = f"env -u COLUMNS -u LINES {sys.executable} -m hive monitor {directory.path}"  # its size is tmux's
    subprocess.run([*server, "new-session", "-d", "-x", "60", "-y", "15", command], check=True)
    try:
        deadline, text = time.monotonic() + PATIENCE_S, ""
        while not ("supervisor gone since" in text and "q leave" in text) and time.monotonic() < deadline:
            threading.Event().wait(0.2)  # polling without a pause would starve the program
            text = subprocess.run([*server, "capture-pane", "-p"], capture_output=True, text=True, check=True).stdout
        assert "supervisor gone since" in text
        assert "1 overview  2 actors  3 learning  4 logs" in text
    finally:
        subprocess.run([*server, "kill-server"], check=True)
