"""The second screen: every process of the run as a row of a table that is sorted by a click on a title or by keys.

Below the table, if there is room, are the time, the counters and the last log lines of the process with the cursor.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import DataTable

from hive.monitor.actor_detail import actor_summary
from hive.monitor.drawing import Spans, fitted
from hive.monitor.tables import ACTORS, sorted_rows
from hive.monitor.terminal.view import Request, ViewState
from hive.monitor.terminal.widgets import Grid, TextBlock
from hive.table import Column

LEAST_SUMMARY = 8  # lines below which the summary of an actor is left out: its facts, time and some of its log
SORT = Binding.Group("sort", compact=True)


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
        Binding("comma", "sort(-1)", "sort by the previous column", key_display=",", show=False),
        Binding("full_stop", "sort(1)", "sort by the next column", key_display=".", group=SORT),
        Binding("r", "reverse", "reverse the order", group=SORT),
        Binding("c", "app.crash", "crash"),
        Binding("j", "down", show=False),
        Binding("k", "up", show=False),
    ]
    DEFAULT_CSS = """
    ActorsPane Grid { height: 1fr; }
    ActorsPane #summary { height: 1fr; border-top: solid $panel; }
    """

    def __init__(self, view: ViewState, **names: Any) -> None:
        super().__init__(**names)
        self.view = view
        self.column = -1  # index of the column that the table is sorted by; -1: the topology's order
        self.reversed = False
        self.placed = False  # whether the cursor has had its first place

    def compose(self) -> ComposeResult:
        yield Grid(ACTORS, choosable=True, id="actors")
        yield TextBlock(self._summary, id="summary")

    @property
    def table(self) -> Grid:
        return self.query_one("#actors", Grid)

    def refresh_snapshot(self) -> None:
        """Show the view's snapshot."""
        if self.view.snapshot is not None:
            mark = "↓" if self.reversed else "↑"
            columns: list[Column[Any]] = [*ACTORS]
            if self.column >= 0:
                columns[self.column] = replace(columns[self.column], title=mark + columns[self.column].title)
            rows = sorted_rows(self.view.snapshot, self.column, self.reversed)
            self._arrange(len(rows))
            self.table.show(rows, columns)
            if self.table.row_count and not self.placed:  # at the first actor: the helpers above cannot be restarted
                self.placed = True
                self.table.move_cursor(row=len(self.view.snapshot.helpers))
            self._show_summary()

    def _arrange(self, rows: int) -> None:
        """Give the table the lines of its rows, and the rest to the summary if that is enough."""
        summary, enough = self.query_one("#summary"), self.size.height - rows - 1 >= LEAST_SUMMARY
        if summary.display != enough:
            summary.display = enough
        self.table.styles.height = rows + 1 if enough else "1fr"

    def _show_summary(self) -> None:
        summary = self.query_one("#summary", TextBlock)
        if summary.display:
            self.view.log.read()
            summary.redraw()

    def _summary(self, width: int, height: int) -> list[Spans]:
        row = self.view.row(self.table.chosen)
        if row is None:
            return []
        lines = actor_summary(row, self.view.log.of(row.name, height), width, height)
        return [fitted(line, width) for line in lines]

    def on_resize(self) -> None:
        self.refresh_snapshot()

    def repaint(self) -> None:
        """Draw everything again, in the colors of another theme."""
        self.table.redraw()
        self.query_one("#summary", TextBlock).refresh()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "request":
            return self.view.may(str(parameters[0])) and self.view.is_actor(self.table.chosen)
        return True

    def on_data_table_row_highlighted(self) -> None:
        self.refresh_bindings()
        self._show_summary()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        self.post_message(OpenActor(self.table.chosen))

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the column that was clicked, numbers from the greatest; a second click reverses the order."""
        column = int(event.column_key.value or 0)
        self._sort(column, not self.reversed if column == self.column else not ACTORS[column].left)

    def _sort(self, column: int, reverse: bool) -> None:
        self.column, self.reversed = column, reverse
        self.refresh_snapshot()

    def action_request(self, kind: str) -> None:
        self.post_message(Request(kind, self.table.chosen))

    def action_sort(self, by: int) -> None:
        column = (self.column + 1 + by) % (len(ACTORS) + 1) - 1
        self._sort(column, column >= 0 and not ACTORS[column].left)

    def action_reverse(self) -> None:
        self.reversed = not self.reversed
        self.refresh_snapshot()

    def action_down(self) -> None:
        self.table.action_cursor_down()

    def action_up(self) -> None:
        self.table.action_cursor_up()
