"""The application: tabs for the four screens, a header above them and the keys of the current one below.

    a thread polls the run (hive.monitor.poller) ──NewSnapshot──> ViewState ──> the screen: changed cells, lines
    a key, a click, a command ──> Request ──> confirmation ──> the supervisor, in a thread with its own connection

Only the visible screen is updated, and only where its text has changed, so an open view takes little time from the run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.filter import LineFilter
from textual.message import Message
from textual.widgets import ContentSwitcher, Footer, Tab, Tabs

from hive.errors import HiveError
from hive.monitor.drawing import DIM, Spans
from hive.monitor.overview import header
from hive.monitor.poller import Poller
from hive.monitor.snapshot import Snapshot
from hive.monitor.terminal.actors_pane import ActorsPane, OpenActor
from hive.monitor.terminal.dialogs import ActorDetail, Confirm, LineInput, TextPage
from hive.monitor.terminal.learning_pane import LearningPane
from hive.monitor.terminal.logs_pane import LogsPane
from hive.monitor.terminal.overview_pane import OverviewPane
from hive.monitor.terminal.palette import Command, Commands
from hive.monitor.terminal.supervisor_requests import Inspected, Noticed, SupervisorRequests
from hive.monitor.terminal.view import Request, ViewState, question_of
from hive.monitor.terminal.widgets import Ascii, TextBlock
from hive.printable import printable, printable_lines
from hive.records import RunDirectory, find_runs
from hive.records.regular import open_regular

AGAIN_S = 1.0  # seconds between two polls of a run whose supervisor sends nothing
CRASH_BYTES = 1 << 18  # bytes of a crash report that are shown
SCREENS = ("overview", "actors", "learning", "logs")
FOCUS = {"overview": "#overview", "actors": "#actors", "learning": "#curves", "logs": "#lines"}


class NewSnapshot(Message):
    """There is a new snapshot, or the reason why there is none."""

    def __init__(self, snapshot: Snapshot | None, problem: str = "") -> None:
        super().__init__()
        self.snapshot = snapshot
        self.problem = problem


class Monitor(App[None]):
    """The application. It polls `poller` in a thread; with None, messages must be posted from outside (tests)."""

    COMMANDS: ClassVar[set[Any]] = {Commands}
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"go('{name}')", name, show=False) for n, name in enumerate(SCREENS, 1)),
        Binding("c", "crash", show=False),
        Binding("colon,question_mark", "command_palette", "commands", key_display=":"),
        Binding("q", "quit", "leave"),
        Binding("ctrl+c", "quit", priority=True, show=False),
    ]
    COMMAND_PALETTE_DISPLAY = ":"
    CSS = """
    #header { height: auto; }
    Tabs { height: 1; Underline { display: none; } Tab.-active { background: $accent; color: $background; } }
    #tabs-list-bar { height: 1; }
    ContentSwitcher { height: 1fr; }
    #waiting { height: 1fr; }
    .outdated Grid, .outdated TextBlock { text-opacity: 50%; }
    * { scrollbar-background: $background; scrollbar-corner-color: $background; }
    Footer.-compact KeyGroup.-compact { margin: 0 1 0 0; padding-left: 0; }
    Footer.-compact FooterLabel { margin: 0 1 0 0; }
    SearchIcon { display: none; }
    Toast { width: 72; max-width: 90%; padding: 0 1; }
    """

    def __init__(
        self, directory: RunDirectory, poller: Poller | None, *, ascii_only: bool = False, readonly: bool = False
    ) -> None:
        super().__init__()
        self.title = printable(directory.name)
        self.animation_level = "none"
        self.directory = directory
        self.poller = poller
        self.ascii_only = ascii_only
        self.lock = threading.Lock()
        series = (poller or Poller(directory)).series
        self.view = ViewState(directory, series, lambda: find_runs(directory.path.parent)[::-1], readonly, self.lock)
        self.panes = (
            OverviewPane(self.view, id="overview"),
            ActorsPane(self.view, id="actors-pane"),
            LearningPane(self.view, id="learning"),
            LogsPane(self.view, id="logs"),
        )
        self.supervisor = SupervisorRequests(directory, self.post_message)
        self.leaving = threading.Event()
        self.state = ""

    def compose(self) -> ComposeResult:
        yield TextBlock(self._header, id="header")
        tabs = Tabs(*(Tab(f"{n} {name}", id=f"tab-{name}") for n, name in enumerate(SCREENS, 1)))
        tabs.can_focus = False
        yield tabs
        with ContentSwitcher(initial="waiting"), Vertical(id="waiting"):
            yield TextBlock(self._waiting)
        yield Footer(show_command_palette=False, compact=True)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *([Ascii()] if self.ascii_only else [])]

    def _header(self, width: int, height: int) -> list[Spans]:
        seen = self.view.snapshot
        return header(seen, width, readonly=self.view.readonly) if seen else [[(f" {self.directory.name}", DIM)]]

    def _waiting(self, width: int, height: int) -> list[Spans]:
        texts = (self.view.problem or "waiting for the supervisor").splitlines()
        return [[], *([(f"   {text}", DIM)] for text in texts)]

    async def on_mount(self) -> None:
        switcher = self.query_one(ContentSwitcher)
        for pane in self.panes:
            await switcher.mount(pane)
            pane.display = False
        self.theme_changed_signal.subscribe(self, lambda theme: self._repaint())
        if self.poller is not None:
            threading.Thread(target=self._poll, args=(self.poller,), daemon=True).start()

    def on_unmount(self) -> None:
        self.leaving.set()

    # --- screens

    @property
    def pane(self) -> Any:
        """The pane of the current screen, or None before the first snapshot."""
        shown = self.screen_stack[0].query_one(ContentSwitcher).visible_content
        return shown if hasattr(shown, "refresh_snapshot") else None

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        if self.view.snapshot is not None and event.tab.id:
            self._switch(event.tab.id.removeprefix("tab-"))

    def action_go(self, name: str) -> None:
        while len(self.screen_stack) > 1:
            self.pop_screen()
        self.screen_stack[0].query_one(Tabs).active = f"tab-{name}"

    def _switch(self, name: str) -> None:
        base = self.screen_stack[0]
        base.query_one(ContentSwitcher).current = "actors-pane" if name == "actors" else name
        self.pane.refresh_snapshot()
        base.query_one(FOCUS[name]).focus()

    def _refresh(self) -> None:
        """Show the view's snapshot in the header, the current screen and an open dialog."""
        if not self.screen_stack or not self.screen_stack[0].query("#header"):
            return  # a snapshot that arrived before the widgets were made, or while the application ends
        base = self.screen_stack[0]
        base.query_one("#header", TextBlock).redraw()
        if self.view.snapshot is None:
            base.query_one("#waiting TextBlock", TextBlock).redraw()
            return
        if self.pane is None:
            self._switch((base.query_one(Tabs).active or "tab-overview").removeprefix("tab-"))
        base.set_class(bool(self.view.snapshot.supervisor), "outdated")
        self.pane.refresh_snapshot()
        for screen in self.screen_stack[1:]:
            if isinstance(screen, ActorDetail):
                self.view.log.read()
                screen.refresh_snapshot()
        state = f"{self.view.snapshot.state} {self.view.snapshot.supervisor}"
        if state != self.state:
            self.state = state
            self.refresh_bindings()

    def _repaint(self) -> None:
        """Draw all screens in the colors of another theme: a hidden table would keep the cells that do not change."""
        for pane in self.panes:
            pane.repaint()

    # --- messages

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
            except OSError as error:  # its directory was removed while the view was open
                text = f"error: the files of {self.directory.name} cannot be read: {error.strerror}"
                self.post_message(NewSnapshot(None, text))
                quiet = True
            if quiet:
                self.leaving.wait(AGAIN_S)
        poller.close()

    def on_new_snapshot(self, message: NewSnapshot) -> None:
        if message.snapshot is not None:
            self.view.show(message.snapshot)
        else:
            self.view.problem = message.problem
        self._refresh()

    def on_inspected(self, message: Inspected) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, ActorDetail):
                screen.inspected(message.inspection)

    def on_noticed(self, message: Noticed) -> None:
        self.notify(printable_lines(message.text), severity="error" if message.failed else "information", markup=False)

    def on_open_actor(self, message: OpenActor) -> None:
        self.push_screen(ActorDetail(self.view, message.actor, self.supervisor.inspect))

    def on_request(self, request: Request) -> None:
        def confirmed(yes: bool | None) -> None:
            if yes:
                self.supervisor.carry_out(request)

        self.clear_notifications()  # they would cover the dialog in a small terminal
        self.push_screen(Confirm(question_of(request, self.view.row(request.actor))), confirmed)

    # --- commands

    def commands(self) -> Iterable[Command]:
        """Return the commands of the palette that are possible now."""
        for kind, text in (
            ("pause", "pause the run; its state stays in memory"),
            ("resume", "continue the paused run"),
            ("save", "write a checkpoint now"),
            ("down", "end the run after saving its state"),
        ):
            if self.view.may(kind):
                yield Command(kind, text, partial(self._request, kind))
        for kind, text, example in (
            ("set", "change keys of the algorithm", "algorithm.learning_rate=1e-4"),
            ("scale", "change the number of workers", "collection.workers=4"),
        ):
            if self.view.may(kind):
                ask = partial(self._ask, kind, example)
                yield Command(kind, f"{text}: {example}", ask)
        if self._crashes():
            yield Command("crash report", "read the newest crash report", self.action_crash)
        for name in SCREENS:
            yield Command(f"screen {name}", "show this screen", partial(self.action_go, name))
        yield Command("theme", "choose the colors", self.action_change_theme)
        yield Command("keys", "show the keys of this screen", self.action_show_help_panel)
        yield Command("leave", "close this view; the run continues", self.action_quit)
        yield from self._actor_commands()

    def _actor_commands(self) -> Iterable[Command]:
        for row in self.view.snapshot.actors if self.view.snapshot else ():
            name = printable(row.name)
            if self.view.answers():
                yield Command(
                    f"stack {name}",
                    "its stack, transition history and log",
                    partial(self._open, row.name),
                )
            for kind, text in (("restart", "restart its process"), ("kill", "kill its process, as a failure")):
                if self.view.may(kind):
                    yield Command(
                        f"{kind} {name}",
                        text,
                        partial(self._request, kind, row.name),
                    )

    def _request(self, kind: str, actor: str = "") -> None:
        self.post_message(Request(kind, actor))

    def _open(self, actor: str) -> None:
        self.post_message(OpenActor(actor))

    def _ask(self, kind: str, example: str) -> None:
        def given(text: str | None) -> None:
            if text:
                self.post_message(Request(kind, sets=text.split()))

        self.clear_notifications()
        self.push_screen(LineInput(f"{kind} KEY=VALUE, several separated by blanks", example), given)

    def _crashes(self) -> list[Any]:
        return sorted(self.directory.crashes.glob("*.txt"), key=lambda path: path.stat().st_mtime)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "crash" or bool(self._crashes())

    def action_crash(self) -> None:
        """Show the newest crash report."""
        if not (reports := self._crashes()):
            return
        try:
            with open_regular(reports[-1]) as file:
                text = file.read(CRASH_BYTES).decode(errors="replace")
        except OSError as error:
            text = f"cannot be read: {error.strerror}"
        self.push_screen(TextPage([str(reports[-1]), "", *text.splitlines()]))


def watch(directory: RunDirectory, *, ascii_only: bool = False, readonly: bool = False) -> None:
    """Show the run until the user leaves. Needs a terminal on stdin and stdout."""
    Monitor(directory, Poller(directory), ascii_only=ascii_only, readonly=readonly).run()
