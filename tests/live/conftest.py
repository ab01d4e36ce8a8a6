"""Live tests: the real command, real processes, real kills.

`house` is a private world for one test: its own HIVE_HOME, its own TMPDIR (short: a unix socket's path has 107 bytes).
At the end of every test nothing of it may be left: no process, no socket, no segment. A zombie is not a leak.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from hive import hash_seed
from hive.records import RunDirectory
from hive.runtime.run.control import open_run

# A shell that starts the suite in the background has it ignore SIGINT, and so would every command that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

LIMIT_S = 240.0  # for anything to become true on a slow and busy machine; only a test that fails takes so long
CARTPOLE = """
[run]
scheme = "a2c"
name = "cart"
steps = {steps}
{run}
[env]
id = "CartPole-v1"
[collection]
envs = 8
rollout = 16
{more}
"""


class House:
    """One test's runs."""

    limit_s = LIMIT_S

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "runs"
        path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
        self.env = {
            **os.environ,
            **hash_seed.DEFAULT,
            "HIVE_HOME": str(self.home),
            "TMPDIR": str(folder),
            "PYTHONPATH": path,
        }
        self.started: list[subprocess.Popen[str]] = []

    def config(self, text: str, name: str = "run.toml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def cartpole(self, steps: int = 100_000_000, run: str = "", more: str = "") -> Path:
        return self.config(CARTPOLE.format(steps=steps, run=run, more=more), "cart.toml")

    def start(self, *arguments: object, cwd: Path | None = None, inside: Sequence[str] = ()) -> subprocess.Popen[str]:
        """`hive ...` in the background. -P: the installed hive, as the `hive` command, whatever lies in `cwd`.

        inside: what the command begins with, to run in another network.
        """
        command = [*inside, sys.executable, "-P", "-m", "hive", *map(str, arguments)]
        process = subprocess.Popen(
            command,
            env=self.env,
            cwd=cwd or self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def hive(
        self, *arguments: object, cwd: Path | None = None, inside: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """`hive ...` to its end."""
        process = self.start(*arguments, cwd=cwd, inside=inside)
        out, err = process.communicate(timeout=LIMIT_S * 2)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def summary(self, run: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.home / run / "summary.json").read_text())
        return loaded

    def ended(self, run: str) -> dict[str, Any]:
        """The summary of a run that has ended, once its channels have been checked: nothing lost, nothing in flight."""
        summary = self.summary(run)
        for name, account in summary["channels"].items():
            gone = account["consumed"] + sum(account["dropped"].values())
            assert account["produced"] == gone + account["in_flight"], (name, account)
            assert account["in_flight"] == 0, (name, account)
            died = any(summary["restarts"].values()) or summary["state"] == "failed"
            assert died or "consumer_died" not in account["dropped"], (name, account)
        return summary

    def events(self, run: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.home / run / "events.jsonl").read_text().splitlines()]

    def ps(self, run: str) -> dict[str, dict[str, Any]]:
        """The processes of a live run by name, as in `hive ps`, but without a process for each question."""
        with closing(open_run(RunDirectory.open(self.home / run))) as client:
            status = client.status()
        supervisor = {"name": "supervisor", "pid": status["pid"], "state": status["state"]}
        rows = (supervisor, *status["helpers"], *status["actors"])
        return {row["name"]: {"restarts": 0, **row} for row in rows}

    def until_steps(self, run: str, steps: int) -> None:
        """Waits until the learner has applied so many environment steps. Before it is ready, it counts nothing."""
        self.until(lambda: self.ps(run)["learner-0"]["counters"].get("env_steps", 0) >= steps)

    @staticmethod
    def until(condition: Callable[[], bool], limit_s: float = LIMIT_S, poll_s: float = 0.02) -> None:
        limit = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < limit, "it did not happen in time"
            time.sleep(poll_s)

    def processes(self) -> list[int]:
        """Living processes of this house, by their environment; zombies are not alive."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"HIVE_HOME={self.home}".encode() in (entry / "environ").read_bytes().split(
                    b"\0"
                ):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def kill_all(self) -> list[int]:
        """Kill all living processes of this house, and return them. Some end by themselves when another has died."""
        found = self.processes()
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return found

    def sockets(self) -> list[Path]:
        return list((self.folder / f"hive-{os.getuid()}").glob("*"))

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        left = self.kill_all()
        assert not left, f"processes outlived the test: {left}"
        assert not self.sockets(), f"sockets outlived the test: {self.sockets()}"


@contextmanager
def opened() -> Iterator[House]:
    folder = Path(tempfile.mkdtemp(prefix="hv"))
    made = House(folder)
    try:
        yield made
        made.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def house() -> Iterator[House]:
    with opened() as made:
        yield made


@pytest.fixture(scope="session")
def open_house() -> Callable[[], AbstractContextManager[House]]:
    """Houses for what goes on beside a test; each is left as a test leaves its own."""
    return opened
