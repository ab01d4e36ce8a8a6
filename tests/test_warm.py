"""What a program sees in a process that was forked warm is what it sees as users start it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from warm import Warm

FACTS = """
import json, os, signal, sys, threading
from pathlib import Path
shown = lambda name: sorted(one for one in Path("/proc/self", name).read_text().split("\\0") if one)
found = {
    "argv": [sys.argv, sys.orig_argv, shown("cmdline")],
    "path": sys.path[:2],
    "main": [__name__, Path(__file__).name, sys.modules["__main__"].__dict__ is globals()],
    "environment": [sorted(os.environ.items()), shown("environ")],
    "folder": os.getcwd(),
    "descriptors": [one for one in range(100) if os.path.exists(f"/proc/self/fd/{one}")],
    "signals": {n: str(signal.getsignal(n)) for n in range(1, 32)},
    "masked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "session": os.getsid(0) == os.getpid(),
    "parent": os.getppid(),
    "streams": [[s.encoding, s.errors, s.line_buffering, s.mode] for s in (sys.stdin, sys.stdout, sys.stderr)],
    "threads": [threading.active_count(), len(os.listdir("/proc/self/task"))],
    "read": sys.stdin.read(),
}
print(json.dumps(found), flush=True)
exec(sys.argv[1])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "facts.py"
    path.write_text(FACTS)
    return path


def facts(script: Path, ending: str = "", **more: Any) -> tuple[dict[str, Any], int, str]:
    env = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OWN": "ö=1", "PYTHONPATH": str(script.parent)}
    command = [sys.executable, str(script), ending]
    done = subprocess.run(command, input="a line", env=env, cwd=script.parent, capture_output=True, text=True, **more)
    return json.loads(done.stdout.splitlines()[0]), done.returncode, done.stderr


@pytest.mark.parametrize("new", [False, True])
def test_a_forked_program_sees_what_an_executed_one_sees(warm: Warm, script: Path, new: bool) -> None:
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    try:
        forked = facts(script, start_new_session=new)
        warm.enabled = False
        executed = facts(script, start_new_session=new)
    finally:
        warm.enabled = True
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    assert warm.process is not None
    assert forked[1:] == executed[1:] == (0, "")
    for name, value in executed[0].items():
        assert forked[0][name] == value, name
    assert forked[0]["parent"] == os.getpid()


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit(5)",
        "sys.exit('a text')",
        "raise KeyboardInterrupt",
        "import atexit; atexit.register(lambda: print('last', file=sys.stderr))",
        "threading.Thread(target=lambda: print('thread', file=sys.stderr)).start()",
        "os.kill(os.getpid(), 15)",
    ],
)
def test_it_ends_in_the_same_way(warm: Warm, monkeypatch: pytest.MonkeyPatch, script: Path, ending: str) -> None:
    _, code, errors = facts(script, ending)
    monkeypatch.setattr(warm, "enabled", False)
    _, expected, cold_errors = facts(script, ending)
    assert (code, errors.splitlines()[-1:]) == (expected, cold_errors.splitlines()[-1:])


def test_the_warm_process_has_one_thread_and_no_child_before_it_forks(warm: Warm, script: Path) -> None:
    facts(script)
    assert warm.process is not None
    tasks = Path(f"/proc/{warm.process.pid}/task")
    (task,) = tasks.iterdir()
    assert (task / "children").read_text() == ""


def test_another_value_of_what_is_read_at_the_start_is_cold(warm: Warm, script: Path) -> None:
    for more, expected in (({}, "True"), ({"OMP_NUM_THREADS": "3"}, "False"), ({"PYTHONHASHSEED": "7"}, "False")):
        command = [sys.executable, str(script), "print('torch' in sys.modules)"]
        done = subprocess.run(command, env={**os.environ, **more}, input="", capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == expected
