"""Start the supervisor of a run before the run's directory exists, so that torch is imported while the config is read.

    hive up run.toml ── begin ──> supervisor ──> fork server: imports torch
        │ config, directory           │ waits on its stdin
        └─ hand_over: directory ────> │ imports, runs the run

The import of torch is most of the time from a command to the first update. A supervisor that is not needed after all,
because the config has a mistake, for example, finds the end of its stdin instead, kills its fork server and exits.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hive.paths import user_path
from hive.runtime.process.command import supervisor_command, supervisor_environment
from hive.runtime.process.spawning import EARLY, modules_to_preload
from hive.runtime.process.stop_signals import blocked

# Options of `hive up` with which no supervisor starts, or one that uses fewer cores.
OTHER_USES = ("-h", "--help", "--inline", "--jobs")
MODULE_KEYS = ("--topology", "run.topology", "run.scheme")  # options that may replace the built-in trainer

_waiting: list[
    tuple[subprocess.Popen[bytes], socket.socket]
] = []  # the supervisor that was started early, and its stdin


def begin(words: Sequence[str]) -> None:
    """Start a supervisor if these words of a command line will probably need one."""
    if words[:1] != ["up"] or any(word.partition("=")[0] in OTHER_USES for word in words):
        return
    configs = [user_path(word) for word in words[1:] if word.endswith(".toml")]
    replaced = any(key in word for word in words for key in MODULE_KEYS)
    modules = () if replaced or not configs or not configs[0].is_file() else modules_to_preload(configs[0])
    try:
        line, stdin = socket.socketpair()
        with stdin, blocked():  # until it handles them
            process = subprocess.Popen(
                supervisor_command(EARLY, *modules),
                env=supervisor_environment(),
                stdin=stdin.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            _waiting.append((process, line))
    except OSError:
        return  # the usual start reports what is wrong with this machine


def hand_over(directory: Path, log_folder: Path, lock: int | None) -> subprocess.Popen[bytes] | None:
    """Have the waiting supervisor run the run in this directory; None if there is none, or if it has exited.

    lock: descriptor of the run's lock, which goes to the supervisor.
    """
    if not _waiting:
        return None
    process, line = _waiting.pop()
    try:
        with line:
            paths = b"\0".join(map(os.fsencode, (directory, log_folder)))
            socket.send_fds(line, [paths], [] if lock is None else [lock])
    except OSError:
        process.kill()
        process.wait()
        return None
    return process


def abandon() -> None:
    """End the supervisor that was started early, if no run has taken it, and wait until it has exited."""
    while _waiting:
        process, line = _waiting.pop()
        line.close()
        process.wait()  # at most until its Python has started, some 50 ms
