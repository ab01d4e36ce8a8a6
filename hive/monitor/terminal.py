"""The terminal UI: shows what the desk draws, and tells it the keys. The only module that imports textual.

    a thread looks at the run (hive.monitor.poller) ──NewSnapshot──> desk.show ──> lines ──> the rows that have changed
    a key ──> desk.press ──> an Effect: leave; inspect or kill an actor, in a thread, over a line of its own

Only rows that differ from what is there are drawn again, so an hour of looking costs what a second of training does.
"""

from __future__ import annotations

import threading
from contextlib import closing

from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.events import Key, Resize
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from hive.errors import HiveError
from hive.monitor.actors_screen import Inspected
from hive.monitor.drawing import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    KEY,
    PLAIN,
    SECOND,
    SELECTED,
    TITLE,
    WARN,
    Line,
    ascii_of,
)
from hive.monitor.keys import Effect
from hive.monitor.poller import Look
from hive.monitor.snapshot import Snapshot
from hive.monitor.view_model import MonitorState
from hive.records import RunDirectory, find_runs
from hive.runtime.control import open_run

__all__ = ["Monitor", "watch"]

AGAIN_S = 1.0  # between two looks at a run that does not tell
STYLES = {
    PLAIN: Style(),
    BOLD: Style(bold=True),
    DIM: Style(color="#7d8590"),
    TITLE: Style(color="#d29922", bold=True),
    KEY: Style(color="#d29922"),
    GOOD: Style(color="#3fb950"),
    WARN: Style(color="#e3b341"),
    BAD: Style(color="#f85149", bold=True),
    SECOND: Style(color="#58a6ff"),
    SELECTED: Style(reverse=True),
}


SAID = {
    "pause": "the run comes to rest",
    "resume": "the run goes on",
    "save": "a checkpoint is being written; the logs say when it is done",
}


class NewSnapshot(Message):
    """There is a new snapshot, or the reason why there is none."""

    def __init__(self, snapshot: Snapshot | None, problem: str = "") -> None:
        super().__init__()
        self.snapshot = snapshot
        self.problem = problem


class Answered(Message):
    """What an actor was asked has an answer."""

    def __init__(self, inspected: Inspected) -> None:
        super().__init__()
        self.inspected = inspected


class Noticed(Message):
    """Something to say about what was asked for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Page(Widget):
    """The whole screen, line by line."""

    DEFAULT_CSS = "Page { width: 1fr; height: 1fr; }"

    def __init__(self, desk: MonitorState, ascii_only: bool) -> None:
        super().__init__()
        self.desk = desk
        self.ascii_only = ascii_only
        self.drawn: list[Line] = []

    def draw(self) -> None:
        """Draws what has changed."""
        width, height = self.size
        before, self.drawn = self.drawn, self.desk.lines(width, height)
        lines = enumerate(self.drawn)
        changed = [Region(0, y, width, 1) for y, line in lines if y >= len(before) or line != before[y]]
        if changed:
            self.refresh(*changed)

    def on_resize(self, event: Resize) -> None:
        self.drawn = []
        self.draw()

    def render_line(self, y: int) -> Strip:
        line = self.drawn[y] if y < len(self.drawn) else []
        segments = [Segment(ascii_of(text) if self.ascii_only else text, STYLES[style]) for text, style in line]
        return Strip(segments).apply_style(self.rich_style).adjust_cell_length(self.size.width, self.rich_style)


class Monitor(App[None]):
    """The application. `look` is what it looks through; None: it is told from outside (tests)."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [Binding("ctrl+c", "quit", priority=True, show=False)]  # noqa: RUF012

    def __init__(
        self, directory: RunDirectory, look: Look | None, *, ascii_only: bool = False, readonly: bool = False
    ) -> None:
        super().__init__()
        self.animation_level = "none"
        self.directory = directory
        self.look = look
        self.lock = threading.Lock()
        series = look.series if look else Look(directory).series
        self.desk = MonitorState(directory, series, lambda: find_runs(directory.path.parent)[::-1], readonly, self.lock)
        self.page = Page(self.desk, ascii_only)
        self.leaving = threading.Event()

    def compose(self) -> ComposeResult:
        yield self.page

    def on_mount(self) -> None:
        if self.look is not None:
            threading.Thread(target=self._look, args=(self.look,), daemon=True).start()

    def on_unmount(self) -> None:
        self.leaving.set()

    def _look(self, look: Look) -> None:
        """In its own thread: snapshot after snapshot."""
        while not self.leaving.is_set():
            try:
                look.wait()
                with self.lock:
                    snapshot = look.take()
                self.post_message(NewSnapshot(snapshot))
                quiet = bool(snapshot.supervisor) or look.client is None
            except HiveError as error:
                self.post_message(NewSnapshot(None, error.render()))
                quiet = True
            if quiet:
                self.leaving.wait(AGAIN_S)
        look.close()

    def on_new_snapshot(self, told: NewSnapshot) -> None:
        if told.snapshot is not None:
            self.desk.show(told.snapshot)
        else:
            self.desk.problem = told.problem
        self.page.draw()

    def on_answered(self, answered: Answered) -> None:
        self.desk.answer(answered.inspected)
        self.page.draw()

    def on_noticed(self, noticed: Noticed) -> None:
        self.desk.notice = noticed.text
        self.page.draw()

    def on_key(self, event: Key) -> None:
        effect = self.desk.press(event.key, event.character)
        if effect is not None and effect.kind == "leave":
            self.exit()
        elif effect is not None:
            threading.Thread(target=self._carry_out, args=(effect,), daemon=True).start()
        self.page.draw()

    def _carry_out(self, effect: Effect) -> None:
        """In a thread of its own: asks the supervisor."""
        try:
            with closing(open_run(self.directory)) as client:
                if effect.kind == "inspect":
                    stack, story = client.inspect(effect.actor)
                    self.post_message(Answered(Inspected(effect.actor, stack, story)))
                elif effect.kind in SAID:
                    {"pause": client.pause, "resume": client.resume, "save": client.save}[effect.kind]()
                    self.post_message(Noticed(SAID[effect.kind]))
                else:
                    client.kill(effect.actor, by_hand=effect.kind == "restart")
                    self.post_message(Noticed(f"{effect.actor} was killed; it comes back"))
        except HiveError as error:
            if effect.kind == "inspect":
                self.post_message(Answered(Inspected(effect.actor, error=str(error))))
            else:
                self.post_message(Noticed(str(error)))


def watch(directory: RunDirectory, *, ascii_only: bool = False, readonly: bool = False) -> None:
    """Shows the run until the person leaves."""
    Monitor(directory, Look(directory), ascii_only=ascii_only, readonly=readonly).run()
