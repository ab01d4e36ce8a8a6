"""Starts a run: everything from the command until the supervisor listens, and the errors of a failed start.

    clear_failure -> start -> connect -> the view of hive.cli.parts.launch, or with -d the end of the command
                └─ Ctrl-C: abort_start                         └─ Ctrl-C, while it is starting: abort_start

SIGTERM, and SIGHUP before the view, do what Ctrl-C does (hive.cli.parts.interrupts).

`hive.cli.parts.new_run` has made the run's directory before.

If the command is interrupted while the run is still starting, it ends the run. After the start the run is independent
of the command. The supervisor has its own session, so Ctrl-C in the terminal never reaches it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import MutableMapping
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from hive.cli.parts.early_start import hand_over
from hive.cli.parts.interrupts import number_of
from hive.config.values import SHOWN_LENGTH
from hive.errors import ActorFailed, ConfigError, HiveError, RecordError
from hive.printable import printable
from hive.records import (
    RunDirectory,
    Summary,
    read_document,
    read_run_facts,
)
from hive.records.crash import StartFailure
from hive.records.documents import failure
from hive.records.failed_starts import put_away, ran
from hive.records.jsonl import last_lines
from hive.runtime.actor.error_location import user_frames
from hive.runtime.process.command import start_supervisor
from hive.runtime.process.spawning import SUPERVISOR_OUTPUT
from hive.runtime.process.stop_signals import REASONS
from hive.runtime.run.control import ControlClient, OtherProtocol, open_run

RETRY_S = 0.01  # interval between two attempts to connect to a starting supervisor; a start takes about 100 attempts
OUTPUT_LINES = 20  # lines of a supervisor's output that are searched for its error
ROOM_BYTES = 1 << 16  # less free space than the files of a run that starts


def start(directory: RunDirectory) -> subprocess.Popen[bytes]:
    """Start the supervisor's process, or use the one that was started early."""
    if (early := hand_over(directory.path, directory.logs)) is not None:
        return early
    return start_supervisor(directory.path, directory.logs)


def connect(directory: RunDirectory, process: subprocess.Popen[bytes]) -> ControlClient:
    """Wait until the supervisor listens, and return a client. Raises the error of a failed start."""
    while True:
        if process.poll() is not None:
            raise_failure(directory, process.returncode, process.pid)
        try:
            return open_run(directory)
        except HiveError as error:
            if isinstance(error, OtherProtocol) and read_run_facts(directory).pid == process.pid:
                raise  # not an old address of an earlier supervisor of this run, which a resumed run still has
            time.sleep(RETRY_S)  # still starting; poll() above detects a failed start


def run_quietly(directory: RunDirectory) -> None:
    """Start the run and wait for its end without printing; Ctrl-C ends the run as in `hive up`.

    Raises the error of a failed start.
    """
    clear_failure(directory)
    process, times, connected = start(directory), Counter[int](), False
    while True:
        try:
            if not connected:  # once: a run that ended while Ctrl-C was handled is not one that failed to start
                connect(directory, process).close()
                connected = True
            process.wait()
            break
        except KeyboardInterrupt as interrupt:
            ask_to_end(directory, process, number_of(interrupt), times)
    if not began(directory):
        raise_failure(directory, process.returncode, process.pid)


def began(directory: RunDirectory) -> bool:
    """Whether an ended run had started successfully; not so if it failed before it had collected anything."""
    if not directory.summary_file.exists() or directory.failure_file.exists():
        return False
    return Summary.read(directory.summary_file).state != "failed" or ran(directory)


def ask_to_end(
    directory: RunDirectory, process: subprocess.Popen[bytes], number: int, times: MutableMapping[int, int]
) -> None:
    """Ask the run to end because of a signal to this command; the second one of a kind ends it at once.

    times: how often each signal was received, which is updated. The request goes through the control socket, with the
    count of this command: the supervisor may have received the same signal, which is then one request and not two. It
    goes as a signal where no supervisor listens yet, or its socket is gone.
    """
    times[number] = times.get(number, 0) + 1
    reason = REASONS.get(signal.Signals(number), signal.Signals(number).name)
    try:
        with closing(open_run(directory)) as client:
            client.down(reason, now=times[number] > 1)
    except HiveError:
        process.send_signal(number if number in REASONS else signal.SIGTERM)


