"""Every exception hive raises on purpose, in one tree.

    HiveError                       exit code
    ├─ UsageError               2   a wrong command line: unknown command, run, option
    ├─ ConfigError              2   the TOML file; carries every problem found, with its line
    ├─ TopologyError            2   a topology that cannot run: unconnected port, wrong type, too little memory
    ├─ EnvironmentMissing       2   no such environment, or its package is not installed
    ├─ EnvironmentFailed        1   an environment raised, or broke its contract (shape, NaN)
    ├─ NetworkError             1   a network that cannot be built or loaded
    ├─ NotFinite                1   NaN or infinity where a run was told to stop at it, or too often in a row
    ├─ ActorFailed              1   an actor died; carries who, how and what it was doing
    ├─ RemoteError              1   an endpoint of another actor raised; carries the remote type and traceback
    ├─ WireError                1   a message that may not be read
    ├─ VersionGone              1   a board no longer holds the version asked for
    ├─ BadTransition            1   a state machine was given an event that its state does not know: our bug
    ├─ RecordError              1   a file of a run directory that cannot be read or written
    └─ PlatformError            3   not Linux, or the native part is not built

Errors name the thing, the cause and the way out. `str(error)` is the cause in one sentence, lower case, without a
full stop; `hint` is the way out. The command line prints them as `error: ...`, a blank line, `hint: ...`.
"""

from __future__ import annotations

__all__ = [
    "ActorFailed",
    "BadTransition",
    "ConfigError",
    "EnvironmentFailed",
    "EnvironmentMissing",
    "HiveError",
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


class HiveError(Exception):
    """Base of all. `hint` says what to do; `exit_code` is what the command line exits with.

    `permanent`: a second try cannot end otherwise; a run ends at once instead of using up an actor's restarts.
    """

    exit_code = 1
    permanent = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def render(self) -> str:
        """The text a terminal shows: an `error:` line, a blank line and the `hint:` line."""
        text = f"error: {self}"
        return f"{text}\n\nhint: {self.hint}" if self.hint else text


class UsageError(HiveError):
    """A wrong command line, for example a run name that matches nothing."""

    exit_code = 2


class ConfigError(HiveError):
    """A config file with problems. The message already holds all of them, each with its line."""

    exit_code = 2


class TopologyError(HiveError):
    """A topology that cannot run; found before any actor starts."""

    exit_code = 2


class EnvironmentMissing(HiveError):
    """No environment of that id, or the package that brings it is not installed."""

    exit_code = 2


class EnvironmentFailed(HiveError):
    """An environment raised in `reset` or `step`, or returned what its spaces forbid.

    It is permanent where it broke its spaces (a wrong shape, a wrong dtype). `not_finite`: it returned NaN or infinity,
    which a physics engine does once in a million steps; a run is told what to do then.
    """

    def __init__(self, message: str, *, hint: str = "", permanent: bool = False, not_finite: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.permanent = permanent
        self.not_finite = not_finite


class NetworkError(HiveError):
    """A network that cannot be built for these spaces, or weights that do not fit it."""


class NotFinite(HiveError):
    """NaN or infinity in training, where the run was told to stop at the first, or found nothing else any more."""

    permanent = True


class ActorFailed(HiveError):
    """An actor failed for good and took the run with it."""


class RemoteError(HiveError):
    """An endpoint of another actor raised. `remote_type` is the class name there, `remote_traceback` its text."""

    def __init__(self, message: str, *, remote_type: str = "", remote_traceback: str = "") -> None:
        super().__init__(message)
        self.remote_type = remote_type
        self.remote_traceback = remote_traceback


class WireError(HiveError):
    """A message that may not be read: of the wrong type, too large, torn. Counted and dropped, never fatal."""


class VersionGone(HiveError):
    """A board has overwritten the version asked for. Take a newer one."""


class BadTransition(HiveError):
    """A state machine met an event that its state does not know. Carries the story: the last transitions."""


class RecordError(HiveError):
    """A file of a run directory is missing, torn or not ours."""


class PlatformError(HiveError):
    """hive cannot run here: another operating system, or the native part is not built."""

    exit_code = 3
