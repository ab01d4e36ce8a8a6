"""Starts a run for a command, ends one that is still starting, and reports why a start failed.

    clear_failure -> start -> connect -> the run is independent of the command
                                └─ the supervisor exits: raise_failure
                                └─ Ctrl-C: abort_start ends the run and removes its directory

`hive.launch.new_run` makes the run's directory before `start`. The supervisor has its own session, so Ctrl-C in the
terminal reaches only the command. SIGTERM, and SIGHUP before the view, have the effect of Ctrl-C here
(hive.launch.interrupts).

Three questions about a run that has ended are different:

    _marked_running     did this supervisor reach the state `running`? Read from run.json
    began               did the run start successfully? Read from its summary and failure.json
    has_results         has any start of the run produced anything? Then its directory stays
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, MutableMapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

from hive.config.values import SHOWN_LENGTH
from hive.errors import ActorFailed, ConfigError, HiveError, RecordError
from hive.launch.early_start import hand_over
from hive.launch.interrupts import deferred_interrupts, number_of
from hive.printable import printable
from hive.records import RunDirectory, Summary, read_document, read_run_facts, write_bytes
from hive.records.crash import StartFailure
from hive.records.documents import failure
from hive.records.failed_starts import has_results, put_away
from hive.records.jsonl import last_lines
from hive.records.owner import descriptor_of, give_up
from hive.runtime.actor.error_location import signal_name, user_frames
from hive.runtime.process.command import start_supervisor
from hive.runtime.process.spawning import SUPERVISOR_OUTPUT
from hive.runtime.process.stop_signals import REASONS
from hive.runtime.run.control import ControlClient, OtherProtocol, open_run
from hive.runtime.run.main_thread import LOOK_S as MAIN_THREAD_S
from hive.runtime.run.main_thread import MainThread, in_main_thread, raised_in_program

RETRY_S = 0.01  # interval between two attempts to connect to a starting supervisor; a start takes about 100 attempts
OUTPUT_LINES = 20  # lines of a supervisor's output that are searched for its error
ROOM_BYTES = 1 << 16  # a disk with less free space is full: the first files of a run need more


def start(directory: RunDirectory) -> subprocess.Popen[bytes]:
    """Start the supervisor's process, or use the one that was started early, and pass the run's lock on to it."""
    lock = descriptor_of(directory)
    try:
        if (early := hand_over(directory.path, directory.logs, lock)) is not None:
            return early
        return start_supervisor(directory.path, directory.logs, lock)
    finally:
        give_up(directory, clear=False)


def connect(directory: RunDirectory, process: subprocess.Popen[bytes]) -> ControlClient:
    """Wait until the supervisor listens, and return a client. Raises the error of a failed start."""
    while True:
        if process.poll() is not None:
            raise_failure(directory, process.returncode, process.pid)
        try:
            return open_run(directory)
        except HiveError as error:
            if isinstance(error, OtherProtocol) and read_run_facts(directory).pid == process.pid:
                raise
            # The supervisor does not listen yet; or it is resuming, and the address is still that of an earlier one.
            time.sleep(RETRY_S)


def run_quietly(directory: RunDirectory, signals: MutableMapping[int, int]) -> None:
    """Start the run and wait for its end without printing; Ctrl-C and SIGTERM end the run as in `hive up`.

    signals: how often each signal asked the run to end; updated. Raises the error of a failed start, and Interrupted at
    SIGHUP, which leaves a run that has begun.
    """
    clear_failure(directory)
    main, connected = MainThread(), False
    with deferred_interrupts():
        process = start(directory)
    with saved_first(directory, process):
        while True:
            try:
                if not connected:  # `connect` would raise for a run that has ended while Ctrl-C was handled
                    connect(directory, process).close()
                    connected = True
                _wait(process, main)
                break
            except KeyboardInterrupt as interrupt:
                number = number_of(interrupt)
                if connected and number == signal.SIGHUP:
                    leave(process)
                    raise
                ask_to_end(directory, process, number, signals)
    if signals and discard_unbegun(directory):
        return
    if not began(directory):
        raise_failure(directory, process.returncode, process.pid)


def _wait(process: subprocess.Popen[bytes], main: MainThread) -> None:
    """Wait until the process has exited. Raises KeyboardInterrupt in a thread of a program that Ctrl-C is ending."""
    if in_main_thread():
        process.wait()
        return
    while True:
        try:
            process.wait(MAIN_THREAD_S)
            return
        except subprocess.TimeoutExpired:
            if main.interrupted():
                raise KeyboardInterrupt from None


def leave(process: subprocess.Popen[bytes]) -> None:
    """Have the run of a script continue after the end of this process."""
    process.send_signal(signal.SIGHUP)  # which leaves a run running
    process.returncode = 0  # so that Popen does not warn about it


@contextmanager
def saved_first(directory: RunDirectory, process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Have the run save and end before an exception leaves the block, such as one that a handler of a script raised."""
    try:
        yield
    except BaseException as error:
        save_first(directory, process, error)
        raise


