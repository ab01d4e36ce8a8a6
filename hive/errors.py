"""The tree of hive's exceptions.

    HiveError                       exit code
    ├─ UsageError               2   a wrong command line: unknown command, run, option
    ├─ ConfigError              2   the TOML file; carries every problem found, with its line
    ├─ TopologyError            2   a topology that cannot run: unconnected port, wrong type, too little memory
    ├─ EnvironmentMissing       2   an unknown environment, or its package is not installed
    ├─ EnvironmentFailed        1   an environment raised, or violated its contract (shape, NaN)
    ├─ CallbackFailed           1   a callback of another process raised, or that process has ended
    ├─ NetworkError             1   a network that cannot be built or loaded
    ├─ NotFinite                1   NaN or infinity in training, and the config does not allow to continue
    ├─ ActorFailed              1   an actor failed; the text names it, the cause and its phase
    ├─ RemoteError              1   an endpoint of another actor raised; carries the remote type and traceback
    ├─ WireError                1   an invalid message
    ├─ HostLost                 1   a host is silent, or its part of the run has ended
    ├─ VersionGone              1   a board no longer holds the requested version
    ├─ BadTransition            1   a state machine received an event that its state does not allow: a bug in hive
    ├─ RecordError              1   a file of a run directory that cannot be read or written
    └─ PlatformError            3   not Linux, or the native part is not built
       └─ MemoryShort           3   this machine has too little memory for the run

An error names the object, the cause and the remedy. `str(error)` is the cause in one sentence, lower case, without a
full stop; `hint` is the remedy. The command line prints them as `error: ...`, a blank line, `hint: ...`. In a Python
traceback the hint is a note below the error (PEP 678).
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from hive.printable import printable_lines

__all__ = [
    "ActorFailed",
    "BadTransition",
    "CallbackFailed",
    "ConfigError",
    "EnvironmentFailed",
    "EnvironmentMissing",
    "HiveError",
    "HostLost",
    "MemoryShort",
    "NetworkError",
    "NotFinite",
    "PlatformError",
    "RecordError",
    "RemoteError",
    "TopologyError",
    "UsageError",
    "VersionGone",
    "WireError",
]


P = ParamSpec("P")
T = TypeVar("T")

HOME = os.path.dirname(os.path.abspath(__file__)) + os.sep  # of the package

IN_SESSION = re.compile(r"`[^`\n]*/session\.py:(?=[A-Za-z_])")
"""How a message names a class of the program that started a run: by the file of the run; its name says as much."""


class HiveError(Exception):
    """Base of all exceptions of hive. `hint` is the remedy; `exit_code` is the exit status of the command line.

    `permanent`: the error would recur after a restart, so the run ends at once.
    """

    exit_code = 1
    permanent = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(IN_SESSION.sub("`", message))
        self._hint = ""
        self.hint = hint

    @property
    def hint(self) -> str:
        """The remedy, or ""."""
        return self._hint

    @hint.setter
    def hint(self, text: str) -> None:
        others = [note for note in getattr(self, "__notes__", ()) if note != f"hint: {self._hint}"]
        self._hint = text
        self.__notes__ = [f"hint: {text}", *others] if text else others

    def render(self) -> str:
        """Return the text for a terminal: an `error:` line, a blank line and the `hint:` line."""
        text = f"error: {printable_lines(str(self))}"
        return f"{text}\n\nhint: {printable_lines(self.hint)}" if self.hint else text


class UsageError(HiveError):
    """A wrong command line, for example a run name that matches nothing."""

    exit_code = 2


class ConfigError(HiveError):
    """A config file with problems. The message lists all of them, each with its line."""

    exit_code = 2


class TopologyError(HiveError):
    """A topology that cannot run, or a wrong use of its ports and handles."""

    exit_code = 2


class EnvironmentMissing(HiveError):
    """An unknown environment id, or the package that provides it is not installed."""

    exit_code = 2


class EnvironmentFailed(HiveError):
    """An environment raised in `reset` or `step`, or returned a value outside its spaces.

    A wrong shape or dtype is permanent. `not_finite`: the environment returned NaN or infinity, which happens to
    physics engines once in a million steps; the config says whether the run continues.
    """

    def __init__(self, message: str, *, hint: str = "", permanent: bool = False, not_finite: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.permanent = permanent
        self.not_finite = not_finite


class CallbackFailed(HiveError):
    """A callback of another process raised, or that process has ended."""


class NetworkError(HiveError):
    """A network that cannot be built for these spaces, or weights that do not fit it."""


class NotFinite(HiveError):
    """NaN or infinity in training: the first if the config says to stop at it, or too many in a row."""

    permanent = True


class ActorFailed(HiveError):
    """An actor failed without being restarted, which ends the run or fails a call to it."""


class RemoteError(HiveError):
    """An endpoint of another actor raised. `remote_type` is the name of the exception's class, beside its traceback."""

    def __init__(self, message: str, *, remote_type: str = "", remote_traceback: str = "") -> None:
        super().__init__(message)
        self.remote_type = remote_type
        self.remote_traceback = remote_traceback


class WireError(HiveError):
    """An invalid message: of an unexpected type, too large or truncated. It is counted and dropped, never fatal."""


class VersionGone(HiveError):
    """A board has overwritten the requested version. Read a newer one."""


class HostLost(HiveError):
    """A host is silent, or its part of the run has ended. The run continues, and the host may join it again."""


class BadTransition(HiveError):
    """A state machine received an event that its state does not allow. The text lists the last transitions."""


class RecordError(HiveError):
    """A file of a run directory is missing, truncated or not written by hive."""


class PlatformError(HiveError):
    """hive cannot run here: another operating system, or the native part is not built."""

    exit_code = 3


class MemoryShort(PlatformError):
    """The run does not fit the memory that is free here. It is raised before anything large is allocated."""


class BriefErrors:
    """Leaves the frames of hive out of the tracebacks of errors whose text says all, where programs call it.

    These are hive's own errors, Ctrl-C, which ends a run and no line of hive, and a ValueError or TypeError that hive
    raises itself, for a wrong argument. inline: a run takes place in this process, and all is kept.
    """

    def __init__(self, inline: bool = False) -> None:
        self.inline = inline

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.inline or error is None:
            return
        if isinstance(error, HiveError | KeyboardInterrupt) or _is_of_argument(error):
            error.__traceback__ = None
            error.__suppress_context__ = True


def _is_of_argument(error: BaseException) -> bool:
    """Whether hive itself raised an error for an argument."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    own = trace is not None and trace.tb_frame.f_code.co_filename.startswith(HOME)
    return own and isinstance(error, ValueError | TypeError)


def brief(function: Callable[P, T]) -> Callable[P, T]:
    """Make the errors of a public function brief (`BriefErrors`)."""

    @functools.wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> T:
        with BriefErrors():
            return function(*given, **named)

    return call
