"""The programs of benches, parity and search: how they are started, awaited, and what they print.

A program prints one JSON object as its last line. One that takes too long is killed with all its children. An error
quotes the end of the program's stderr.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

START_S = 60.0  # seconds for a program to import torch and to exit on a busy machine
SHOWN_LINES = 20  # lines of stderr in an error: enough for a traceback
POLL_S = 0.5  # seconds between two looks at programs that run side by side
MOST_AT_ONCE = 2  # programs side by side: each takes about one core

Job = TypeVar("Job")


class BenchError(Exception):
    """A contender could not be measured."""


@dataclass
class Running:
    """A program that runs. Its output goes to files: a pipe that is not read would stop it."""

    name: str
    process: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]
    load: float  # of the machine when it began

    def result(self, rate: str = "") -> dict[str, Any]:
        """Return the object that an ended program printed last. Raises BenchError if it failed."""
        self.out.seek(0)
        self.err.seek(0)
        with self.out, self.err:
            if self.process.returncode != 0:
                text = tail(self.err.read().decode(errors="replace"))
                raise BenchError(f"`{self.name}` ended with code {self.process.returncode}\n{text}")
            return last_json(self.out.read().decode(errors="replace"), self.name, rate)

    def kill(self) -> None:
        """End the program and its children."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def launched(
    name: str,
    command: Sequence[object],
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
    folder: Path | None = None,
) -> Running:
    """Start a program in a process group of its own. folder: its working directory and the one of temporary files."""
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  # `result` closes them
    variables = {**os.environ, **(environment or {}), **({"TMPDIR": str(folder)} if folder else {})}
    with tempfile.TemporaryFile() as given:
        given.write(stdin.encode())
        given.seek(0)
        load = os.getloadavg()[0]
        words = [str(word) for word in command]
        process = subprocess.Popen(
            words, env=variables, cwd=folder, stdin=given, stdout=out, stderr=err, start_new_session=True
        )
    return Running(name, process, out, err, load)


def run_program(command: Sequence[object], seconds: float, rate: str = "steps_per_s") -> dict[str, Any]:
    """Run a program that measures for `seconds`; return the JSON object that it prints last. Raises BenchError.

    rate: the key of the object whose value must be above 0.
    """
    name = " ".join(map(str, command))
    with tempfile.TemporaryDirectory(prefix="hive-bench-") as folder:  # removes files that it leaves in $TMPDIR
        program = launched(name, command, importing(), folder=Path(folder))
        try:
            program.process.wait(seconds + START_S)
        except subprocess.TimeoutExpired:
            raise BenchError(f"`{name}` took more than {seconds + START_S:.0f} s") from None
        finally:
            program.kill()
        return program.result(rate)


def run_all(
    jobs: Sequence[Job],
    launch: Callable[[Job], Running],
    finish: Callable[[Job, dict[str, Any], float], str],
    at_once: int = MOST_AT_ONCE,
    minutes: float = float("inf"),
) -> int:
    """Run jobs side by side, and none that would begin after `minutes`; return the exit code, 1 if one failed.

    finish: writes the row of a job, given its result and the load when it began, and returns what to print about it.
    """
    waiting, running, failed, begun = list(jobs), list[tuple[Job, Running]](), 0, time.monotonic()
    try:
        while running or (waiting and time.monotonic() - begun < minutes * 60):
            while waiting and len(running) < at_once and time.monotonic() - begun < minutes * 60:
                running.append((waiting[0], launch(waiting.pop(0))))
            for job, program in [entry for entry in running if entry[1].process.poll() is not None]:
                running.remove((job, program))
                try:
                    text = finish(job, program.result(), program.load)
                except BenchError as error:
                    failed, text = failed + 1, str(error)
                done = f"{len(jobs) - len(waiting) - len(running)}/{len(jobs)}"
                spent = (time.monotonic() - begun) / 60
                print(f"{program.name}: {text} · {done} · {spent:.1f} min", file=sys.stderr)
            time.sleep(POLL_S)
    finally:
        for _, program in running:  # interrupted: a program in its own process group gets no Ctrl-C
            program.kill()
    return 1 if failed else 0


def last_json(text: str, who: str, rate: str = "") -> dict[str, Any]:
    """Return the JSON object in the last line of `text`. Raises BenchError if its `rate` is not above 0."""
    try:
        values = dict(json.loads(text.strip().rpartition("\n")[2]))
        if not rate or values[rate] > 0:
            return values
    except (ValueError, TypeError, KeyError):
        pass
    wanted = f"no JSON object with {rate} above 0" if rate else "no JSON object"
    raise BenchError(f"`{who}` printed {wanted}\n{tail(text)}")


def tail(text: str) -> str:
    """Return the last `SHOWN_LINES` lines."""
    return "\n".join(text.strip().splitlines()[-SHOWN_LINES:])


def here(*parts: str) -> Path:
    """Return the path of a file in this folder."""
    return Path(__file__).resolve().parent.joinpath(*parts)


def importing(*folders: Path) -> dict[str, str]:
    """Return the environment variables with which a program can import the packages of scripts/ and these folders."""
    paths = [str(here().parent), *map(str, folders), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def hive_command(*words: object, python: Path | None = None) -> list[str]:
    """Return the command line of `hive` with these words, run by this Python or by that of another environment."""
    return [str(python or sys.executable), "-P", "-m", "hive", *map(str, words)]


def hive_environment(home: Path) -> dict[str, str]:
    """Return the environment of a `hive` whose runs are in `home` and may name modules of scripts/."""
    return {**os.environ, **importing(), "HIVE_HOME": str(home)}


def set_words(keys: Sequence[str]) -> list[str]:
    """Return the words of the command line that override these keys."""
    return [word for key in keys for word in ("--set", key)]
