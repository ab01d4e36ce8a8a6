"""The terminal UI through textual's own pilot: keys, sizes, drawing, and requests to a supervisor."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from canned_runs import COLLECTING, lively, trainer
from canned_status import account, actor, status, warned
from fake_supervisor import FakeSupervisor

from hive.monitor import Snapshot, snapshot_of
from hive.monitor.actors_screen import Inspection
from hive.monitor.drawing import __all__ as drawing_names
from hive.monitor.poller import Poller
from hive.monitor.snapshot import Extras
from hive.monitor.terminal import STYLES, Inspected, Monitor, NewSnapshot, Noticed
from hive.records import RunDirectory, RunFacts, process_start_time, write_run_facts
from hive.runtime.run import control_server
from hive.runtime.run.control import PROTOCOL

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)])


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunDirectory]:
    monkeypatch.setattr(control_server, "PUSH_S", 0.05)
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


def shown(app: Monitor) -> str:
    """Return the text that the terminal shows."""
    return "\n".join(app.page.render_line(y).text.rstrip() for y in range(app.size.height))


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


@SIZES
async def test_the_four_screens(directory: RunDirectory, size: tuple[int, int]) -> None:
    app = Monitor(directory, None)
    async with app.run_test(size=size) as pilot:
        assert "waiting for the supervisor" in shown(app)
        app.post_message(NewSnapshot(lively(collectors=[COLLECTING] * 64)))
        await pilot.pause()
        assert "collectors ×64" in shown(app)
        for key, words in (("2", "ACTIVITY"), ("3", "no metrics yet"), ("4", "all actors"), ("1", "bound by:")):
            await pilot.press(key)
            assert words in shown(app)
            assert shown(app).splitlines()[-1].startswith(" 1 overview  2 actors")


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
    size = (120, 40)
    hostile_files(directory)
    seen = hostile_snapshot()
    app = Monitor(directory, None)
    app.state.series.read()
    inspections = Inspection("learner-0", HOSTILE, (HOSTILE,)), Inspection("learner-0", error=HOSTILE)
    keys = ("1", "2", "enter", "escape", "down", "enter", "escape", "3", "4", "c", "escape", "colon", "escape")
    async with app.run_test(size=size):
        app.on_new_snapshot(NewSnapshot(None, HOSTILE))
        assert all(map(str.isprintable, shown(app).split("\n")))
        for show in (
            lambda: app.on_new_snapshot(NewSnapshot(seen)),
            lambda: app.on_new_snapshot(NewSnapshot(dataclasses.replace(seen, supervisor=HOSTILE))),
            lambda: app.on_noticed(Noticed(HOSTILE)),
            *(lambda inspection=inspection: app.on_inspected(Inspected(inspection)) for inspection in inspections),
        ):
            show()
            for key in keys:
                app.state.press(key, None)
                app.page.draw()
                assert all(map(str.isprintable, shown(app).split("\n")))
                assert {app.page.render_line(y).cell_length for y in range(size[1])} == {size[0]}


async def test_the_screen_is_redrawn_for_another_size(directory: RunDirectory) -> None:
    app = Monitor(directory, None)
    async with app.run_test(size=(120, 40)) as pilot:
        app.post_message(NewSnapshot(lively()))
        await pilot.pause()
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert len(shown(app).splitlines()) == 24
        assert "bound by:" in shown(app)


async def test_only_what_has_changed_is_drawn(directory: RunDirectory) -> None:
    app = Monitor(directory, None)
    async with app.run_test(size=(100, 30)) as pilot:
        app.post_message(NewSnapshot(lively()))
        await pilot.pause()
        asked: list[int] = []
        app.page.refresh = lambda *regions, **more: asked.append(len(regions))  # type: ignore[method-assign,assignment,return-value]
        app.page.draw()
        assert asked == []
        app.state.notice = "something"
        app.page.draw()
        assert asked == [1]


async def test_leaving(directory: RunDirectory) -> None:
    for key in ("q", "ctrl+c"):
        app = Monitor(directory, None)
        async with app.run_test() as pilot:
            await pilot.press(key)
            await until(lambda app=app: not app.is_running)  # type: ignore[misc]


async def test_a_problem_and_ascii(directory: RunDirectory) -> None:
    app = Monitor(directory, None, ascii_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        app.post_message(NewSnapshot(None, "error: the supervisor of cartpole-1 does not answer"))
        await pilot.pause()
        assert "does not answer" in shown(app)
        app.post_message(NewSnapshot(lively()))
        await pilot.pause()
        assert shown(app).isascii()
        assert "collectors x2" in shown(app)


async def test_a_live_run_is_followed_and_its_actors_inspected_and_restarted(
    directory: RunDirectory, supervisor: FakeSupervisor
) -> None:
    app = Monitor(directory, Poller(directory))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "env steps/s" in shown(app))
        supervisor.status = trainer(30.0, pid=os.getpid())
        await until(lambda: "150k / 500k" in shown(app))
        await pilot.press("2", "down", "down", "enter")
        await until(lambda: "in run of collector-0" in shown(app))
        await pilot.press("R", "y")
        await until(lambda: "collector-0 was killed" in shown(app))
        assert supervisor.killed == [("collector-0", True)]
        await pilot.press("K", "y")
        await until(lambda: len(supervisor.killed) == 2)
        assert supervisor.killed[1] == ("collector-0", False)
        await pilot.press("q")
    assert supervisor.asked == []  # leaving stops nothing


async def test_a_live_run_is_paused_saved_and_resumed(directory: RunDirectory, supervisor: FakeSupervisor) -> None:
    app = Monitor(directory, Poller(directory))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "env steps/s" in shown(app))
        await pilot.press("p", "y")
        await until(lambda: "the run is pausing" in shown(app))
        supervisor.status = supervisor.status | {"state": "paused"}
        await until(lambda: "paused" in shown(app))
        await pilot.press("s", "y")
        await until(lambda: "a checkpoint is being written" in shown(app))
        await pilot.press("p", "y")
        await until(lambda: "the run resumes" in shown(app))
    assert supervisor.steered == ["pause", "save", "resume"]


async def test_a_refusal_is_shown(directory: RunDirectory, supervisor: FakeSupervisor) -> None:
    supervisor.refusal = "collector-0 is not running"
    app = Monitor(directory, Poller(directory))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "env steps/s" in shown(app))
        await pilot.press("2", "down", "down", "R", "y")
        await until(lambda: supervisor.refusal in shown(app))
        assert supervisor.killed == []


async def test_a_supervisor_that_is_gone_is_reported(directory: RunDirectory) -> None:
    app = Monitor(directory, Poller(directory))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "supervisor gone since" in shown(app))
        app.post_message(NewSnapshot(lively()))
        await pilot.press("2", "down", "down", "enter")
        await until(lambda: "run.json" in shown(app) or "the run is not running" in shown(app))


def test_every_style_is_defined() -> None:
    names = {"PLAIN", "BOLD", "DIM", "TITLE", "KEY", "GOOD", "WARN", "BAD", "SECOND", "SELECTED"}
    assert names <= {*drawing_names}
    assert len(STYLES) == len(names)
