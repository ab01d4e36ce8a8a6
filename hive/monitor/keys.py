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
    from hive.monitor.view_model import MonitorState

__all__ = ["ACTIONS", "SCREENS", "Action", "Effect"]

SCREENS = ("house", "actors", "learning", "logs")
PAGE = 10  # lines that a page key moves


@dataclass(frozen=True)
class Effect:
    """What the state cannot do itself: "leave", "inspect", "restart", "kill", "pause", "resume" or "save"."""

    kind: str
    actor: str = ""


@dataclass(frozen=True)
class Action:
    """What a key does. `screens`: where; none: everywhere. `changes`: it changes the run."""

    key: str
    shown: str  # how the key is called on the screen
    text: str
    do: Callable[[MonitorState], Effect | None]
    screens: tuple[str, ...] = ()
    changes: bool = False
    plain: bool = False  # everybody knows it: not at the bottom of the screen


def _set(**values: object) -> Callable[[MonitorState], None]:
    def do(state: MonitorState) -> None:
        for name, value in values.items():
            setattr(state, name, value)

    return do


def _toggle(name: str) -> Callable[[MonitorState], None]:
    return lambda state: setattr(state, name, not getattr(state, name))


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
    Action("enter", "enter", "detail", lambda state: state.open(), LIST),
    Action("comma", ",", "sort by the column before", lambda state: state.sort(-1), LIST),
    Action("full_stop", ".", "sort by the next column", lambda state: state.sort(1), LIST),
    Action("r", "r", "reverse", _toggle("reverse"), LIST),
    Action("s", "s", "stack again", lambda state: state.inspect(), DETAIL),
    Action("R", "R", "restart", lambda state: state.ask_to("restart"), (*LIST, *DETAIL), changes=True),
    Action("K", "K", "kill", lambda state: state.ask_to("kill"), (*LIST, *DETAIL), changes=True),
    Action("p", "p", "pause, or go on", lambda state: state.ask_the_run("pause"), HOUSE, changes=True),
    Action("s", "s", "save", lambda state: state.ask_the_run("save"), HOUSE, changes=True),
    Action("space", "space", "next page", lambda state: state.turn_page(), LEARNING),
    Action("x", "x", "axis", lambda state: setattr(state, "axis", (state.axis + 1) % len(AXES)), LEARNING),
    Action("o", "o", "lay another run under it", lambda state: state.next_overlay(), LEARNING),
    Action("b", "b", "band", _toggle("band"), LEARNING),
    Action("l", "l", "logarithmic", _toggle("logarithmic"), LEARNING),
    Action("e", "e", "errors", _set(level=3, back=0), LOGS),
    Action("w", "w", "warnings", _set(level=2, back=0), LOGS),
    Action("i", "i", "info", _set(level=1, back=0), LOGS),
    Action("d", "d", "all levels", _set(level=0, back=0), LOGS),
    Action("a", "a", "next actor", lambda state: state.next_actor(), LOGS),
    Action("slash", "/", "search", lambda state: state.type_into("search"), LOGS),
    Action("f", "f", "follow", _set(back=0), LOGS),
    Action("c", "c", "newest crash report", lambda state: state.read_crash(), ("house", "actors", "logs")),
    Action("up k", "↑", "up", lambda state: state.move(-1), MOVING, plain=True),
    Action("down j", "↓", "down", lambda state: state.move(1), MOVING, plain=True),
    Action("pageup", "pgup", "page up", lambda state: state.move(-PAGE), MOVING, plain=True),
    Action("pagedown", "pgdn", "page down", lambda state: state.move(PAGE), MOVING, plain=True),
    Action("escape", "esc", "back", lambda state: state.leave_here(), (*DETAIL, *REPORT, *LOGS)),
    *(
        Action(str(number), str(number), f"screen: {name}", lambda state, name=name: state.go(name))  # type: ignore[misc]
        for number, name in enumerate(SCREENS, 1)
    ),
    Action("colon question_mark", ":", "every action", lambda state: state.type_into("palette")),
    Action("q", "q", "leave; the run goes on", lambda state: Effect("leave")),
)
