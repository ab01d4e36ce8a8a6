"""The first screen: curve and rates, groups of actors, channels, the bottleneck, events.

A small terminal loses the curve and the table of rates first (one line of numbers replaces them), then the events, then
channels. A large one gives what the tables leave to the curve and the events. A wide one has the events beside the
channels, so that the curve can be taller.
"""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from hive.monitor.drawing import DIM, Spans, fitted
from hive.monitor.overview import curve_lines, curve_title, event_lines, rates, rates_line, sentence
from hive.monitor.snapshot import Snapshot
from hive.monitor.tables import CHANNELS, GROUPS, channels_of, groups_of
from hive.monitor.terminal.view import Request, ViewState
from hive.monitor.terminal.widgets import Grid, TextBlock

RATES = 40  # width in cells of the table of rates
LEAST_CURVE = 9  # lines of the curve: as many as the table of rates beside it has
LEAST_EVENTS = 3  # lines of events, before the curve gets any
CHANNELS_WIDTH = 108  # width in cells of the channels beside the events: all columns of a run with an evaluator
WIDE = 180  # width in cells from which the events are beside the channels: both then fit


def heights(room: int, groups: int, channels: int, bound: int, *, wide: bool = False) -> dict[str, int]:
    """Return the lines of each part for `room` lines in all; 0: it is not shown.

    groups, channels: lines of these tables, their headings included. bound: lines of the sentence. wide: whether the
    events are beside the channels, in the part `middle`.
    """
    shown = {"top": 0, "short": 0, "groups": groups, "middle": channels, "bound": bound, "events": 0}
    left = room - groups - channels - bound
    curve = left if wide else left - LEAST_EVENTS - 1  # 1: the line above the events
    if curve >= LEAST_CURVE:
        shown["top"] = max(LEAST_CURVE, min(curve, 3 * room // 5 if wide else 2 * room // 5))
    else:
        shown["short"] = 1
    left -= shown["top"] + shown["short"]
    shown["middle" if wide else "events"] += max(left, 0)
    if left < 0:
        kept = max(channels + left, 0)
        shown["middle"] = kept if kept > 1 else 0
        shown["groups"] = max(groups + min(channels + left, 0), 1)
    return shown


class OverviewPane(Vertical, can_focus=True):
    """The overview; see the module."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "request('pause')", "pause"),
        Binding("p", "request('resume')", "resume"),
        Binding("s", "request('save')", "save"),
        Binding("D", "request('down')", "end run"),
        Binding("c", "app.crash", "crash"),
    ]
    DEFAULT_CSS = """
    OverviewPane #curve { width: 1fr; height: 100%; }
    OverviewPane #rates { width: 40; height: 100%; }
    OverviewPane #channels { height: 100%; }
    OverviewPane #beside { width: 1fr; height: 100%; border-left: solid $panel; }
    OverviewPane #events { border-top: solid $panel; }
    """

    def __init__(self, view: ViewState, **names: Any) -> None:
        super().__init__(**names)
        self.view = view

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield TextBlock(self._curve, id="curve")
            yield TextBlock(lambda width, height: self._drawn(rates), id="rates")
        yield TextBlock(lambda width, height: self._drawn(lambda seen: [fitted(rates_line(seen), width)]), id="short")
        yield Grid(GROUPS, id="groups")
        with Horizontal(id="middle"):
            yield Grid(CHANNELS, id="channels")
            yield TextBlock(self._events, id="beside")
        yield TextBlock(lambda width, height: self._drawn(lambda seen: sentence(seen, width)), id="bound")
        yield TextBlock(self._events, id="events")

    def _drawn(self, draw: Any) -> list[Spans]:
        lines: list[Spans] = draw(self.view.snapshot) if self.view.snapshot else []
        return lines

    def _curve(self, width: int, height: int) -> list[Spans]:
        seen = self.view.snapshot
        title: Spans = [(" ", DIM), *curve_title(seen)] if seen else [(" return (last 100 episodes)", DIM)]
        return [title, *self._drawn(lambda seen: curve_lines(seen, width - 1, height - 1))]

    def _events(self, width: int, height: int) -> list[Spans]:
        return self._drawn(lambda seen: [fitted(line, width) for line in event_lines(seen.events, width, height)])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "request" or self.view.may(str(parameters[0]))

    def action_request(self, kind: str) -> None:
        self.post_message(Request(kind))

    def on_resize(self) -> None:
        self.refresh_snapshot()

    def refresh_snapshot(self) -> None:
        """Show the view's snapshot."""
        seen = self.view.snapshot
        if seen is None or not self.size.height:
            return
        self._arrange(seen)
        self.query_one("#groups", Grid).show(groups_of(seen))
        self.query_one("#channels", Grid).show(channels_of(seen))
        for block in self.query(TextBlock):
            if block.display:
                block.redraw()

    def _arrange(self, seen: Snapshot) -> None:
        groups, channels = len(seen.groups), len(seen.channels) + len(seen.boards)
        bound = len(sentence(seen, self.size.width))
        wide = self.size.width >= WIDE
        shown = heights(self.size.height, groups and groups + 1, channels and channels + 1, bound, wide=wide)
        self.query_one("#beside").display = wide
        self.query_one("#channels").styles.width = CHANNELS_WIDTH if wide else "1fr"
        for name, lines in shown.items():
            part = self.query_one(f"#{name}")
            if part.display != bool(lines):
                part.display = bool(lines)
            part.styles.height = lines  # unchanged values cost nothing

    def repaint(self) -> None:
        """Draw everything anew, in the colors of another theme."""
        for grid in self.query(Grid):
            grid.redraw()
        self.refresh_snapshot()
