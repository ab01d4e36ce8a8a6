"""Runs an agent in a process of its own, for an engine that has placed this process on a host.

    AgentProcess    ── stdin: a line with the join facts, then nothing until the end ──>  a process:
    in the engine's <── stdout: a line for each report ────────────────────────────────  run_agent
    process

The agent ends when its stdin does, so it ends with the engine's process, however that ends, and removes its folder. It
is no child of that process, because engines kill the children of a process that ends. The facts hold the secret key,
which is made here and is never written to a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from hive.errors import HiveError
from hive.hosts.files import JoinFile
from hive.runtime.process.command import supervisor_environment
from hive.runtime.wire.links import KeyPair

WAIT_S = 60.0  # how long an agent tries to reach the head; then the launcher asks the head again
STOP_S = 20.0  # an agent that takes longer to end is killed; its part then ends by itself
ENGINE = "RAY_"  # beginning of the names of variables that the engine's processes have: tokens, addresses


class AgentProcess:
    """The agent of one host. An engine calls `key`, then `run`, which takes as long as the agent runs."""

    def __init__(self) -> None:
        self.keys: KeyPair | None = None
        self.process: subprocess.Popen[str] | None = None
        self.ended = threading.Event()

    def key(self) -> tuple[str, str]:
        """Make a new key pair; return its public key and the name of this machine."""
        self.keys = KeyPair.new()
        return self.keys.public, platform.node()

    def run(self, folder: str, facts: dict[str, Any]) -> str:
        """Run an agent until it ends, and return the last line that it has reported.

        folder: where the run was started, for modules of the user; ignored if this machine does not have it. facts:
        those of JoinFile, without the secret.
        """
        assert self.keys is not None
        self.ended.clear()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "hive.hosts.agent_process"],
            cwd=folder if Path(folder).is_dir() else None,
            env={name: value for name, value in supervisor_environment().items() if not name.startswith(ENGINE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        last = ""
        with contextlib.suppress(BrokenPipeError):  # it has ended; its code says why
            self.process.stdin.write(json.dumps(facts | {"secret": self.keys.secret}) + "\n")
            self.process.stdin.flush()
        with self.process.stdout as reports:
            for line in reports:
                last = line.strip()
                print(last, file=sys.stderr, flush=True)  # noqa: T201  # the log of the engine's process
        self.ended.set()
        self.process.wait()
        self._close_input()
        return last

    def stop(self) -> None:
        """End the agent, if it runs."""
        process = self.process
        if process is None:
            return
        self._close_input()
        if not self.ended.wait(STOP_S):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _close_input(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()


def _report(text: str) -> None:
    with contextlib.suppress(OSError):  # the engine's process was killed; the agent still cleans up
        print(text, flush=True)  # noqa: T201


def _end_with_stdin() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _main() -> int:
    if os.fork():  # the agent goes on as a child of init
        os._exit(0)
    from hive.hosts.agent import run_agent

    line = sys.stdin.readline()
    if not line:
        return 1
    join = JoinFile(**json.loads(line))
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        return run_agent(join, WAIT_S, _report)
    except HiveError as error:
        _report(str(error))
        return error.exit_code


if __name__ == "__main__":
    code = _main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)  # the thread that reads stdin would delay an ordinary exit
