"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable

__all__ = ["add_overrides", "whole_number"]


def add_overrides(command: argparse.ArgumentParser, help: str = "override a key of the config (repeatable)") -> None:
    """Add `-s KEY=VALUE`, `--set KEY=VALUE`; the parsed options have the texts as a list `set`."""
    command.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help=help)


def whole_number(what: str, least: int, most: int | None = None) -> Callable[[str], int]:
    """Return the type of an option that is a whole number in this range. `what` is its name, for errors."""
    limits = f">= {least}" if most is None else f"from {least} to {most}"

    def read(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else -1
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"invalid {what} `{text}`: expected a whole number {limits}")
        return value

    return read
