"""Keep and draw the state of the terminal UI. This module uses neither a terminal nor a socket.

    key ──> press ──> a changed state, and perhaps an Effect: leave, inspect an actor, kill one
    snapshot ──> show                 lines(width, height) ──> the content of the terminal

The table of keys is an argument (hive.monitor.keys). There are four screens (overview, actors, learning, logs), a
palette that lists every action with its key, and a line at the bottom for text that the user types. Actions that change
the run need a confirmation; `readonly` disables them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from hive.monitor.actions import SCREENS, Action, Effect
from hive.monitor.actors_screen import COLUMNS, Inspection, actor_detail, actors_table, sorted_rows
from hive.monitor.drawing import BAD, BOLD, DIM, KEY, PLAIN, SELECTED, TITLE, Line, fitted, printable_line, rule
from hive.monitor.learning import multiples, per_page
from hive.monitor.log_view import LEVELS, MergedLog, log_lines
from hive.monitor.overview_screen import header, overview
from hive.monitor.rows import ActorRow
from hive.monitor.series import AXES, Series
from hive.monitor.snapshot import Snapshot
from hive.records import RunDirectory
from hive.records.regular import open_regular

__all__ = ["MonitorState"]

FOOT = 2  # lines at the bottom: keys of this screen, and the screens
DETAIL_LOG = 50  # lines of an actor's log in its detail
LEARNING_S = 3.0  # seconds between two drawings of the curves
CRASH_BYTES = 1 << 18  # bytes of a crash report that are shown


@dataclass
class MonitorState:
    """The state of one terminal UI; see the module.

    actions: what the keys do (hive.monitor.keys.ACTIONS). lock: held while curves are drawn, because another thread may
    be adding points to `series`.
    """

    directory: RunDirectory
    series: Series
    actions: Sequence[Action[MonitorState]]
    others: Callable[[], Sequence[RunDirectory]] = list  # runs whose curves can be compared with this one's
    readonly: bool = False
    lock: AbstractContextManager[object] = field(default_factory=nullcontext)
    snapshot: Snapshot | None = None
    problem: str = ""  # why there is no snapshot
    notice: str = ""  # result of the last key, shown until the next one
    screen: str = SCREENS[0]
    typing: str = ""  # "", "search" or "palette"
    typed: str = ""
    confirming: Effect | None = None  # the effect that awaits y or n
    chosen: int = 0  # index of the chosen action in the palette
    # actors
    selected: int = 0
    column: int = -1
    reverse: bool = False
    opened: str = ""  # the actor whose detail is shown
    inspected: Inspection | None = None
    scrolled: int = 0
    # learning
    page: int = 0
    axis: int = 0
    band: bool = False
    logarithmic: bool = False
    overlay: Series | None = None
    overlay_name: str = ""
    drawn: list[Line] = field(default_factory=list)  # cached lines of the learning screen
    drawn_t: float = float("-inf")  # time of the snapshot at which they were drawn
    drawn_settings: tuple[object, ...] = ()  # the settings that they were drawn with
    # logs
    level: int = 0
    only: str = ""
    search: str = ""
    back: int = 0  # entries between the last line shown and the newest
    reading: list[str] | None = None  # lines of the crash report that is shown

    def __post_init__(self) -> None:
        self.log = MergedLog(self.directory.logs)

    def show(self, snapshot: Snapshot) -> None:
        """Replace the snapshot, and read the files that the current screen shows."""
        self.snapshot, self.problem = snapshot, ""
        if self.screen == "logs" or self.opened:
            self.log.read()
        if self.overlay is not None:
            self.overlay.read()

    # --- keys

    def press(self, key: str, character: str | None = None) -> Effect | None:
        """Handle one key; return the effect that the caller must carry out, if any.

        key: textual's name of the key. character: the character that it types, if it types one.
        """
        self.notice = ""
        if self.confirming is not None:
            effect, self.confirming = self.confirming, None
            return effect if key == "y" else None
        if self.typing:
            return self._type(key, character)
        for action in self.actions:
            if key in action.key.split() and self._available(action):
                return self._do(action)
        return None

    def _do(self, action: Action[MonitorState]) -> Effect | None:
        return action.do(self)

    def _available(self, action: Action[MonitorState]) -> bool:
        place = "report" if self.reading is not None else "detail" if self.opened else self.screen
        return (not action.screens or place in action.screens) and not (action.changes and self.readonly)

    def _type(self, key: str, character: str | None) -> Effect | None:
        palette = self.typing == "palette"
        if key == "escape":
            self.search = self.search if palette else ""
            self.typing = self.typed = ""
        elif key == "enter":
            found, self.typing = self._found() if palette else [], ""
            self.typed, chosen = "", self.chosen
            return self._do(found[min(chosen, len(found) - 1)]) if found else None
        elif key in ("up", "down") and palette:
            self.chosen = max(0, min(self.chosen + (1 if key == "down" else -1), len(self._found()) - 1))
        elif key == "backspace":
            self.typed = self.typed[:-1]
        elif character is not None and character.isprintable():
            self.typed, self.chosen = self.typed + character, 0
        if self.typing == "search":
            self.search, self.back = self.typed, 0
        return None

    def _found(self) -> list[Action[MonitorState]]:
        """Return the available actions that contain every word typed into the palette."""
        words = self.typed.lower().split()
        return [
            action
            for action in self.actions
            if self._available(action) and all(word in action.text.lower() or word == action.shown for word in words)
        ]

    # --- actions of keys

    def go(self, screen: str) -> None:
        self.screen, self.opened, self.reading = screen, "", None
        if screen == "logs":
            self.log.read()

    def type_into(self, target: str) -> None:
        """Start typing into the "search" or the "palette"."""
        self.typing, self.typed, self.chosen = target, "", 0

    def rows(self) -> list[ActorRow]:
        return sorted_rows(self.snapshot, self.column, self.reverse) if self.snapshot else []

    def move(self, by: int) -> None:
        """Scroll, or move the selection, by `by` lines (positive: down)."""
        if self.reading is not None or self.opened:
            self.scrolled = max(self.scrolled + by, 0)
        elif self.screen == "actors":
            self.selected = max(0, min(self.selected + by, len(self.rows()) - 1))
        elif self.screen == "logs":
            self.back = max(self.back - by, 0)

    def sort(self, by: int) -> None:
        """Sort the table by the column `by` columns further on; one of the positions is the topology's order."""
        self.column = (self.column + 1 + by) % (len(COLUMNS) + 1) - 1

    def open(self) -> Effect | None:
        """Open the detail of the selected actor."""
        rows = self.rows()
        if not rows:
            return None
        self.opened, self.scrolled, self.inspected = rows[min(self.selected, len(rows) - 1)].name, 0, None
        self.log.read()
        return self.inspect()

    def inspect(self) -> Effect | None:
        """Request the stack and the transition history of the opened actor, if the run can supply them."""
        if self.snapshot is None or self.snapshot.state not in ("running", "draining", "paused"):
            self.inspected = Inspection(self.opened, error="the run is not running")
        elif all(row.name != self.opened for row in self.snapshot.actors):
            self.inspected = Inspection(self.opened, error=f"{self.opened} is not an actor")
        else:
            return Effect("inspect", self.opened)
        return None

    def leave_here(self) -> None:
        """Go back from a crash report, a detail or a search."""
        if self.reading is not None:
            self.reading = None
        elif self.opened:
            self.opened = ""
        else:
            self.search, self.only, self.back = "", "", 0

    def confirm_actor(self, kind: str) -> None:
        """Ask the user to confirm an effect on the selected actor."""
        rows = self.rows()
        row = next((r for r in rows if r.name == self.opened), None) if self.opened else None
        row = row or (rows[min(self.selected, len(rows) - 1)] if rows else None)
        if row is None or self.snapshot is None or row not in self.snapshot.actors:
            self.notice = f"{row.name if row else 'the selection'} is not an actor"
        elif self.snapshot.state != "running":
            self.notice = f"the run is {self.snapshot.state}"
        else:
            self.confirming = Effect(kind, row.name)

    def confirm_run(self, kind: str) -> None:
        """Ask the user to confirm an effect on the whole run; "pause" means resume where the run is paused."""
        state = self.snapshot.state if self.snapshot is not None else "not connected yet"
        if kind == "pause" and state == "paused":
            kind = "resume"
        if state in ("running", "paused"):
            self.confirming = Effect(kind)
        else:
            self.notice = f"the run is {state}"

    def turn_page(self) -> None:
        self.page += 1

    def next_overlay(self) -> None:
        """Compare with the next of the other runs, and with none after the last one."""
        runs = [run for run in self.others() if run.path != self.directory.path]
        names = [run.name for run in runs]
        index = names.index(self.overlay_name) + 1 if self.overlay_name in names else 0
        if index >= len(runs):
            self.overlay, self.overlay_name = None, ""
            self.notice = "" if runs else "there is no other run"
            return
        self.overlay, self.overlay_name = Series(runs[index].metrics_file), names[index]
        self.overlay.read()

    def next_actor(self) -> None:
        names = ["", *self.log.actors]
        self.only = names[(names.index(self.only) + 1) % len(names)] if self.only in names else ""
        self.back = 0

    def read_crash(self) -> None:
        """Show the newest crash report."""
        reports = sorted(self.directory.crashes.glob("*.txt"), key=lambda path: path.stat().st_mtime)
        if not reports:
            self.notice = "there is no crash report"
            return
        try:
            with open_regular(reports[-1]) as file:
                text = file.read(CRASH_BYTES).decode(errors="replace")
        except OSError as error:
            text = f"cannot be read: {error.strerror}"
        self.reading, self.scrolled = [str(reports[-1]), "", *text.splitlines()], 0

    # --- drawing

    def lines(self, width: int, height: int) -> list[Line]:
        """Draw exactly `height` lines of `width` cells."""
        room = max(height - FOOT, 1)
        body = self._palette(width, room) if self.typing == "palette" else self._body(width, room)
        body = [fitted(line, width) for line in body[:room]]
        lines = [*body, *[[(" " * width, PLAIN)]] * (room - len(body)), *self._foot(width)][:height]
        return [printable_line(line) for line in lines]

    def _body(self, width: int, room: int) -> list[Line]:
        if self.reading is not None:
            self.scrolled = min(self.scrolled, max(len(self.reading) - room, 0))
            return [[(f" {text}", PLAIN)] for text in self.reading[self.scrolled :]]
        if self.snapshot is None:
            texts = (self.problem or "waiting for the supervisor").splitlines()
            return [[], *([(f"   {text}", DIM)] for text in texts)]
        top = header(self.snapshot, width)
        if self.screen == "overview":
            body = overview(self.snapshot, width, room)[len(top) :]
        else:
            body = self._screen(self.snapshot, width, room - len(top))
        if self.snapshot.supervisor:  # grey, because the values are out of date
            body = [[(text, DIM) for text, _ in line] for line in body]
        return [*top, *body]

    def _screen(self, snapshot: Snapshot, width: int, room: int) -> list[Line]:
        if self.screen == "actors":
            row = next((row for row in self.rows() if row.name == self.opened), None) if self.opened else None
            if row is None:
                selected = min(self.selected, max(len(self.rows()) - 1, 0))
                return actors_table(snapshot, width, room, column=self.column, reverse=self.reverse, selected=selected)
            log = self.log.of(row.name, DETAIL_LOG)
            lines, most = actor_detail(row, self.inspected, log, width, room, scrolled=self.scrolled)
            self.scrolled = min(self.scrolled, most)
            return lines
        if self.screen == "learning":
            return self._learning(width, room)
        entries = self.log.chosen(level=self.level, actor=self.only, search=self.search)
        self.back = min(self.back, max(len(entries) - room + 1, 0))
        facts = [
            f"{len(entries)} line{'s' if len(entries) != 1 else ''}",
            LEVELS[self.level],
            self.only or "all actors",
        ]
        facts += [f"/{self.search}"] if self.search else []
        facts += ["following" if not self.back else f"{self.back} below"]
        return [
            rule(" · ".join(facts), width),
            *log_lines(entries, width, room - 1, back=self.back, search=self.search),
        ]

    def _learning(self, width: int, room: int) -> list[Line]:
        """Return the learning screen, redrawn when a setting changes and else every few seconds: curves grow slowly."""
        settings = (width, room, self.page, self.axis, self.band, self.logarithmic, self.overlay_name)
        t = self.snapshot.t if self.snapshot else 0.0
        if settings != self.drawn_settings or not 0 <= t - self.drawn_t < LEARNING_S:
            self.drawn_settings, self.drawn_t, self.drawn = settings, t, self._multiples(width, room)
        return self.drawn

    def _multiples(self, width: int, room: int) -> list[Line]:
        with self.lock:
            names = self.series.names
            across, down = per_page(width, room - 1)
            pages = max(-(-len(names) // (across * down)), 1)
            first = self.page % pages * across * down
            facts = [f"page {self.page % pages + 1} of {pages}", f"over {AXES[self.axis]}"]
            facts += ["band"] if self.band else []
            facts += ["logarithmic"] if self.logarithmic else []
            facts += [f"with {self.overlay_name}"] if self.overlay_name else []
            return [
                rule(" · ".join(facts), width),
                *multiples(
                    self.series,
                    width,
                    room - 1,
                    names=names[first : first + across * down],
                    axis=AXES[self.axis],
                    band=self.band,
                    logarithmic=self.logarithmic,
                    other=self.overlay,
                ),
            ]

    def _palette(self, width: int, room: int) -> list[Line]:
        found = self._found()
        lines: list[Line] = [rule("actions on this screen", width)]
        for number, action in enumerate(found):
            style = SELECTED if number == min(self.chosen, len(found) - 1) else PLAIN
            lines.append([(f"  {action.shown:>10}   {action.text}", style)])
        return lines[:room]

    def _foot(self, width: int) -> list[Line]:
        if self.confirming is not None:
            first: Line = [(f" {self._consequence(self.confirming)}  y / n", BAD)]
        elif self.typing:
            first = [(" :" if self.typing == "palette" else " /", KEY), (self.typed, BOLD), ("█", PLAIN)]
        elif self.notice:
            first = [(f" {self.notice}", BAD)]
        else:
            here = [
                action for action in self.actions if action.screens and not action.plain and self._available(action)
            ]
            first = _keys((action.shown, action.text) for action in here)
        second: Line = [(" ", PLAIN)]
        for number, name in enumerate(SCREENS, 1):
            style = SELECTED if name == self.screen else PLAIN
            second += [(f"{number}", KEY), (f" {name} ", style), (" ", PLAIN)]
        second += [("  : ", KEY), ("actions  ", PLAIN), ("q ", KEY), ("leave (run continues)", PLAIN)]
        return [fitted(first, width), fitted(second, width)]

    def _consequence(self, effect: Effect) -> str:
        if effect.kind in RUN_QUESTIONS:
            return RUN_QUESTIONS[effect.kind]
        row = next((row for row in self.rows() if row.name == effect.actor), None)
        counted = "" if effect.kind == "restart" else ", and this counts as a failure"
        after = "it is restarted" if row is None or row.restartable else "the run ends, because it is not restarted"
        return f"{effect.kind} {effect.actor}? Its unfinished work is lost{counted}; {after}."


RUN_QUESTIONS = {
    "pause": "pause the run? All its state stays in memory.",
    "resume": "resume the run?",
    "save": "save a checkpoint now?",
}


def _keys(pairs: Iterable[tuple[str, str]]) -> Line:
    line: Line = [(" ", TITLE)]
    for shown, text in pairs:
        line += [(shown, KEY), (f" {text}  ", PLAIN)]
    return line
