"""Writes lines of a run's event log, and returns what a foreground view printed of them."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

from emulated import lines_on_screen

from hive.records import RunDirectory


class Out(io.StringIO):
    """What a view prints; a terminal where stderr is one."""

    def isatty(self) -> bool:
        return sys.stderr.isatty()


def event(run: RunDirectory, kind: str, text: str, **fields: Any) -> None:
    with run.events_file.open("a") as file:
        file.write(json.dumps({"t": 1.7e9, "kind": kind, "text": text, **fields}) + "\n")


def said(out: io.StringIO) -> list[str]:
    """The lines, without their times."""
    lines = lines_on_screen(out.getvalue())[:-1]
    return [line[9:] if line[2:3] == line[5:6] == ":" else line for line in lines]
