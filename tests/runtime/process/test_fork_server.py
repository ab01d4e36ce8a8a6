"""The fork server on a machine without room for another process. live/test_death.py tests forking and sweeping."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hive.runtime.process.fork_server import REPLIES, Fork, NotForked, _Server
from hive.runtime.wire.stream import receive

REQUEST = Fork("collector-0", 3, "ipc://a", "ipc://b", {}, b"secret")
NO_ROOM = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@pytest.fixture
def lines() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def refusal(lines: tuple[socket.socket, socket.socket]) -> str:
    """Return the server's refusal to fork; check that the server continues and has leaked no descriptor."""
    ours, theirs = lines
    server, before = _Server(theirs), descriptors()
    for _ in range(3):
        server._fork(REQUEST)
        answer = receive(ours, REPLIES)
        assert isinstance(answer, NotForked)
        assert (answer.process, answer.incarnation) == ("collector-0", 3)
    assert (descriptors(), server.groups) == (before, {})
    return answer.text


def test_the_first_fork_fails(lines: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise NO_ROOM

    monkeypatch.setattr(os, "fork", fork)
    assert refusal(lines) == "Resource temporarily unavailable"


def test_the_second_fork_fails(lines: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle process reports the error and exits."""
    real, server = os.fork, os.getpid()

    def fork() -> int:
        if os.getpid() != server:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return real()

    monkeypatch.setattr(os, "fork", fork)
    assert refusal(lines) == "Cannot allocate memory"


def test_the_middle_process_is_killed_before_it_reports(
    lines: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, server = os.fork, os.getpid()

    def fork() -> int:
        if os.getpid() != server:
            os.kill(os.getpid(), signal.SIGKILL)
        return real()

    monkeypatch.setattr(os, "fork", fork)
    assert refusal(lines) == "Killed before it had started"


def test_no_descriptor_is_left_for_the_pipe(
    lines: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pipe() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pipe", pipe)
    assert refusal(lines) == "Too many open files"


def test_a_number_that_the_kernel_has_given_again_is_not_swept(lines: tuple[socket.socket, socket.socket]) -> None:
    server = _Server(lines[1])
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as bystander:
        server._add_groups([bystander.pid])
        server.groups[bystander.pid] -= 1  # one clock tick earlier an actor had this number
        server._sweep()
        assert bystander.poll() is None
        server._add_groups([bystander.pid])
        server._sweep()
        assert bystander.wait(20) == -signal.SIGKILL
