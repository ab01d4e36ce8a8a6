"""Describe an action of the terminal UI: its key, its text, the places where it is available and the change it makes.

The state that actions change is a type parameter, so that the state (hive.monitor.view_model) and the table of its
actions (hive.monitor.keys) both import this module, and the state does not import the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["SCREENS", "Action", "Effect"]

State = TypeVar("State")

SCREENS = ("overview", "actors", "learning", "logs")


@dataclass(frozen=True)
class Effect:
    """A request that the state cannot carry out itself.

    kind: "leave", "inspect", "restart", "kill", "pause", "resume" or "save". actor: its name, if it concerns one.
    """

    kind: str
    actor: str = ""


@dataclass(frozen=True)
class Action(Generic[State]):
    """One action and its key."""

    key: str  # textual's names of the keys, separated by blanks
    shown: str  # the key as the screen prints it
    text: str
    do: Callable[[State], Effect | None]
    screens: tuple[str, ...] = ()  # places where it is available; empty: everywhere
    changes: bool = False  # whether it changes the run: not available with `--readonly`
    plain: bool = False  # a customary key, which the line at the bottom does not list
