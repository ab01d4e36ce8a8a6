"""Dialogs above the screens: a confirmation, a line of input, the detail of an actor, a crash report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Footer, Input, Label

from hive.monitor.actor_detail import ActorInspection, actor_detail
from hive.monitor.drawing import PLAIN, Spans
from hive.monitor.terminal.view import Request, ViewState
from hive.monitor.terminal.widgets import TextBlock
from hive.printable import printable

DETAIL_LOG = 50  # lines of an actor's log in its detail

BOX = """
    align: center middle;
    & > Vertical { width: 72; max-width: 95%; height: auto; max-height: 95%; padding: 0 1; border: round $accent; }
    & Label { width: 100%; }
    & Horizontal { height: auto; align-horizontal: right; }
    & Button { margin-left: 1; }
"""


class Confirm(ModalScreen[bool]):
    """Asks a question; the result is whether the user said yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "yes"),
        Binding("n,escape", "dismiss(False)", "no"),
    ]
    DEFAULT_CSS = f"Confirm {{ {BOX} }}"

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Label(printable(self.question), markup=False)
            with Horizontal():
                yield Button("no (n)", id="no", compact=True)
                yield Button("yes (y)", id="yes", variant="warning", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")


class LineInput(ModalScreen[str | None]):
    """Asks for a line of text; the result is None where the user leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "leave")]
    DEFAULT_CSS = f"LineInput {{ {BOX} }}"

    def __init__(self, title: str, example: str) -> None:
        super().__init__()
        self.prompt = title
        self.example = example

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Label(self.prompt, markup=False)
            yield Input(placeholder=self.example, compact=True)
            yield Label("enter: continue · escape: leave", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


class TextPage(ModalScreen[None]):
    """Shows a long text, such as a crash report."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "back", key_display="esc")]
    DEFAULT_CSS = """
    TextPage VerticalScroll { width: 100%; height: 1fr; background: $background; }
    TextPage TextBlock { width: 100%; }
    """

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.texts: list[Spans] = [[(f" {text}", PLAIN)] for text in lines]

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield TextBlock(lambda width, height: self.texts)
        yield Footer(show_command_palette=False)


class ActorDetail(ModalScreen[None]):
    """Shows one actor. `inspect` is called with its name to request its stack; the reply comes by `inspected`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "back", key_display="esc"),
        Binding("s", "inspect", "refresh the stack"),
        Binding("R", "request('restart')", "restart"),
        Binding("K", "request('kill')", "kill"),
    ]
    DEFAULT_CSS = """
    ActorDetail VerticalScroll { width: 100%; height: 1fr; background: $background; }
    ActorDetail TextBlock { width: 100%; }
    """

    def __init__(self, view: ViewState, actor: str, inspect: Callable[[str], object]) -> None:
        super().__init__()
        self.view = view
        self.actor = actor
        self.inspect = inspect
        self.inspection: ActorInspection | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield TextBlock(self._content)
        yield Footer(show_command_palette=False)

    def _content(self, width: int, height: int) -> list[Spans]:
        row = self.view.row(self.actor)
        if row is None:
            return [[(f" {self.actor} is no process of the run any more", PLAIN)]]
        return actor_detail(row, self.inspection, self.view.log.of(self.actor, DETAIL_LOG), width)

    def on_mount(self) -> None:
        self.view.log.read()
        self.action_inspect()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "request":
            return self.view.may(str(parameters[0])) and self.view.is_actor(self.actor)
        return action != "inspect" or (self.view.answers() and self.view.is_actor(self.actor))

    def action_inspect(self) -> None:
        if self.check_action("inspect", ()):
            self.inspect(self.actor)
        else:
            why = "the run is not running" if not self.view.answers() else f"{self.actor} is not an actor"
            self.inspected(ActorInspection(self.actor, error=why))

    def inspected(self, inspection: ActorInspection) -> None:
        """Show the supervisor's reply."""
        if inspection.actor == self.actor:
            self.inspection = inspection
            self.refresh_snapshot()

    def action_request(self, kind: str) -> None:
        self.app.post_message(Request(kind, self.actor))

    def refresh_snapshot(self) -> None:
        """Show the view's snapshot."""
        for block in self.query(TextBlock):  # none before the dialog is built
            block.redraw()
        self.refresh_bindings()

    def repaint(self) -> None:
        """Draw everything again, in the colors of another theme."""
        self.query_one(TextBlock).refresh()

    def __rich_repr__(self) -> Any:
        yield self.actor
