"""Signals that ask a run to end, in processes of their own: what actors, their children and supervisors do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from hive.runtime.process.stop_signals import SIGNALS, blocked

ALL = "(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)"


def run(code: str) -> list[str]:
    """Run a program that imports the module as `s`; return the lines that it printed. It must end by itself."""
    program = "import os, signal, subprocess, sys\nfrom hive.runtime.process import stop_signals as s\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_an_actor_survives_them_and_its_children_do_not() -> None:
    """A forked child and a program that it starts have the defaults: users expect to end them by SIGTERM."""
    code = f"""
    s.do_nothing()
    for number in {ALL}:
        os.kill(os.getpid(), number)
        pid = os.fork()
        if not pid:
            os.kill(os.getpid(), number)
            os._exit(99)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end=" ")
        child = subprocess.Popen(["sleep", "60"])
        child.send_signal(number)
        print(child.wait(), end=" ", flush=True)
    """
    # Python turns SIGINT in the forked child into an exception, with which it ends: exit code 1, or the signal.
    first, *rest = run(code)
    assert first in ("1", "-2")
    assert rest == ["-2", "-15", "-15", "-1", "-1"]


def test_a_fork_of_the_runtime_keeps_them_and_handlers_of_user_code_are_replaced() -> None:
    code = f"""
    s.do_nothing()
    with s.forking():
        pid = os.fork()
    if not pid:
        for number in {ALL}:
            os.kill(os.getpid(), number)
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(7))  # as pygame and ROS do
        s.do_nothing()
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert run(code) == ["3"]


def test_a_handler_that_user_code_has_set_is_kept_in_its_forks() -> None:
    code = """
    s.do_nothing()
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(7))
    pid = os.fork()
    if not pid:
        os.kill(os.getpid(), signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert run(code) == ["7"]


def test_a_supervisor_keeps_requests_that_arrive_before_it_can_act_on_them() -> None:
    code = """
    with s.blocked():
        os.kill(os.getpid(), signal.SIGTERM)  # pending, as in a process that was started with it blocked
        os.kill(os.getpid(), signal.SIGHUP)
        s.record()
    os.kill(os.getpid(), signal.SIGINT)
    print(*map(int, s.recorded()), *s.recorded())
    """
    assert run(code) == ["15", "2"]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_process_that_is_started_with_them_blocked_cannot_be_ended_before_it_handles_them(number: int) -> None:
    with blocked():
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from hive.runtime.process import stop_signals as s; s.do_nothing(); input()"],
            stdin=subprocess.PIPE,
        )
    assert process.stdin is not None
    os.kill(process.pid, number)  # most likely before its Python has started
    process.stdin.write(b"\n")
    process.stdin.close()
    assert process.wait(30) == 0
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
