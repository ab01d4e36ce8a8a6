"""What a host reports for views and logs of the run: its status, the code of its collectors, and lines of its logs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from hive.errors import WireError
from hive.hosts.files import hosts_folder
from hive.hosts.messages import HostLog, HostStatus
from hive.printable import printable
from hive.records import RunDirectory, open_log
from hive.records.atomic import FILES
from hive.records.documents import json_text
from hive.runtime.process.user_code.code_of_run import CODE

LEVEL_NAMES = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR}
CODE_SHOWN = 1000  # maximum number of modules of a host that are compared
TEXT_SHOWN = 300  # maximum characters of a text of a host in an event


class HostReports:
    """Writes the reports of a host into the directory of the run. note: writes to the run's event log."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.note: Callable[..., None] = lambda kind, text, **fields: None
        self.code: object = None  # what its collectors have imported
        self.logs: dict[str, logging.Logger] = {}

    def status(self, message: HostStatus) -> None:
        """Write the status of the host for views. Raises WireError if it is nested too deeply."""
        if not message.status:
            return
        try:
            self._note_code(message.status.get("code"))
            text = json_text(message.status)
        except RecursionError:
            raise WireError("a status that is nested too deeply") from None
        path = hosts_folder(RunDirectory(self.directory)) / f"{self.name}.json"
        with contextlib.suppress(OSError):  # a full disk: views then show what the head knows
            FILES.write(path.with_suffix(".new"), text.encode())
            path.with_suffix(".new").replace(path)

    def _note_code(self, code: object) -> None:
        """Say once what the collectors of the host were imported from, for the supervisor to compare."""
        if not isinstance(code, dict) or not code or code == self.code:
            return
        self.code = code
        told = [(printable(str(name), TEXT_SHOWN), printable(str(value), TEXT_SHOWN)) for name, value in code.items()]
        self.note(CODE, f"{self.name} has {', '.join(map(' '.join, told[:CODE_SHOWN]))}", code=dict(told[:CODE_SHOWN]))

    def log(self, message: HostLog) -> None:
        """Write a line to the log of an actor. Raises WireError if its name is not that of a file."""
        actor = printable(message.actor, TEXT_SHOWN)
        if "/" in actor or actor.startswith("."):
            raise WireError(f"a log called {actor}")
        log = self.logs.get(actor)
        if log is None:
            try:
                log = self.logs[actor] = open_log(RunDirectory(self.directory).log_file(actor), actor)
            except OSError as error:  # the name is too long, or the disk full
                raise WireError(f"a log called {actor}: {error.strerror}") from None
        level, _, text = message.text.partition(" ")
        log.log(LEVEL_NAMES.get(level, logging.INFO), "%s", text)
