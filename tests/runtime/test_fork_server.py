"""The fork server where the machine has no room for another process. (How it forks and sweeps: live/test_death.py.)"""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hive.runtime.fork_server import REPLIES, Fork, NotForked, _Server
from hive.runtime.stream import receive

REQUEST = Fork("collector-0", 3, "ipc://a", "ipc://b", {})
NO_ROOM = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@pytest.fixture
def lines() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def refusal(lines: tuple[socket.socket, socket.socket]) -> str:
    """What the server says when it cannot fork; it lives on and has lost no descriptor."""
    ours, theirs = lines
    server, before = _Server(theirs), descriptors()
    for _ in range(3):
        server._fork(REQUEST)
        answer = receive(ours, REPLIES)
        assert isinstance(answer, NotForked)
        assert (answer.process, answer.incarnation) == ("collector-0", 3)
    assert (descriptors(), server.groups) == (before, [])
    return answer.text


def test_the_first_fork_fails(lines: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise NO_ROOM

    monkeypatch.setattr(os, "fork", fork)
    assert refusal(lines) == "Resource temporarily unavailable"


def test_the_second_fork_fails(lines: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle process, which says so and ends."""
    real, server = os.fork, os.getpid()

    def fork() -> int:
        if os.getpid() != server:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return real()

    monkeypatch.setattr(os, "fork", fork)
    assert refusal(lines) == "Cannot allocate memory"


def test_the_middle_process_dies_before_it_can_say(
    lines: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, server = os.fork, os.getpid()

    def fork() -> int:
        if os.getpid() != server:
            os.kill(os.getpid(), signal.SIGKILL)
        return real()

    monkeypatch.setattr(os, "fork", fork)
    assert refusal(lines) == "Killed before it had started"


def test_there_is_no_descriptor_for_its_answer(
    lines: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pipe() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pipe", pipe)
    assert refusal(lines) == "Too many open files"
