"""The desk: what a person who looks at a run has before them, and what each key does to it. No terminal, no socket.

    key ──> press ──> the desk is another one, and perhaps an Effect: leave, inspect an actor, kill one
    snapshot ──> show                 lines(width, height) ──> what a terminal shows

Four screens (house, actors, learning, logs), a palette that lists every action with its key, one line at the bottom for
words that are typed. With `readonly` nothing that changes the run can be asked for; what does is asked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from hive.monitor.actors_screen import COLUMNS, Inspected, actor_detail, actors_table, sorted_rows
from hive.monitor.drawing import BAD, BOLD, DIM, KEY, PLAIN, SELECTED, TITLE, Line, clean, fitted, rule
from hive.monitor.keys import ACTIONS, SCREENS, Action, Effect
from hive.monitor.learning import multiples, per_page
from hive.monitor.log_view import LEVELS, Logbook, log_lines
from hive.monitor.overview_screen import header, house
from hive.monitor.rows import ActorRow
from hive.monitor.series import AXES, Series
from hive.monitor.snapshot import Snapshot
from hive.records import RunDirectory

__all__ = ["MonitorState"]

FOOT = 2  # lines
DETAIL_LOG = 50  # lines of an actor's log under its detail
LEARNING_S = 3.0  # between two drawings of curves
CRASH_BYTES = 1 << 18  # of a report that is read


@dataclass
class MonitorState:
    """See the module. `busy` is held while curves are drawn, which somebody else may be reading in."""

    directory: RunDirectory
    series: Series
    others: Callable[[], Sequence[RunDirectory]] = list  # runs that can be laid over this one
    readonly: bool = False
    busy: AbstractContextManager[object] = field(default_factory=nullcontext)
    snapshot: Snapshot | None = None
    problem: str = ""  # why there is no snapshot
    notice: str = ""  # about the last key
    screen: str = "house"
    typing: str = ""  # "", "search" or "palette"
    typed: str = ""
    confirming: Effect | None = None
    chosen: int = 0  # of the palette
    # actors
    selected: int = 0
    column: int = -1
    reverse: bool = False
    opened: str = ""  # the actor whose detail is shown
    inspected: Inspected | None = None
    scrolled: int = 0
    # learning
    page: int = 0
    axis: int = 0
    band: bool = False
    logarithmic: bool = False
    overlay: Series | None = None
    overlay_name: str = ""
    drawn: list[Line] = field(default_factory=list)  # of the learning screen, and when and what it shows
    drawn_t: float = float("-inf")
    drawn_what: tuple[object, ...] = ()
    # logs
    level: int = 0
    only: str = ""
    search: str = ""
    back: int = 0
    reading: list[str] | None = None  # a crash report

    def __post_init__(self) -> None:
        self.logbook = Logbook(self.directory.logs)

    def show(self, snapshot: Snapshot) -> None:
        """What is known now."""
        self.snapshot, self.problem = snapshot, ""
        if self.screen == "logs" or self.opened:
            self.logbook.read()
        if self.overlay is not None:
            self.overlay.read()

    def answer(self, inspected: Inspected) -> None:
        """What was asked of an actor."""
        self.inspected = inspected

    # --- keys

    def press(self, key: str, character: str | None = None) -> Effect | None:
        """One key: its name, and the character that it makes if it makes one."""
        self.notice = ""
        if self.confirming is not None:
            effect, self.confirming = self.confirming, None
            return effect if key == "y" else None
        if self.typing:
            return self._type(key, character)
        for action in ACTIONS:
            if key in action.key.split() and self._available(action):
                return self._do(action)
        return None

    def _do(self, action: Action) -> Effect | None:
        return action.do(self)

    def _available(self, action: Action) -> bool:
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

    def _found(self) -> list[Action]:
        """The actions of the palette that what was typed leaves."""
        words = self.typed.lower().split()
        return [
            action
            for action in ACTIONS
            if self._available(action) and all(word in action.text.lower() or word == action.shown for word in words)
        ]

    # --- what keys do

    def go(self, screen: str) -> None:
        self.screen, self.opened, self.reading = screen, "", None
        if screen == "logs":
            self.logbook.read()

    def type_into(self, what: str) -> None:
        self.typing, self.typed, self.chosen = what, "", 0

    def rows(self) -> list[ActorRow]:
        return sorted_rows(self.snapshot, self.column, self.reverse) if self.snapshot else []

    def move(self, by: int) -> None:
        """Up and down, whatever that is here."""
        if self.reading is not None or self.opened:
            self.scrolled = max(self.scrolled + by, 0)
        elif self.screen == "actors":
            self.selected = max(0, min(self.selected + by, len(self.rows()) - 1))
        elif self.screen == "logs":
            self.back = max(self.back - by, 0)

    def sort(self, by: int) -> None:
        self.column = (self.column + 1 + by) % (len(COLUMNS) + 1) - 1

    def open(self) -> Effect | None:
        """The detail of the selected actor."""
        rows = self.rows()
        if not rows:
            return None
        self.opened, self.scrolled, self.inspected = rows[min(self.selected, len(rows) - 1)].name, 0, None
        self.logbook.read()
        return self.inspect()

    def inspect(self) -> Effect | None:
        if self.snapshot is None or self.snapshot.state not in ("running", "draining", "paused"):
            self.inspected = Inspected(self.opened, error="the run is not running")
        elif all(row.name != self.opened for row in self.snapshot.actors):
            self.inspected = Inspected(self.opened, error="it is no actor")
        else:
            return Effect("inspect", self.opened)
        return None

    def leave_here(self) -> None:
        """Back from a report, a detail or a search."""
        if self.reading is not None:
            self.reading = None
        elif self.opened:
            self.opened = ""
        else:
            self.search, self.only, self.back = "", "", 0

    def ask_to(self, kind: str) -> None:
        """Asks before something is done to an actor."""
        rows = self.rows()
        row = next((r for r in rows if r.name == self.opened), None) if self.opened else None
        row = row or (rows[min(self.selected, len(rows) - 1)] if rows else None)
        if row is None or self.snapshot is None or row not in self.snapshot.actors:
            self.notice = "that is no actor"
        elif self.snapshot.state != "running":
            self.notice = f"the run is {self.snapshot.state}"
        else:
            self.confirming = Effect(kind, row.name)

    def ask_the_run(self, kind: str) -> None:
        """Asks before something is done to the run as a whole."""
        state = self.snapshot.state if self.snapshot is not None else "not known"
        if kind == "pause" and state == "paused":
            kind = "resume"
        if state in ("running", "paused"):
            self.confirming = Effect(kind)
        else:
            self.notice = f"the run is {state}"

    def turn_page(self) -> None:
        self.page += 1

    def next_overlay(self) -> None:
        """The next of the other runs under this one's curves; after the last one none."""
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
        names = ["", *self.logbook.actors]
        self.only = names[(names.index(self.only) + 1) % len(names)] if self.only in names else ""
        self.back = 0

    def read_crash(self) -> None:
        """The newest crash report."""
        reports = sorted(self.directory.crashes.glob("*.txt"), key=lambda path: path.stat().st_mtime)
        if not reports:
            self.notice = "there is no crash report"
            return
        text = reports[-1].read_bytes()[:CRASH_BYTES].decode(errors="replace")
        self.reading, self.scrolled = [str(reports[-1]), "", *text.splitlines()], 0

    # --- drawing

    def lines(self, width: int, height: int) -> list[Line]:
        """Exactly `height` lines of `width` cells."""
        room = max(height - FOOT, 1)
        body = self._palette(width, room) if self.typing == "palette" else self._body(width, room)
        body = [fitted(line, width) for line in body[:room]]
        return [*body, *[[(" " * width, PLAIN)]] * (room - len(body)), *self._foot(width)][:height]

    def _body(self, width: int, room: int) -> list[Line]:
        if self.reading is not None:
            self.scrolled = min(self.scrolled, max(len(self.reading) - room, 0))
            return [[(f" {clean(text)}", PLAIN)] for text in self.reading[self.scrolled :]]
        if self.snapshot is None:
            return [[], [(f"   {clean(self.problem) or 'waiting for the supervisor'}", DIM)]]
        top = header(self.snapshot, width)
        if self.screen == "house":
            body = house(self.snapshot, width, room)[len(top) :]
        else:
            body = self._screen(self.snapshot, width, room - len(top))
        if self.snapshot.supervisor:  # what is shown is not what is: grey
            body = [[(text, DIM) for text, _ in line] for line in body]
        return [*top, *body]

    def _screen(self, snapshot: Snapshot, width: int, room: int) -> list[Line]:
        if self.screen == "actors":
            row = next((row for row in self.rows() if row.name == self.opened), None) if self.opened else None
            if row is None:
                selected = min(self.selected, max(len(self.rows()) - 1, 0))
                return actors_table(snapshot, width, room, column=self.column, reverse=self.reverse, selected=selected)
            log = self.logbook.of(row.name, DETAIL_LOG)
            lines, most = actor_detail(row, self.inspected, log, width, room, scrolled=self.scrolled)
            self.scrolled = min(self.scrolled, most)
            return lines
        if self.screen == "learning":
            return self._learning(width, room)
        entries = self.logbook.chosen(level=self.level, actor=self.only, search=self.search)
        self.back = min(self.back, max(len(entries) - room + 1, 0))
        facts = [
            f"{len(entries)} line{'s' if len(entries) != 1 else ''}",
            LEVELS[self.level],
            self.only or "all actors",
        ]
        facts += [f"/{self.search}"] if self.search else []
        facts += ["following" if not self.back else f"{self.back} below"]
        return [
            rule(clean(" · ".join(facts)), width),
            *log_lines(entries, width, room - 1, back=self.back, search=self.search),
        ]

    def _learning(self, width: int, room: int) -> list[Line]:
        """Drawn anew when something else is to be seen, and else every few seconds: curves grow slowly."""
        what = (width, room, self.page, self.axis, self.band, self.logarithmic, self.overlay_name)
        t = self.snapshot.t if self.snapshot else 0.0
        if what != self.drawn_what or not 0 <= t - self.drawn_t < LEARNING_S:
            self.drawn_what, self.drawn_t, self.drawn = what, t, self._multiples(width, room)
        return self.drawn

    def _multiples(self, width: int, room: int) -> list[Line]:
        with self.busy:
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
        lines: list[Line] = [rule("every action here", width)]
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
            first = [(f" {clean(self.notice)}", BAD)]
        else:
            here = [action for action in ACTIONS if action.screens and not action.plain and self._available(action)]
            first = _keys((action.shown, action.text) for action in here)
        second: Line = [(" ", PLAIN)]
        for number, name in enumerate(SCREENS, 1):
            style = SELECTED if name == self.screen else PLAIN
            second += [(f"{number}", KEY), (f" {name} ", style), (" ", PLAIN)]
        second += [("  : ", KEY), ("actions  ", PLAIN), ("q ", KEY), ("leave (the run goes on)", PLAIN)]
        return [fitted(first, width), fitted(second, width)]

    def _consequence(self, effect: Effect) -> str:
        if effect.kind in RUN_ASKED:
            return RUN_ASKED[effect.kind]
        row = next((row for row in self.rows() if row.name == effect.actor), None)
        counted = "" if effect.kind == "restart" else ", which counts as a death"
        after = "it comes back" if row is None or row.restartable else "the run ends, for it is not restarted"
        return f"{effect.kind} {effect.actor}? What it is making is lost{counted}; {after}."


RUN_ASKED = {
    "pause": "pause the run? It comes to rest with all that it has in memory.",
    "resume": "let the run go on?",
    "save": "save a checkpoint now?",
}


def _keys(pairs: Iterable[tuple[str, str]]) -> Line:
    line: Line = [(" ", TITLE)]
    for shown, text in pairs:
        line += [(shown, KEY), (f" {text}  ", PLAIN)]
    return line
