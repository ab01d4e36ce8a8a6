"""Find the line of user code that raised an error, or that is being executed.

    mine.py:7     the innermost line that belongs neither to hive nor to a library; a line of an installed package is
                  reported only if there is no other

For a process that a signal killed, `signal_name` is all that is known.
"""

from __future__ import annotations

import inspect
import os
import re
import signal
import sys
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from hive.paths import SESSION_FILE, current_folder
from hive.runtime.actor.interrupted import Interrupted

HIVE = f"{Path(__file__).parents[2]}{os.sep}"
STANDARD_LIBRARY = f"{sysconfig.get_path('stdlib')}{os.sep}"
TEXT_CHARACTERS = 4_000  # maximum characters of an error's text, far below the limit of a message
TRACE_CHARACTERS = 100_000  # last characters of a traceback: the end of a deep recursion names the error
USER_FRAMES = 3  # frames of user code that are shown with an error; the crash report has all
FRAME = re.compile(r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d+).*\n(?:    .*\n)*', re.MULTILINE)
CHAINED = re.compile(r"^(?:The above exception was|During handling of the above).*$", re.MULTILINE)
USER = 2  # rank of user code (see `_foreign`)
NO_TERMINAL = (
    "the processes of a run have no terminal: with inline=True, or `hive up --inline`, all of it runs in your program, "
    "where breakpoints and input() work"
)
DEPENDENCIES = ("gymnasium", "numpy", "torch")  # packages that hive installs: the caller of their line made the mistake


def place_of(error: BaseException) -> str:
    """Return the line of user code that raised `error`, as `mine.py:7`; "" if all lines belong to hive or libraries."""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append((error.filename, error.lineno or 1))
    return _last_foreign(lines)


def place_of_function(function: Callable[..., object]) -> str:
    """Return where a function of user code begins, as `mine.py:7`; "" as in `place_of`, and for other callables."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return _last_foreign([] if code is None else [(code.co_filename, code.co_firstlineno)])


def place_in(frame: FrameType) -> str:
    """Return the line of user code that `frame`, the innermost of its thread, is executing; "" as in `place_of`."""
    return _last_foreign([(at.f_code.co_filename, line) for at, line in traceback.walk_stack(frame)][::-1])


def place_in_dump(text: str) -> str:
    """Return the line of user code in the last stack that faulthandler printed for a crash; "" as in `place_of`."""
    _, _, stack = text.rpartition("Current thread ")
    lines = [(match["file"], int(match["line"])) for match in FRAME.finditer(stack.partition("\n\n")[0])]
    return _last_foreign(lines[::-1])


def describe(error: BaseException) -> tuple[str, str, str]:
    """Return the type, text and traceback of an error, shortened to fit a message."""
    text = _text(error) or type(error).__name__
    return type(error).__name__, text[:TEXT_CHARACTERS], "".join(traceback.format_exception(error))[-TRACE_CHARACTERS:]


def named(error: BaseException) -> str:
    """Describe an error with its line of user code: `KeyError: 'mine' (mine.py:7)`."""
    what, place = f"{type(error).__name__}: {_text(error)}".removesuffix(": "), place_of(error)
    return f"{what} ({place})" if place else what


def explained(error: BaseException) -> str:
    """Return an error of user code in one line: its text, line, notes and what hive knows of it."""
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    return " ".join("; ".join(filter(None, [named(error), *notes, terminal_hint(error)])).split())


def _text(error: BaseException) -> str:
    """Return the text of an error; of an assertion without one, its statement."""
    if str(error) or not isinstance(error, AssertionError) or error.__traceback__ is None:
        return str(error)
    statement = traceback.extract_tb(error.__traceback__)[-1].line or ""
    return statement if statement.startswith("assert") else ""


def terminal_hint(error: BaseException) -> str:
    """Return the hint for an error of code that wants a terminal, such as `breakpoint()`; "" for other errors."""
    wants_one = type(error).__name__ == "BdbQuit" or (isinstance(error, EOFError) and "reading a line" in str(error))
    return NO_TERMINAL if wants_one else ""


def is_interrupt(error: BaseException) -> bool:
    """Return whether the user may have caused `error` with Ctrl-C, so that it must end this program.

    The processes of a run ignore SIGINT or handle it themselves, so there only user code can raise KeyboardInterrupt.
    """
    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, Interrupted) or (default and isinstance(error, KeyboardInterrupt))


def is_own(error: BaseException) -> bool:
    """Return whether code of the running task raised `error` itself: not Ctrl-C, and not a cancellation of the task."""
    asyncio = sys.modules.get("asyncio")  # it takes 3 MB, which a process without actors does not need
    if asyncio is not None and isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    return not isinstance(error, GeneratorExit) and not is_interrupt(error)  # GeneratorExit: the loop was closed


def source_lines(trace: str) -> tuple[str, ...]:
    """Return `file:line` of every frame of a formatted traceback, with those of its causes."""
    return tuple(f"{match['file']}:{match['line']}" for match in FRAME.finditer(trace))


def user_frames(trace: str) -> str:
    """Return the last USER_FRAMES frames of user code in a formatted traceback, as Python prints them; "" without any.

    The cause of an error is printed first, so its frames have precedence over those of errors that it led to.
    """
    for part in CHAINED.split(trace):
        frames = [match[0].rstrip() for match in FRAME.finditer(part) if _foreign(match["file"]) == USER]
        if frames:
            return "\n".join(frames[-USER_FRAMES:])
    return ""


def signal_name(number: int) -> str:
    """Return the name of a signal, `SIGKILL`, or `signal 40` for the real-time signals, most of which have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_foreign(lines: Sequence[tuple[str, int]]) -> str:
    file, line = max(reversed(lines), key=lambda at: _foreign(at[0]), default=("", 0))
    if not _foreign(file):
        return ""
    path, here = Path(file), current_folder()
    if path.name == SESSION_FILE:  # the run may be moved, and its directory is named beside
        return f"{SESSION_FILE}:{line}"
    return f"{path.relative_to(here) if here and path.is_relative_to(here) else path}:{line}"


def _foreign(file: str) -> int:
    """Rank a source file: 2 user code, 1 a package that the user installed, 0 hive, its dependencies and Python."""
    if not file or file.startswith(("<", HIVE)):
        return 0
    _, _, package = file.partition(f"-packages{os.sep}")  # site-packages; in Debian also dist-packages
    if package:
        return int(package.partition(os.sep)[0] not in DEPENDENCIES)
    return 0 if file.startswith(STANDARD_LIBRARY) else USER