def save_first(directory: RunDirectory, process: subprocess.Popen[bytes], error: BaseException) -> None:
    """Have the run save and end because of an exception in a script; a signal meanwhile ends it at once."""
    at_once = False
    while process.returncode is None and process.poll() is None:
        try:
            with closing(open_run(directory)) as client:
                client.down(raised_in_program(error), now=at_once)
        except HiveError:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait()
        except KeyboardInterrupt:
            at_once = True


def began(directory: RunDirectory) -> bool:
    """Return whether an ended run had started successfully: it did not fail before it had collected anything."""
    if not directory.summary_file.exists() or directory.failure_file.exists():
        return False
    return Summary.read(directory.summary_file).state != "failed" or has_results(directory)


def ask_to_end(
    directory: RunDirectory, process: subprocess.Popen[bytes], number: int, counts: MutableMapping[int, int]
) -> None:
    """Request the end of the run after a signal to this command; the second signal of a kind ends the run at once.

    number: of the signal. counts: how often this command received each signal; updated. The request goes through the
    control socket, because the supervisor may have received the same signal, and would count a further one as the
    second. If no supervisor listens, the request is sent as a signal.
    """
    counts[number] = counts.get(number, 0) + 1
    try:
        with closing(open_run(directory)) as client:
            client.down(signal_text(number), now=counts[number] > 1)
    except HiveError:
        process.send_signal(number if number in REASONS else signal.SIGTERM)


def signal_text(number: int) -> str:
    """Return a signal as reports name it: `Ctrl-C`, `SIGTERM`."""
    return REASONS.get(signal.Signals(number), signal.Signals(number).name)


def abort_start(directory: RunDirectory, process: subprocess.Popen[bytes], interrupt: KeyboardInterrupt) -> int:
    """End a run that is still starting, and return the exit code of the command. A second signal kills the supervisor.

    The directory of a run without results is removed.
    """
    number = number_of(interrupt)
    again = f"{signal_text(number)} again to kill it"
    print(f"stopping {directory.name}, which was still starting - {again}", file=sys.stderr)
    try:
        ask_to_end(directory, process, number, {})
        process.wait()
    except KeyboardInterrupt:
        process.kill()
        process.wait()
    discard_unbegun(directory)
    return 128 + number


def discard_unbegun(directory: RunDirectory) -> bool:
    """Remove the directory of an ended run without results or crash reports; return whether it is gone."""
    if not has_results(directory):
        discard(directory)
    return not directory.path.exists()


def discard(directory: RunDirectory) -> None:
    """Remove the directory of a run that has not begun, unless it has a crash report."""
    if not any(directory.crashes.glob("*")):
        directory.remove()


def clear_failure(directory: RunDirectory) -> None:
    """Remove the error of an earlier failed start, which must not be reported for this one. Raises RecordError."""
    path = directory.failure_file
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise failure("remove", path, error) from error


