"""Keys: every action of the terminal UI, the key that does it, and where it can be done.

The palette and the line at the bottom list these; nothing else knows a key. An action with `screens` is there on these
only: the four screens, the `detail` of an actor, a `report` that is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hive.monitor.series import AXES

if TYPE_CHECKING:
    from hive.monitor.desk import Desk

__all__ = ["ACTIONS", "SCREENS", "Action", "Effect"]

SCREENS = ("house", "actors", "learning", "logs")
PAGE = 10  # lines that a page key moves


@dataclass(frozen=True)
class Effect:
    """What the desk cannot do itself: "leave", "inspect", "restart", "kill", "pause", "resume" or "save"."""

    kind: str
    actor: str = ""


@dataclass(frozen=True)
class Action:
    """What a key does. `screens`: where; none: everywhere. `changes`: it changes the run."""

    key: str
    shown: str  # how the key is called on the screen
    text: str
    do: Callable[[Desk], Effect | None]
    screens: tuple[str, ...] = ()
    changes: bool = False
    plain: bool = False  # everybody knows it: not at the bottom of the screen


def _set(**values: object) -> Callable[[Desk], None]:
    def do(desk: Desk) -> None:
        for name, value in values.items():
            setattr(desk, name, value)

    return do


def _toggle(name: str) -> Callable[[Desk], None]:
    return lambda desk: setattr(desk, name, not getattr(desk, name))


HOUSE, LIST, LOGS, LEARNING, DETAIL, REPORT = (
    ("house",),
    ("actors",),
    ("logs",),
    ("learning",),
    ("detail",),
    ("report",),
)
MOVING = (*LIST, *LOGS, *DETAIL, *REPORT)
ACTIONS: tuple[Action, ...] = (
    Action("enter", "enter", "detail", lambda desk: desk.open(), LIST),
    Action("comma", ",", "sort by the column before", lambda desk: desk.sort(-1), LIST),
    Action("full_stop", ".", "sort by the next column", lambda desk: desk.sort(1), LIST),
    Action("r", "r", "reverse", _toggle("reverse"), LIST),
    Action("s", "s", "stack again", lambda desk: desk.inspect(), DETAIL),
    Action("R", "R", "restart", lambda desk: desk.ask_to("restart"), (*LIST, *DETAIL), changes=True),
    Action("K", "K", "kill", lambda desk: desk.ask_to("kill"), (*LIST, *DETAIL), changes=True),
    Action("p", "p", "pause, or go on", lambda desk: desk.ask_the_run("pause"), HOUSE, changes=True),
    Action("s", "s", "save", lambda desk: desk.ask_the_run("save"), HOUSE, changes=True),
    Action("space", "space", "next page", lambda desk: desk.turn_page(), LEARNING),
    Action("x", "x", "axis", lambda desk: setattr(desk, "axis", (desk.axis + 1) % len(AXES)), LEARNING),
    Action("o", "o", "lay another run under it", lambda desk: desk.next_overlay(), LEARNING),
    Action("b", "b", "band", _toggle("band"), LEARNING),
    Action("l", "l", "logarithmic", _toggle("logarithmic"), LEARNING),
    Action("e", "e", "errors", _set(level=3, back=0), LOGS),
    Action("w", "w", "warnings", _set(level=2, back=0), LOGS),
    Action("i", "i", "info", _set(level=1, back=0), LOGS),
    Action("d", "d", "all levels", _set(level=0, back=0), LOGS),
    Action("a", "a", "next actor", lambda desk: desk.next_actor(), LOGS),
    Action("slash", "/", "search", lambda desk: desk.type_into("search"), LOGS),
    Action("f", "f", "follow", _set(back=0), LOGS),
    Action("c", "c", "newest crash report", lambda desk: desk.read_crash(), ("house", "actors", "logs")),
    Action("up k", "↑", "up", lambda desk: desk.move(-1), MOVING, plain=True),
    Action("down j", "↓", "down", lambda desk: desk.move(1), MOVING, plain=True),
    Action("pageup", "pgup", "page up", lambda desk: desk.move(-PAGE), MOVING, plain=True),
    Action("pagedown", "pgdn", "page down", lambda desk: desk.move(PAGE), MOVING, plain=True),
    Action("escape", "esc", "back", lambda desk: desk.leave_here(), (*DETAIL, *REPORT, *LOGS)),
    *(
        Action(str(number), str(number), f"screen: {name}", lambda desk, name=name: desk.go(name))  # type: ignore[misc]
        for number, name in enumerate(SCREENS, 1)
    ),
    Action("colon question_mark", ":", "every action", lambda desk: desk.type_into("palette")),
    Action("q", "q", "leave; the run goes on", lambda desk: Effect("leave")),
)
