"""Widgets that the screens are made of: a block of styled text, and a table that updates only changed cells.

Both take the styled text of hive.monitor.drawing, whose style names become colors of the current theme here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import App
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import DataTable

from hive.monitor.drawing import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    MARKED,
    PLAIN,
    SECOND,
    TITLE,
    WARN,
    Spans,
    ascii_of,
    printable_line,
)
from hive.table import Column, Table, lay_out

R = TypeVar("R")
Content = Callable[[int, int], list[Spans]]
# Style name -> (variable of the theme, bold).
COLORS = {
    TITLE: ("text-accent", True),
    GOOD: ("text-success", False),
    WARN: ("text-warning", False),
    BAD: ("text-error", True),
    SECOND: ("text-primary", False),
}


def styles_of(app: App[Any]) -> dict[str, Style]:
    """Return the styles in the colors of the current theme."""
    variables = app.theme_variables
    styles = {PLAIN: Style(), BOLD: Style(bold=True), DIM: Style(dim=True), MARKED: Style(reverse=True)}
    for name, (variable, bold) in COLORS.items():
        styles[name] = Style(color=Color.parse(variables[variable]).rich_color, bold=bold)
    return styles


def rich_text(line: Spans, styles: Mapping[str, Style], *, wrapped: bool = False) -> Text:
    """Return a line as text of rich. wrapped: whether it may take several lines."""
    text = Text(no_wrap=not wrapped)
    for part, style in line:
        text.append(part, styles[style])
    return text


class Ascii(LineFilter):
    """Replaces every character of the terminal that is not ASCII, for `--ascii`."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(ascii_of(text), style, control) for text, style, control in segments]


class TextBlock(Widget):
    """Lines of styled text that `content` draws for a width and a height in cells; unchanged lines are not redrawn.

    Where the style sheet says `height: auto`, it is as high as the lines that `content` returns.
    """

    DEFAULT_CSS = "TextBlock { height: auto; }"

    def __init__(self, content: Content, **names: Any) -> None:
        super().__init__(**names)
        self.content = content
        self.lines: list[Spans] = []
        self.stale = True  # whether `lines` must be drawn before they are shown

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(len(self.content(width, 0)), 1)

    def redraw(self, *, all_lines: bool = False) -> None:
        """Draw the lines again, and refresh those that have changed. A block out of sight is drawn when it is seen."""
        self.stale = True
        if not self.is_on_screen or not self.size.width:
            return
        before = [] if all_lines else self.lines
        self._draw()
        if len(before) != len(self.lines) and self.styles.is_auto_height:
            self.refresh(layout=True)
        elif changed := [
            Region(0, y, self.size.width, 1)
            for y in range(max(len(before), len(self.lines)))
            if before[y : y + 1] != self.lines[y : y + 1]
        ]:
            self.refresh(*changed)

    def _draw(self) -> None:
        self.lines = [printable_line(line) for line in self.content(*self.size)]
        self.stale = False

    def on_resize(self) -> None:
        self.redraw(all_lines=True)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        if self.stale:
            self._draw()
        styles = styles_of(self.app)
        line = self.lines[y] if y < len(self.lines) else []
        segments = [Segment(text, styles[style]) for text, style in line]
        return Strip(segments).apply_style(self.rich_style).adjust_cell_length(self.size.width, self.rich_style)


class Grid(DataTable[Text]):
    """A table whose layout follows from its width. `show` updates only the cells that have changed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "detail")]
    DEFAULT_CSS = "Grid { height: auto; scrollbar-size: 1 1; background: transparent; }"

    def __init__(self, columns: Sequence[Column[R]], *, choosable: bool = False, **names: Any) -> None:
        super().__init__(
            cursor_type="row" if choosable else "none", zebra_stripes=False, show_cursor=choosable, **names
        )
        self.can_focus = choosable
        self.layout_of: Sequence[Column[Any]] = columns
        self.items: Mapping[str, Any] = {}
        self.shown: Table | None = None

    def show(self, items: Mapping[str, R], columns: Sequence[Column[R]] | None = None) -> None:
        """Show these rows, by their keys."""
        self.items, self.layout_of = items, columns or self.layout_of
        width = self.scrollable_content_region.width
        if not width:
            return
        table, before = lay_out(self.layout_of, items, width), self.shown
        self.shown = table
        same = before is not None and (before.columns, before.titles, before.widths) == (
            table.columns,
            table.titles,
            table.widths,
        )
        if before is None or not same or [*before.rows] != [*table.rows]:
            self._rebuild(table)
            return
        styles = styles_of(self.app)
        for key, row in table.rows.items():
            for column, old, cell in zip(table.columns, before.rows[key], row, strict=True):
                if old != cell:
                    self.update_cell(key, str(column), Text(cell.text, styles[cell.style], no_wrap=True))

    def _rebuild(self, table: Table) -> None:
        """Fill the table again; the cursor stays on its row."""
        styles, chosen, top = styles_of(self.app), self.chosen, self.scroll_y
        self.clear(columns=True)
        for column, title, width in zip(table.columns, table.titles, table.widths, strict=True):
            self.add_column(Text(title), width=width, key=str(column))
        for key, row in table.rows.items():
            self.add_row(*(Text(cell.text, styles[cell.style], no_wrap=True) for cell in row), key=key)
        self.scroll_to(y=top, animate=False)
        if chosen in table.rows:
            self.move_cursor(row=[*table.rows].index(chosen), scroll=False)

    @property
    def chosen(self) -> str:
        """The key of the row with the cursor; "" if there is none."""
        keys = [key.value or "" for key in self.rows]
        return keys[self.cursor_row] if 0 <= self.cursor_row < len(keys) else ""

    def redraw(self) -> None:
        """Fill the table again, for another size or theme."""
        self.shown = None
        self.show(self.items)

    def on_resize(self) -> None:
        if self.items:
            self.show(self.items)
