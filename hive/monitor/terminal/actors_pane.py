"""The second screen: every process of the run as a row of a table that is sorted by a click on a title or by keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import DataTable

from hive.monitor.tables import ACTORS, Column, sorted_rows
from hive.monitor.terminal.view import Request, View
from hive.monitor.terminal.widgets import Grid

__all__ = ["ActorsPane", "OpenActor"]


class OpenActor(Message):
    """The user opens the detail of an actor."""

    def __init__(self, actor: str) -> None:
        super().__init__()
        self.actor = actor


class ActorsPane(Vertical):
    """The table of actors; see the module."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("R", "request('restart')", "restart"),
        Binding("K", "request('kill')", "kill"),
        Binding("comma", "sort(-1)", "sort by previous column", key_display=",", show=False),
        Binding("full_stop", "sort(1)", "sort", key_display="."),
        Binding("r", "reverse", "reverse"),
        Binding("j", "down", show=False),
        Binding("k", "up", show=False),
    ]
    DEFAULT_CSS = "ActorsPane Grid { height: 1fr; }"

    def __init__(self, view: View, **names: Any) -> None:
        super().__init__(**names)
        self.view = view
        self.column = -1  # index of the column that the table is sorted by; -1: the topology's order
        self.reversed = False

    def compose(self) -> ComposeResult:
        yield Grid(ACTORS, choosable=True, id="actors")

    @property
    def table(self) -> Grid:
        return self.query_one("#actors", Grid)

    def refresh_snapshot(self) -> None:
        """Show the view's snapshot."""
        if self.view.snapshot is not None:
            mark = "↑" if self.reversed else "↓"
            columns: list[Column[Any]] = [*ACTORS]
            if self.column >= 0:
                columns[self.column] = replace(columns[self.column], title=mark + columns[self.column].title)
            self.table.show(sorted_rows(self.view.snapshot, self.column, self.reversed), columns)

    def repaint(self) -> None:
        """Draw everything again, in the colours of another theme."""
        self.table.redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "request":
            return self.view.may(str(parameters[0])) and self.view.is_actor(self.table.chosen)
        return True

    def on_data_table_row_highlighted(self) -> None:
        self.refresh_bindings()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        self.post_message(OpenActor(self.table.chosen))

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the column that was clicked; a second click reverses the order."""
        column = int(event.column_key.value or 0)
        self.column, self.reversed = column, self.column == column and not self.reversed
        self.refresh_snapshot()

    def action_request(self, kind: str) -> None:
        self.post_message(Request(kind, self.table.chosen))

    def action_sort(self, by: int) -> None:
        self.column = (self.column + 1 + by) % (len(ACTORS) + 1) - 1
        self.refresh_snapshot()

    def action_reverse(self) -> None:
        self.reversed = not self.reversed
        self.refresh_snapshot()

    def action_down(self) -> None:
        self.table.action_cursor_down()

    def action_up(self) -> None:
        self.table.action_cursor_up()
