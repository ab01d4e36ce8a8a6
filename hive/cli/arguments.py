"""Arguments that several commands share."""

from __future__ import annotations

import argparse

__all__ = ["add_overrides"]


def add_overrides(command: argparse.ArgumentParser, help: str = "override a key of the config (repeatable)") -> None:
    """Add `-s KEY=VALUE`, `--set KEY=VALUE`; the parsed options have the texts as a list `set`."""
    command.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help=help)
