"""A private place for runs: a home and a folder for sockets of their own, and a look at what they leave behind.

    $TMPDIR/hcXXXXXX/            short: a unix socket's path has 107 bytes
      runs/<name>-1/             HIVE_HOME
      hive-<uid>/<id>/           sockets, since this is the run's TMPDIR

A process belongs to the house if HIVE_HOME in its environment says so: that is inherited by all that a run starts, its
actors' own children too. A segment is found by its inode, in the descriptors and maps of whoever is alive.
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

from hive.errors import HiveError
from hive.records import RunDirectory, RunFacts, is_alive, read_run_facts
from hive.runtime.control import open_control

__all__ = ["ChaosError", "House", "segments_of", "users_of"]

START_S = 120.0  # for `hive up -d` on a busy machine: importing torch is most of it
END_S = 60.0  # for a run to end: twice supervision.drain_s
LINGER_S = 2.0  # for what a supervisor's end takes with it: the promise of tests/live/test_death.py
POLL_S = 0.02
SEGMENT = "memfd:hive-"  # what the kernel calls a segment


class ChaosError(Exception):
    """A run could not be started or looked at, so nothing can be said of it."""


class House:
    """See the module. `close` ends whatever is left; it keeps the folder if told to."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hc"))
        self.home = self.folder / "runs"
        self.environment = {**os.environ, "HIVE_HOME": str(self.home), "TMPDIR": str(self.folder)}

    def up(self, config: Path, sets: Sequence[str]) -> RunDirectory:
        """`hive up -d`. Raises ChaosError with what it said."""
        words = [word for one in sets for word in ("--set", one)]
        command = [sys.executable, "-P", "-m", "hive", "up", str(config), "-d", *words]
        try:
            done = subprocess.run(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=START_S,
                cwd=self.folder,
            )
        except subprocess.TimeoutExpired:
            raise ChaosError(f"`hive up {config}` took more than {START_S:.0f} s") from None
        if done.returncode:
            raise ChaosError(f"`hive up {config}` ended with code {done.returncode}\n{done.stderr.strip()}")
        return RunDirectory.open(self.home / done.stdout.strip())

    def down(self, directory: RunDirectory) -> None:
        """Ends a run now, without saving, and waits for it."""
        facts = read_run_facts(directory)
        try:
            client = open_control(Path(facts.socket_folder))
            client.down("the chaos has seen enough", now=True)
            client.close()
        except HiveError:
            pass  # it is ending, or does not answer: what is left of it is killed
        if not wait_for_end(facts, END_S):
            self.kill_all()

    def processes(self) -> dict[int, str]:
        """Living processes of this house, pid -> name; zombies are not alive."""
        mark, found = f"HIVE_HOME={self.home}".encode(), {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "comm").read_text().strip()
            except OSError:
                continue  # gone, or somebody else's
        return found

    def sockets(self) -> list[str]:
        """Socket folders of this house's runs."""
        return sorted(str(path) for path in (self.folder / f"hive-{os.getuid()}").glob("*"))

    def left_behind(self, segments: set[int]) -> dict[str, list[str]]:
        """What is left of runs that have ended: processes, socket folders, segments. Waits a little for it to go."""
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
    """Whether the supervisor was gone within the limit."""
    limit = time.monotonic() + limit_s
    while is_alive(facts):
        if time.monotonic() > limit:
            return False
        time.sleep(POLL_S)
    return True


def segments_of(supervisor: int) -> set[int]:
    """The inodes of the segments that a supervisor owns."""
    folder, found = Path(f"/proc/{supervisor}/fd"), set()
    for entry in folder.iterdir():
        try:
            if SEGMENT in os.readlink(entry):
                found.add(entry.stat().st_ino)
        except OSError:
            continue  # closed meanwhile
    return found


def users_of(segments: set[int]) -> list[str]:
    """Living processes but this one that have one of these segments mapped."""
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
