"""Blame: which line of whose code raised.

mine.py:7     the last line on the way to the error that is of no library and not of hive; in an installed package
              only where there is no other

The same says where code is that does not come back. Of a process that a signal ended, the signal is all there is.
"""

from __future__ import annotations

import os
import signal
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

__all__ = ["HIVE", "named", "place_in", "place_of", "signal_name"]

HIVE = f"{Path(__file__).parents[1]}{os.sep}"
STANDARD_LIBRARY = f"{sysconfig.get_path('stdlib')}{os.sep}"
BROUGHT_ALONG = ("gymnasium", "numpy", "torch")  # with hive: what they raise was called by somebody else


def place_of(error: BaseException) -> str:
    """`mine.py:7`: the last line outside of hive, of an installed package only where there is no other; or nothing."""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append((error.filename, error.lineno or 1))
    return _last_foreign(lines)


def place_in(frame: FrameType) -> str:
    """The same of what is being executed, from its innermost frame."""
    return _last_foreign([(at.f_code.co_filename, line) for at, line in traceback.walk_stack(frame)][::-1])


def named(error: BaseException) -> str:
    """`KeyError: 'mine' (mine.py:7)`: what an error is, and whose line raised it."""
    what, place = f"{type(error).__name__}: {error}".removesuffix(": "), place_of(error)
    return f"{what} ({place})" if place else what


def signal_name(number: int) -> str:
    """`SIGKILL`. Of the real-time signals only the first and the last have names: `signal 40`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_foreign(lines: Sequence[tuple[str, int]]) -> str:
    file, line = max(reversed(lines), key=lambda at: _foreign(at[0]), default=("", 0))
    if not _foreign(file):
        return ""
    path, here = Path(file), Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"


def _foreign(file: str) -> int:
    """How far a source file is from hive: 2 a user's own, 1 a package that a user has chosen, 0 all others."""
    if not file or file.startswith(("<", HIVE)):
        return 0
    _, _, package = file.partition(f"-packages{os.sep}")  # site-packages; in Debian also dist-packages
    if package:
        return int(package.partition(os.sep)[0] not in BROUGHT_ALONG)
    return 0 if file.startswith(STANDARD_LIBRARY) else 2
