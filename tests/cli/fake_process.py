"""Fakes of a supervisor's process and its connection, and the files of a supervisor that cannot start a run."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

from hive.errors import HiveError, UsageError
from hive.records import RunDirectory


class FakeProcess:
    """A supervisor's process. Each `poll` does the next thing of a script; after the last one it has ended."""

    def __init__(self, *script: Callable[[], object], code: int = 0) -> None:
        self.script = list(script)
        self.code = code
        self.pid = 1
        self.returncode: int | None = None
        self.signals: list[int] = []

    def poll(self) -> int | None:
        if self.returncode is None and self.script:
            self.script.pop(0)()
        elif self.returncode is None:
            self.returncode = self.code
        return self.returncode

    def wait(self) -> int:
        """Run the rest of the script; then the process has ended."""
        while self.poll() is None:
            pass
        return self.code

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def kill(self) -> None:
        self.signals.append(signal.SIGKILL)


class FakeClient:
    """A supervisor that answers with each of `said`, then is gone; with `ctrl_c` the person then interrupts."""

    def __init__(self, *said: dict[str, Any], ctrl_c: bool = False) -> None:
        self.said = list(said)
        self.ctrl_c = ctrl_c

    def status(self) -> dict[str, Any]:
        if not self.said and self.ctrl_c:
            interrupt()
        if not self.said:
            raise UsageError("the supervisor is gone")
        return self.said.pop(0)

    def close(self) -> None:
        """Leaves."""


def nothing() -> None:
    """The process lives on."""


def interrupt() -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


def fail(run: RunDirectory, error: HiveError, traceback: str = "") -> None:
    """Write the file of a supervisor that could not start the run."""
    failure = {"error": str(error), "hint": error.hint, "exit_code": error.exit_code, "traceback": traceback}
    (run.path / "failure.json").write_text(json.dumps(failure))
