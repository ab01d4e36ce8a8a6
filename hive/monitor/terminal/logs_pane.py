"""The fourth screen: the logs of all actors, merged by time; filtered by level and actor, searched, followed."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, RichLog

from hive.monitor.drawing import DIM, Spans, counted
from hive.monitor.log_view import KEPT, LEVELS, LogEntry, entry_line
from hive.monitor.terminal.view import ViewState
from hive.monitor.terminal.widgets import TextBlock, rich_text, styles_of

NARROW = 100  # width in cells below which names are not aligned and times have no milliseconds
LEVEL = Binding.Group("level", compact=True)


class LogsPane(Vertical):
    """The logs; see the module."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", key_display="/"),
        Binding("a", "next_actor", "actor"),
        Binding("e", "level(3)", "errors", group=LEVEL),
        Binding("w", "level(2)", "warnings", group=LEVEL),
        Binding("i", "level(1)", "info", group=LEVEL),
        Binding("d", "level(0)", "all levels", group=LEVEL),
        Binding("z", "wrap", "wrap"),
        Binding("f", "follow", "end"),
        Binding("escape", "reset", "show all", show=False),
    ]
    DEFAULT_CSS = """
    LogsPane RichLog { height: 1fr; background: transparent; scrollbar-size: 1 1; }
    LogsPane Input { display: none; dock: bottom; height: 1; border: none; padding: 0 1; &:focus { border: none; } }
    LogsPane Input.shown { display: block; }
    """

    def __init__(self, view: ViewState, **names: Any) -> None:
        super().__init__(**names)
        self.view = view
        self.level = 0
        self.only = ""
        self.search = ""
        self.count = 0  # lines shown
        self.name_width = 0  # cells of the longest name of an actor

    def compose(self) -> ComposeResult:
        yield TextBlock(self._facts, id="facts")
        yield RichLog(id="lines", max_lines=KEPT, wrap=True, min_width=0)
        yield Input(placeholder="search", id="search", compact=True)

    @property
    def lines(self) -> RichLog:
        return self.query_one("#lines", RichLog)

    def _facts(self, width: int, height: int) -> list[Spans]:
        facts = [counted(self.count, "line"), LEVELS[self.level], self.only or "all actors"]
        facts += [f"/{self.search}"] if self.search else []
        facts += [] if self.lines.wrap else ["long lines are cut"]
        return [[(f" {' · '.join(facts)}", DIM)]]

    def refresh_snapshot(self) -> None:
        """Add the lines that were written since the last call."""
        if not self.display:
            return
        entries = self.view.log.read()
        if self._widest() > self.name_width:
            self.rewrite()
        else:
            self._write([entry for entry in entries if self._matches(entry)])

    def _widest(self) -> int:
        return max(map(len, self.view.log.actors), default=0)

    def _matches(self, entry: LogEntry) -> bool:
        return entry.matches(self.level, self.only, self.search)

    def _write(self, entries: list[LogEntry]) -> None:
        if entries:
            styles = styles_of(self.app)
            at_end = self.lines.is_vertical_scroll_end
            for entry in entries:
                line = entry_line(entry, self.search, 0 if self.size.width < NARROW else self.name_width)
                text = rich_text(line, styles, wrapped=self.lines.wrap)
                self.lines.write(text, scroll_end=at_end, shrink=self.lines.wrap)
        self.count = min(self.count + len(entries), KEPT)
        self.query_one("#facts", TextBlock).redraw()

    def rewrite(self) -> None:
        """Write all lines again, after the filter or the theme has changed."""
        self.view.log.read()
        self.name_width = self._widest()
        self.lines.clear()
        self.count = 0
        self._write([entry for entry in self.view.log.entries if self._matches(entry)])
        self.lines.scroll_end(animate=False)

    def repaint(self) -> None:
        """Draw everything again, in the colors of another theme."""
        self.rewrite()

    def on_show(self) -> None:
        self.rewrite()

    def on_resize(self) -> None:
        if self.lines.wrap:
            self.rewrite()

    def action_wrap(self) -> None:
        self.lines.wrap = not self.lines.wrap
        self.rewrite()

    def action_level(self, level: int) -> None:
        self.level = level
        self.rewrite()

    def action_next_actor(self) -> None:
        names = ["", *self.view.log.actors]
        self.only = names[(names.index(self.only) + 1) % len(names)] if self.only in names else ""
        self.rewrite()

    def action_follow(self) -> None:
        self.lines.scroll_end(animate=False)

    def action_search(self) -> None:
        field = self.query_one("#search", Input)
        field.add_class("shown")
        field.focus()

    def action_reset(self) -> None:
        """End the search, and remove the filters."""
        field = self.query_one("#search", Input)
        field.remove_class("shown")
        field.value = self.search = self.only = ""
        self.lines.focus()
        self.rewrite()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value != self.search:
            self.search = event.value
            self.rewrite()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        event.input.remove_class("shown")
        self.lines.focus()