def abort_start(directory: RunDirectory, process: subprocess.Popen[bytes], interrupt: KeyboardInterrupt) -> int:
    """End a run that is still starting; a second signal kills its supervisor. Return the exit code.

    The directory of a run that never began is removed.
    """
    number = number_of(interrupt)
    name = REASONS.get(signal.Signals(number), signal.Signals(number).name)
    print(f"stopping {directory.name}, which was still starting - {name} again to kill it", file=sys.stderr)
    try:
        ask_to_end(directory, process, number, {})
        process.wait()
    except KeyboardInterrupt:
        process.kill()
        process.wait()
    discard_unbegun(directory)
    return 128 + number


def discard_unbegun(directory: RunDirectory) -> bool:
    """Remove the directory of a run that ended before its actors began, and return whether it was removed.

    A run that ended in order keeps it, if it has anything: events of actors, checkpoints or a crash report.
    """
    if not ran(directory):
        discard(directory)
    return not directory.path.exists()


def clear_failure(directory: RunDirectory) -> None:
    """Remove the error of an earlier failed start, which must not be reported for this one. Raises RecordError."""
    path = directory.failure_file
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise failure("remove", path, error) from error


def raise_failure(directory: RunDirectory, code: int, pid: int) -> NoReturn:
    """Raise the error of a run that ended without a successful start (see `began`), and free its name.

    A run that was lost keeps its directory, as does one that was resumed.
    """
    if directory.failure_file.exists():
        raise _stored_failure(directory)
    summary = Summary.read(directory.summary_file) if directory.summary_file.exists() else None
    if summary is not None and summary.state == "failed" and summary.error:
        text, _, hint = summary.error.partition("\n\nhint: ")  # an actor failed, or a full disk has room for this only
        raise failed_start(directory, ActorFailed(text, hint=hint))
    if _had_begun(directory, pid):
        raise ActorFailed(
            f"the supervisor ended with code {code} without a summary; the run {directory.name} is lost",
            hint=f"its files are in {directory.path}",
        )
    output = directory.logs / SUPERVISOR_OUTPUT
    cause = _last_line(output) or _no_room(directory)
    error = ActorFailed(
        f"the supervisor ended with code {code} before the run began{f': {cause}' if cause else ''}",
        hint=f"its output is in {output}",
    )
    raise failed_start(directory, error)


def _stored_failure(directory: RunDirectory) -> HiveError:
    """Return the error that the supervisor has left; a traceback of user code is kept as a crash report."""
    stored = read_document(directory.failure_file, StartFailure)
    error = HiveError(f"{stored.error}\n{user_frames(stored.traceback)}".rstrip(), hint=stored.hint)
    error.exit_code = stored.exit_code
    mistake = error.exit_code == ConfigError.exit_code
    if stored.traceback and not mistake and str(directory.crashes) not in error.hint:  # else that names a report
        crash = directory.crash_file("topology", 1)
        crash.write_text(stored.traceback)
        error.hint = error.hint or f"the traceback is in {crash}"
    return failed_start(directory, error)


def failed_start(directory: RunDirectory, error: HiveError) -> HiveError:
    """Free the name of a run that could not start, unless it ran before, and return its error.

    Nothing is left of a mistake in the config. After other errors the files are put away, and the hint names the place.
    """
    if ran(directory):
        return error
    if error.exit_code == ConfigError.exit_code and not any(directory.crashes.iterdir()):
        directory.remove()
        return error
    place = put_away(directory)
    error.args = (str(error).replace(str(directory.path), str(place)),)
    error.hint = error.hint.replace(str(directory.path), str(place))
    if str(place) not in f"{error}{error.hint}":
        error.hint = "; ".join(filter(None, (error.hint, f"the files of this start are in {place}")))
    return error


def _had_begun(directory: RunDirectory, pid: int) -> bool:
    """Whether the supervisor `pid` has marked the run as running; a resumed run has the mark of an earlier one."""
    try:
        return read_run_facts(directory).pid == pid
    except RecordError:
        return False


def _last_line(output: Path) -> str:
    """Return the last line of a process's output, which names the error after a traceback; "" if there is none."""
    lines = b"\n".join(last_lines(output, OUTPUT_LINES)).decode(errors="replace").split("\n")
    return next((printable(line.strip(), SHOWN_LENGTH) for line in reversed(lines) if line.strip()), "")


def _no_room(directory: RunDirectory) -> str:
    """Return the cause of a failed start that had no room for its error; "" if the disk is not full."""
    return f"the disk of {directory.path.parent} is full" if shutil.disk_usage(directory.path).free < ROOM_BYTES else ""


def discard(directory: RunDirectory) -> None:
    """Remove the directory of a run that never began, unless it has a crash report."""
    if not any(directory.crashes.iterdir()):
        directory.remove()