def raise_failure(directory: RunDirectory, code: int, pid: int) -> NoReturn:
    """Raise the error of a run that ended without a successful start (see `began`), and free its name.

    code, pid: the exit code of its supervisor, and its process id. The error is that of the first place that has one:
    failure.json, summary.json, the supervisor's output. A run with results keeps its name and directory.
    """
    if not directory.path.exists():
        raise RecordError(
            f"`{directory.path}` was removed or renamed during the run, which ended for that reason",
            hint="if it was renamed, `hive resume` with its new path continues it from its last checkpoint",
        )
    if directory.failure_file.exists():
        raise _stored_failure(directory)
    summary = Summary.read(directory.summary_file) if directory.summary_file.exists() else None
    if summary is not None and summary.state == "failed" and summary.error:
        # An actor failed; or the disk was too full for failure.json, and the summary holds text and hint of the error.
        text, _, hint = summary.error.partition("\n\nhint: ")
        raise failed_start(directory, ActorFailed(text, hint=hint))
    killed = f"was killed ({signal_name(-code)})" if code < 0 else ""
    if _marked_running(directory, pid):
        raise ActorFailed(
            f"the supervisor {killed or f'ended with code {code} without a summary'}; the run {directory.name} is lost",
            hint=f"to continue it: hive resume {directory.name}; its files are in {directory.path}",
        )
    output = directory.logs / SUPERVISOR_OUTPUT
    cause = _last_line(output) or _no_room(directory)
    error = ActorFailed(
        f"the supervisor {killed or f'ended with code {code}'} before the run began{f': {cause}' if cause else ''}",
        hint=f"its output is in {output}",
    )
    raise failed_start(directory, error)


def _stored_failure(directory: RunDirectory) -> HiveError:
    """Return the error that the supervisor has left; a traceback of user code is kept as a crash report."""
    stored = read_document(directory.failure_file, StartFailure)
    error = HiveError(f"{stored.error}\n{user_frames(stored.traceback)}".rstrip(), hint=stored.hint)
    error.exit_code = stored.exit_code
    is_mistake = error.exit_code == ConfigError.exit_code  # of the user: needs no crash report
    has_report = str(directory.crashes) in error.hint
    if stored.traceback and not is_mistake and not has_report:
        crash = directory.crash_file("topology", 1)
        write_bytes(crash, stored.traceback.encode(errors="backslashreplace"))
        error.hint = error.hint or f"the traceback is in {crash}"
    return failed_start(directory, error)


def failed_start(directory: RunDirectory, error: HiveError) -> HiveError:
    """Free the name of a run that could not start, unless it has results, and return its error.

    After a mistake in the config the directory is removed. After other errors it is moved away (`put_away`); then paths
    in the error are replaced, and an error without a hint names the new place.
    """
    if has_results(directory):
        return error
    if error.exit_code == ConfigError.exit_code and not any(directory.crashes.glob("*")):
        directory.remove()
        return error
    give_up(directory)  # if it is of a run in this process
    place = put_away(directory)
    error.args = (str(error).replace(str(directory.path), str(place)),)
    error.hint = error.hint.replace(str(directory.path), str(place)) or f"the files of this start are in {place}"
    return error


def _marked_running(directory: RunDirectory, pid: int) -> bool:
    """Return whether the supervisor `pid` has marked the run as running; the mark may be that of an earlier one."""
    try:
        return read_run_facts(directory).pid == pid
    except RecordError:
        return False


def _last_line(output: Path) -> str:
    """Return the last line of a process's output, which names the error after a traceback; "" if there is none."""
    lines = b"\n".join(last_lines(output, OUTPUT_LINES)).decode(errors="replace").split("\n")
    return next((printable(line.strip(), SHOWN_LENGTH) for line in reversed(lines) if line.strip()), "")


def _no_room(directory: RunDirectory) -> str:
    """Return the cause of a failed start that left no output because the disk is full; "" if it is not full."""
    return f"the disk of {directory.path.parent} is full" if shutil.disk_usage(directory.path).free < ROOM_BYTES else ""
