"""The third screen: the run's metrics as curves, in a grid that scrolls. A click enlarges a curve, as tab and
enter do; escape ends that.
"""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import ItemGrid, Vertical, VerticalScroll

from hive.monitor.drawing import DIM, Spans
from hive.monitor.learning import curve_chart, per_page, ranked
from hive.monitor.series import AXES, Series
from hive.monitor.terminal.view import ViewState
from hive.monitor.terminal.widgets import TextBlock

EVERY_S = 3.0  # seconds between two drawings of the curves: they grow slowly
MOST = 16  # greatest height in lines of one curve
WIDTH = 36  # least width in cells of one curve


class Plot(TextBlock, can_focus=True):
    """One curve."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "enlarge(False)", "enlarge"),
        Binding("escape", "enlarge(True)", "all curves", key_display="esc"),
    ]
    DEFAULT_CSS = "Plot { width: 1fr; height: 1fr; &:hover, &:focus { background: $surface; } }"

    def on_click(self) -> None:
        self.action_enlarge(self.screen.maximized is self)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "enlarge" or parameters == (self.screen.maximized is self,)

    def action_enlarge(self, enlarged: bool) -> None:
        """Show only this curve, or all again if it is enlarged."""
        if enlarged:
            self.screen.minimize()
        else:
            self.screen.maximize(self)
        self.refresh_bindings()

    @property
    def allow_maximize(self) -> bool:
        return True


class LearningPane(Vertical):
    """The curves; see the module."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "page", "page"),
        Binding("x", "axis", "axis"),
        Binding("o", "compare", "compare"),
        Binding("b", "switch('band')", "band"),
        Binding("l", "switch('logarithmic')", "log"),
    ]
    DEFAULT_CSS = """
    LearningPane VerticalScroll { scrollbar-size: 1 1; }
    LearningPane ItemGrid { height: auto; }
    """

    def __init__(self, view: ViewState, **names: Any) -> None:
        super().__init__(**names)
        self.view = view
        self.axis = 0
        self.settings = {"band": False, "logarithmic": False}
        self.other: Series | None = None
        self.other_name = ""
        self.names: list[str] = []
        self.drawn_t = float("-inf")

    def compose(self) -> ComposeResult:
        yield TextBlock(self._facts, id="facts")
        with VerticalScroll(id="curves"):
            yield ItemGrid(min_column_width=WIDTH, id="plots")

    def _facts(self, width: int, height: int) -> list[Spans]:
        if not self.names:
            return [[(" no metrics yet: the recorder writes the first after `record.every_s` seconds", DIM)]]
        facts = [f"over {AXES[self.axis]}", *(name for name, on in self.settings.items() if on)]
        facts += [f"with {self.other_name}"] if self.other_name else []
        return [[(f" {' · '.join(facts)}", DIM)]]

    def _plot(self, name: str) -> Plot:
        def content(width: int, height: int) -> list[Spans]:
            with self.view.lock:
                return curve_chart(
                    self.view.series,
                    name,
                    width - 1,
                    height,
                    axis=AXES[self.axis],
                    band=self.settings["band"],
                    logarithmic=self.settings["logarithmic"],
                    other=self.other,
                )

        return Plot(content)

    def refresh_snapshot(self) -> None:
        """Show the view's series, if the curves were drawn some seconds ago."""
        seen = self.view.snapshot
        if seen is None or not self.display or 0 <= seen.t - self.drawn_t < EVERY_S:
            return
        self.drawn_t = seen.t
        if self.other is not None:
            self.other.read()
        with self.view.lock:
            names = ranked(self.view.series.names)
        if names != self.names:
            self.names = names
            grid = self.query_one("#plots", ItemGrid)
            self._arrange()
            grid.remove_children()
            grid.mount_all(self._plot(name) for name in names)
            if isinstance(self.screen.focused, Plot):  # it is being removed, and the keys of this screen need a focus
                self.query_one("#curves").focus()
            self.refresh_bindings()
        self._redraw()

    def _redraw(self) -> None:
        for block in self.query(TextBlock):
            block.redraw()
        for plot in self.screen.query(Plot):
            plot.redraw()

    def _arrange(self) -> None:
        """Show as many curves as fit, or few in all of the screen. A page has whole rows."""
        width, height = max(self.size.width - 1, 1), max(self.size.height - 1, 1)  # less the scrollbar and the facts
        across, down = per_page(width, height)
        rows = min(-(-len(self.names) // across), down) or 1
        least, more = divmod(min(height, MOST * rows), rows)
        heights = [least + (row < more) for row in range(rows)]  # repeated for the rows of the next pages
        self.query_one("#plots", ItemGrid).styles.grid_rows = " ".join(map(str, heights))

    def on_resize(self) -> None:
        self._arrange()

    def on_show(self) -> None:
        self.drawn_t = float("-inf")
        self.refresh_snapshot()

    def repaint(self) -> None:
        """Draw everything again, in the colors of another theme."""
        for plot in self.query(Plot):
            plot.refresh()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "page":
            return self.screen.maximized is None
        if action == "compare":
            return bool(self._runs()) or self.other is not None
        if action == "switch" and parameters == ("band",):
            with self.view.lock:
                curves = [*self.view.series.curves.values(), *self.view.series.group_curves.values()]
                return any(curve.points("steps", "low") for curve in curves)
        return True

    def _runs(self) -> list[Any]:
        return [run for run in self.view.others() if run.path != self.view.directory.path]

    def action_page(self) -> None:
        curves = self.query_one("#curves")
        if curves.scroll_y >= curves.max_scroll_y:
            curves.scroll_home(animate=False)
        else:
            curves.scroll_page_down(animate=False)

    def action_axis(self) -> None:
        self.axis = (self.axis + 1) % len(AXES)
        self._redraw()

    def action_switch(self, name: str) -> None:
        self.settings[name] = not self.settings[name]
        self._redraw()

    def action_compare(self) -> None:
        """Compare with the next of the other runs, and with none after the last one."""
        runs = self._runs()
        names = [run.name for run in runs]
        index = names.index(self.other_name) + 1 if self.other_name in names else 0
        self.other, self.other_name = None, ""
        if index < len(runs):
            self.other, self.other_name = Series(runs[index].metrics_file), names[index]
            self.other.read()
        self._redraw()
