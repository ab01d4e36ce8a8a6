"""A signal that asks a command to end, as an exception. This module imports little: `hive up` needs it first."""

from __future__ import annotations

from typing import NoReturn


class Interrupted(KeyboardInterrupt):
    """A signal that asks a command to end. `exit_code` is the one that shells use for it: 128 + its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.exit_code = 128 + number


def raise_interrupt(number: int, frame: object) -> NoReturn:
    """Raise Interrupted: the handler of a signal."""
    raise Interrupted(number)
