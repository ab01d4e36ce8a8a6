"""Run the programs of a bench: each is a separate process group that prints one JSON object as its last line.

A program that takes too long is killed with all its children. An error quotes the end of the program's stderr.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

START_S = 60.0  # seconds for a program to import torch and to exit on a busy machine
SHOWN_LINES = 20  # lines of stderr in an error: enough for a traceback


class BenchError(Exception):
    """A contender could not be measured."""


def run_program(
    command: Sequence[object], seconds: float, variables: Mapping[str, str] | None = None, rate: str = "steps_per_s"
) -> dict[str, Any]:
    """Run a program that measures for `seconds`; return the JSON object that it prints last. Raises BenchError.

    rate: the key of the object whose value must be above 0.
    """
    words = [str(word) for word in command]
    with tempfile.TemporaryDirectory(prefix="hive-bench-") as folder:  # removes files that it leaves in $TMPDIR
        process = subprocess.Popen(
            words,
            env={**os.environ, "TMPDIR": folder, **(variables or {})},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=seconds + START_S)
        except subprocess.TimeoutExpired:
            raise BenchError(f"`{' '.join(words)}` took more than {seconds + START_S:.0f} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    if process.returncode != 0:
        raise BenchError(f"`{' '.join(words)}` ended with code {process.returncode}\n{tail(err)}")
    return last_json(out, " ".join(words), rate)


def last_json(text: str, who: str, rate: str = "steps_per_s") -> dict[str, Any]:
    """Return the JSON object in the last line of `text`. Raises BenchError if its `rate` is not above 0."""
    try:
        found = json.loads(text.strip().rpartition("\n")[2])
        if found[rate] > 0:
            return dict(found)
    except (ValueError, TypeError, KeyError):
        pass
    raise BenchError(f"`{who}` printed no JSON object with {rate} above 0\n{tail(text)}")


def tail(text: str) -> str:
    """Return the last `SHOWN_LINES` lines."""
    return "\n".join(text.strip().splitlines()[-SHOWN_LINES:])


def here(*parts: str) -> Path:
    """Return the path of a file in this folder."""
    return Path(__file__).resolve().parent.joinpath(*parts)


def importing() -> dict[str, str]:
    """Return the environment variables with which a program can import the package `benchmarks`."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(here().parent), os.environ.get("PYTHONPATH", "")]))}
