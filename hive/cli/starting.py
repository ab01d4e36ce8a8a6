"""The start of a run: from the command until its supervisor listens, and what is said when it never does.

    new_run -> forget_failure -> start -> connect -> the view of hive.cli.up, or with -d the end of the command
                          └─ Ctrl-C: give_up                         └─ Ctrl-C, while it is starting: give_up

A run that is still starting belongs to the command that started it, which ends it when it is interrupted; a run that is
running belongs to nobody here. The supervisor is a session of its own, so Ctrl-C in the terminal never reaches it.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hive.config import Config, absolute, load_config, render
from hive.errors import ActorFailed, ConfigError, HiveError
from hive.native import check_native
from hive.records import RunDirectory, home_folder, list_checkpoints, read_run_facts, write_bytes
from hive.records.documents import failure
from hive.runtime.control import ControlClient, OtherProtocol, open_run

__all__ = [
    "began",
    "connect",
    "discard",
    "forget_failure",
    "give_up",
    "interrupts_held",
    "new_run",
    "raise_failure",
    "run_quietly",
    "start",
]

LISTEN_S = 0.01  # between two tries to reach a supervisor that is starting, which takes some hundred of them
STOPPED_AT_ONCE = 130  # as shells say of what Ctrl-C ended


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C in here comes at its end: what is started must be known before it can be ended."""
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        signal.raise_signal(signal.SIGINT)


def new_run(given: Path | None, overrides: list[str], content: str = "") -> RunDirectory:
    """The directory of a new run, with its config as given and as resolved.

    Raises ConfigError, RecordError; PlatformError where its processes could not begin.

    Without a file `content` is the config, and the run has the name of its topology's file if it is given no other.
    """
    text = None if given is not None else content

    def load(more: list[str]) -> Config:
        return load_config(given or "run.toml", [*overrides, *more], text=text)

    config = load([])
    more: list[str] = []  # what means the same from wherever it is loaded
    if config.run.topology is not None:
        more.append(f"run.topology={json.dumps(absolute(config.run.topology))}")
        if given is None and config.origin("run.name") == "default":
            more.append(f"run.name={json.dumps(Path(config.run.topology.partition(':')[0]).stem)}")
    if config.run.init_from is not None and Path(config.run.init_from).exists():
        more.append(f"run.init_from={json.dumps(str(Path(config.run.init_from).resolve()))}")
    config = load(more) if more else config
    check_native()
    directory = RunDirectory.create(home_folder(), config.run.name)
    write_bytes(directory.config_file, given.read_bytes() if given is not None else content.encode())
    write_bytes(directory.resolved_file, render(config).encode())
    return directory


def start(directory: RunDirectory) -> subprocess.Popen[bytes]:
    """The supervisor's process."""
    with (directory.logs / "supervisor.out").open("ab") as out:
        command = [sys.executable, "-P", "-m", "hive.runtime.supervise", str(directory.path), str(directory.logs)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)


def connect(directory: RunDirectory, process: subprocess.Popen[bytes]) -> ControlClient:
    """Waits until the supervisor listens. Raises why it does not."""
    while True:
        if process.poll() is not None:
            raise_failure(directory, process.returncode)
        try:
            return open_run(directory)
        except HiveError as error:
            if isinstance(error, OtherProtocol) and read_run_facts(directory).pid == process.pid:
                raise  # unlike what an earlier supervisor wrote, where a run goes on
            time.sleep(LISTEN_S)  # it is starting; poll() above ends the wait when it is not


def run_quietly(directory: RunDirectory) -> None:
    """Starts the run and waits for its end, showing nothing; Ctrl-C ends it as in `hive up`.

    Raises why it could not start.
    """
    forget_failure(directory)
    process = start(directory)
    while True:
        try:
            connect(directory, process).close()
            process.wait()
            break
        except KeyboardInterrupt:
            process.send_signal(signal.SIGTERM)
    if not began(directory):
        raise_failure(directory, process.returncode)


def began(directory: RunDirectory) -> bool:
    """Whether a run that has ended had got as far as to begin."""
    return directory.summary_file.exists() and not directory.failure_file.exists()


def give_up(directory: RunDirectory, process: subprocess.Popen[bytes]) -> int:
    """Ends a run that is still starting, with its supervisor; interrupted again, without asking it.

    Returns the exit code. A run that never began leaves nothing behind.
    """
    print(f"stopping {directory.name}, which was still starting - Ctrl-C again to kill it", file=sys.stderr)
    try:
        process.send_signal(signal.SIGTERM)
        process.wait()
    except KeyboardInterrupt:
        process.kill()
        process.wait()
    if not began(directory):
        discard(directory)
    return STOPPED_AT_ONCE


def forget_failure(directory: RunDirectory) -> None:
    """Takes away why an earlier start failed: nobody shall take it for the story of this one. Raises RecordError."""
    path = directory.failure_file
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise failure("remove", path, error) from error


def raise_failure(directory: RunDirectory, code: int) -> None:
    """Raises the error of a run that could not start; what was only a mistake in the input leaves no run behind."""
    path = directory.failure_file
    if not path.exists():
        raise ActorFailed(
            f"the supervisor ended with code {code} before the run began",
            hint=f"its output is in {directory.logs / 'supervisor.out'}",
        )
    told = json.loads(path.read_text())
    error = HiveError(told["error"], hint=told["hint"])
    error.exit_code = told["exit_code"]
    if error.exit_code == ConfigError.exit_code:
        discard(directory)
    elif told["traceback"] and str(directory.crashes) not in error.hint:  # or there is a report already
        crash = directory.crash_file("topology", 1)
        crash.write_text(told["traceback"])
        error.hint = error.hint or f"the traceback is in {crash}"
    raise error


def discard(directory: RunDirectory) -> None:
    """Removes a run that never began; one that was to be resumed stays, and one whose crash report is to be read."""
    if not list_checkpoints(directory.checkpoints) and not any(directory.crashes.iterdir()):
        shutil.rmtree(directory.path, ignore_errors=True)
