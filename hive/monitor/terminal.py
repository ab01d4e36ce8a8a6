"""The terminal UI: prints what `MonitorState` draws, and passes keys to it. The only module that imports textual.

    a thread polls the run (hive.monitor.poller) ──NewSnapshot──> state.show ──> lines ──> the rows that have changed
    a key ──> state.press ──> an Effect: leave; inspect or kill an actor, in a thread with its own connection

Only rows that have changed are printed again, so an open view takes little time from the run.
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
from hive.monitor.actions import Effect
from hive.monitor.actors_screen import Inspection
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
from hive.monitor.keys import ACTIONS
from hive.monitor.poller import Poller
from hive.monitor.snapshot import Snapshot
from hive.monitor.view_model import MonitorState
from hive.records import RunDirectory, find_runs
from hive.runtime.run.control import open_run

__all__ = ["Monitor", "watch"]

AGAIN_S = 1.0  # seconds between two polls of a run whose supervisor sends nothing
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


NOTICES = {
    "pause": "the run is pausing",
    "resume": "the run resumes",
    "save": "a checkpoint is being written; the event log reports when it is done",
}


class NewSnapshot(Message):
    """There is a new snapshot, or the reason why there is none."""

    def __init__(self, snapshot: Snapshot | None, problem: str = "") -> None:
        super().__init__()
        self.snapshot = snapshot
        self.problem = problem


class Inspected(Message):
    """The supervisor has replied about an actor, or the request has failed."""

    def __init__(self, inspection: Inspection) -> None:
        super().__init__()
        self.inspection = inspection


class Noticed(Message):
    """A notice about a request: what it does, or why it failed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Page(Widget):
    """The widget that fills the terminal, drawn line by line."""

    DEFAULT_CSS = "Page { width: 1fr; height: 1fr; }"

    def __init__(self, state: MonitorState, ascii_only: bool) -> None:
        super().__init__()
        self.state = state
        self.ascii_only = ascii_only
        self.drawn: list[Line] = []

    def draw(self) -> None:
        """Redraw the lines that have changed."""
        width, height = self.size
        before, self.drawn = self.drawn, self.state.lines(width, height)
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
    """The application. It polls `poller` in a thread; with None, messages must be posted from outside (tests)."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [Binding("ctrl+c", "quit", priority=True, show=False)]  # noqa: RUF012

    def __init__(
        self, directory: RunDirectory, poller: Poller | None, *, ascii_only: bool = False, readonly: bool = False
    ) -> None:
        super().__init__()
        self.animation_level = "none"
        self.directory = directory
        self.poller = poller
        self.lock = threading.Lock()
        series = poller.series if poller else Poller(directory).series
        self.state = MonitorState(
            directory, series, ACTIONS, lambda: find_runs(directory.path.parent)[::-1], readonly, self.lock
        )
        self.page = Page(self.state, ascii_only)
        self.leaving = threading.Event()

    def compose(self) -> ComposeResult:
        yield self.page

    def on_mount(self) -> None:
        if self.poller is not None:
            threading.Thread(target=self._poll, args=(self.poller,), daemon=True).start()

    def on_unmount(self) -> None:
        self.leaving.set()

    def _poll(self, poller: Poller) -> None:
        """Post snapshots until the application ends; runs in its own thread."""
        while not self.leaving.is_set():
            try:
                poller.wait()
                with self.lock:
                    snapshot = poller.take()
                self.post_message(NewSnapshot(snapshot))
                quiet = bool(snapshot.supervisor) or poller.client is None
            except HiveError as error:
                self.post_message(NewSnapshot(None, error.render()))
                quiet = True
            if quiet:
                self.leaving.wait(AGAIN_S)
        poller.close()

    def on_new_snapshot(self, message: NewSnapshot) -> None:
        if message.snapshot is not None:
            self.state.show(message.snapshot)
        else:
            self.state.problem = message.problem
        self.page.draw()

    def on_inspected(self, message: Inspected) -> None:
        self.state.inspected = message.inspection
        self.page.draw()

    def on_noticed(self, message: Noticed) -> None:
        self.state.notice = message.text
        self.page.draw()

    def on_key(self, event: Key) -> None:
        effect = self.state.press(event.key, event.character)
        if effect is not None and effect.kind == "leave":
            self.exit()
        elif effect is not None:
            threading.Thread(target=self._carry_out, args=(effect,), daemon=True).start()
        self.page.draw()

    def _carry_out(self, effect: Effect) -> None:
        """Send the request to the supervisor; runs in its own thread."""
        try:
            with closing(open_run(self.directory)) as client:
                if effect.kind == "inspect":
                    stack, transitions = client.inspect(effect.actor)
                    self.post_message(Inspected(Inspection(effect.actor, stack, transitions)))
                elif effect.kind in NOTICES:
                    {"pause": client.pause, "resume": client.resume, "save": client.save}[effect.kind]()
                    self.post_message(Noticed(NOTICES[effect.kind]))
                else:
                    client.kill(effect.actor, by_hand=effect.kind == "restart")
                    self.post_message(Noticed(f"{effect.actor} was killed and is being restarted"))
        except HiveError as error:
            if effect.kind == "inspect":
                self.post_message(Inspected(Inspection(effect.actor, error=str(error))))
            else:
                self.post_message(Noticed(str(error)))


def watch(directory: RunDirectory, *, ascii_only: bool = False, readonly: bool = False) -> None:
    """Show the run until the user leaves. Needs a terminal on stdin and stdout."""
    Monitor(directory, Poller(directory), ascii_only=ascii_only, readonly=readonly).run()
