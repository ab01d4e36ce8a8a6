"""Every action of the terminal UI: its key, its text and the places where it is available.

This table is the only place that names keys; the palette and the line at the bottom are drawn from it. An action with
`screens` is available there only: on one of the four screens, in the `detail` of an actor, or in a crash `report`.
"""

from __future__ import annotations

from collections.abc import Callable

from hive.monitor.actions import SCREENS, Action, Effect
from hive.monitor.series import AXES
from hive.monitor.view_model import MonitorState

__all__ = ["ACTIONS"]

PAGE = 10  # lines that a page key moves


def _set(**values: object) -> Callable[[MonitorState], None]:
    def do(state: MonitorState) -> None:
        for name, value in values.items():
            setattr(state, name, value)

    return do


def _toggle(name: str) -> Callable[[MonitorState], None]:
    return lambda state: setattr(state, name, not getattr(state, name))


def _go(screen: str) -> Callable[[MonitorState], None]:
    return lambda state: state.go(screen)


OVERVIEW, LIST, LOGS, LEARNING, DETAIL, REPORT = (
    ("overview",),
    ("actors",),
    ("logs",),
    ("learning",),
    ("detail",),
    ("report",),
)
MOVING = (*LIST, *LOGS, *DETAIL, *REPORT)
ACTIONS: tuple[Action[MonitorState], ...] = (
    Action("enter", "enter", "detail", lambda state: state.open(), LIST),
    Action("comma", ",", "sort by previous column", lambda state: state.sort(-1), LIST),
    Action("full_stop", ".", "sort by next column", lambda state: state.sort(1), LIST),
    Action("r", "r", "reverse", _toggle("reverse"), LIST),
    Action("s", "s", "refresh the stack", lambda state: state.inspect(), DETAIL),
    Action("R", "R", "restart", lambda state: state.confirm_actor("restart"), (*LIST, *DETAIL), changes=True),
    Action("K", "K", "kill", lambda state: state.confirm_actor("kill"), (*LIST, *DETAIL), changes=True),
    Action("p", "p", "pause or resume", lambda state: state.confirm_run("pause"), OVERVIEW, changes=True),
    Action("s", "s", "save", lambda state: state.confirm_run("save"), OVERVIEW, changes=True),
    Action("space", "space", "next page", lambda state: state.turn_page(), LEARNING),
    Action("x", "x", "axis", lambda state: setattr(state, "axis", (state.axis + 1) % len(AXES)), LEARNING),
    Action("o", "o", "compare with another run", lambda state: state.next_overlay(), LEARNING),
    Action("b", "b", "band", _toggle("band"), LEARNING),
    Action("l", "l", "logarithmic", _toggle("logarithmic"), LEARNING),
    Action("e", "e", "errors", _set(level=3, back=0), LOGS),
    Action("w", "w", "warnings", _set(level=2, back=0), LOGS),
    Action("i", "i", "info", _set(level=1, back=0), LOGS),
    Action("d", "d", "all levels", _set(level=0, back=0), LOGS),
    Action("a", "a", "next actor", lambda state: state.next_actor(), LOGS),
    Action("slash", "/", "search", lambda state: state.type_into("search"), LOGS),
    Action("f", "f", "follow", _set(back=0), LOGS),
    Action("c", "c", "newest crash report", lambda state: state.read_crash(), ("overview", "actors", "logs")),
    Action("up k", "↑", "up", lambda state: state.move(-1), MOVING, plain=True),
    Action("down j", "↓", "down", lambda state: state.move(1), MOVING, plain=True),
    Action("pageup", "pgup", "page up", lambda state: state.move(-PAGE), MOVING, plain=True),
    Action("pagedown", "pgdn", "page down", lambda state: state.move(PAGE), MOVING, plain=True),
    Action("escape", "esc", "back", lambda state: state.leave_here(), (*DETAIL, *REPORT, *LOGS)),
    *(Action(str(number), str(number), f"screen: {name}", _go(name)) for number, name in enumerate(SCREENS, 1)),
    Action("colon question_mark", ":", "every action", lambda state: state.type_into("palette")),
    Action("q", "q", "leave; the run continues", lambda state: Effect("leave")),
)
