"""A signal that asks a command to end, as an exception. This module imports nothing: `hive up` needs it first."""

from __future__ import annotations


class Interrupted(KeyboardInterrupt):
    """A signal that asks a command to end. `exit_code` is the one that shells use for it: 128 + its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.exit_code = 128 + number
