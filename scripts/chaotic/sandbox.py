"""A private folder for runs, and checks for processes and files that they leave behind.

    $TMPDIR/hcXXXXXX/            short, because a unix socket's path has at most 107 bytes
      runs/<name>-1/             HIVE_HOME
      hive-<uid>/<id>/           sockets, because the folder is the run's TMPDIR

A process belongs to the sandbox if HIVE_HOME in its environment points there: every process that a run starts inherits
it, including children of actors. A segment is found by its inode in the descriptors and maps of live processes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.programs import BenchError, hive_command, hive_environment, set_words

from hive.errors import HiveError
from hive.records import RunDirectory, RunFacts, is_alive, read_run_facts
from hive.runtime.run.control import open_control

START_S = 120.0  # seconds for `hive up -d` on a busy machine, most of it the import of torch
END_S = 60.0  # seconds for a run to end: twice supervision.drain_s
LINGER_S = 2.0  # seconds for the processes of a dead supervisor to exit, as tests/live/test_death.py requires
POLL_S = 0.02
SEGMENT = "memfd:hive-"  # prefix of the kernel's name of a segment


class Sandbox:
    """See the module. `close` kills the remaining processes, and deletes the folder unless `keep` is True."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hc"))
        self.home = self.folder / "runs"
        self.environment = {**hive_environment(self.home), "TMPDIR": str(self.folder)}

    def up(self, config: Path, sets: Sequence[str]) -> RunDirectory:
        """Start a run with `hive up -d`. Raises BenchError with its stderr."""
        try:
            done = subprocess.run(
                hive_command("up", config, "-d", *set_words(sets)),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=START_S,
                cwd=self.folder,
            )
        except subprocess.TimeoutExpired:
            raise BenchError(f"`hive up {config}` took more than {START_S:.0f} s") from None
        if done.returncode:
            raise BenchError(f"`hive up {config}` ended with code {done.returncode}\n{done.stderr.strip()}")
        return RunDirectory.open(self.home / done.stdout.strip())

    def down(self, directory: RunDirectory, *, now: bool = True) -> None:
        """End a run, with `now` at once and without saving, and wait until its supervisor exits."""
        facts = read_run_facts(directory)
        try:
            client = open_control(Path(facts.socket_folder))
            client.down(f"scripts/{Path(sys.argv[0]).name}", now=now)
            client.close()
        except HiveError:
            pass  # it is ending, or does not answer: its processes are killed below
        if not wait_for_end(facts, END_S):
            self.kill_all()

    def processes(self) -> dict[int, str]:
        """Return the names of the sandbox's live processes by pid, without zombies."""
        mark, found = f"HIVE_HOME={self.home}".encode(), {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "comm").read_text().strip()
            except OSError:
                continue  # the process has exited, or belongs to another user
        return found

    def sockets(self) -> list[str]:
        """Return the socket folders of the sandbox's runs."""
        return sorted(str(path) for path in (self.folder / f"hive-{os.getuid()}").glob("*"))

    def left_behind(self, segments: set[int]) -> dict[str, list[str]]:
        """Return processes, socket folders and segments of ended runs that still exist after `LINGER_S`."""
        limit = time.monotonic() + LINGER_S
        while True:
            left = {
                "processes": [f"{pid} {name}" for pid, name in self.processes().items()],
                "sockets": self.sockets(),
                "segments": [f"of {user}" for user in users_of(segments)],
            }
            if not any(left.values()) or time.monotonic() > limit:
                return left
            time.sleep(POLL_S)

    def kill_all(self) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def close(self, *, keep: bool = False) -> None:
        self.kill_all()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def wait_for_end(facts: RunFacts, limit_s: float) -> bool:
    """Wait for the supervisor to exit; return whether it did so within the limit."""
    limit = time.monotonic() + limit_s
    while is_alive(facts):
        if time.monotonic() > limit:
            return False
        time.sleep(POLL_S)
    return True


def segments_of(supervisor: int) -> set[int]:
    """Return the inodes of the segments that a supervisor owns."""
    folder, found = Path(f"/proc/{supervisor}/fd"), set()
    for entry in folder.iterdir():
        try:
            if SEGMENT in os.readlink(entry):
                found.add(entry.stat().st_ino)
        except OSError:
            continue  # closed meanwhile
    return found


def users_of(segments: set[int]) -> list[str]:
    """Return pid and name of every live process but this one that has one of these segments mapped."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                maps = (entry / "maps").read_text().splitlines()
                mapped = {int(line.split()[4]) for line in maps if SEGMENT in line}
                if mapped & segments:
                    found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
        except OSError:
            continue
    return found
