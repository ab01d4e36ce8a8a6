"""No command believes its supervisor: another program may listen at the control socket, and answer anything."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import canned_status
import msgpack
import pytest

from hive.errors import UsageError
from hive.monitor import poller
from hive.records import read_run_facts
from hive.runtime.run import control
from hive.runtime.wire import stream
from hive.runtime.wire.stream import LENGTH

if TYPE_CHECKING:
    from conftest import Place

HOSTILE = "\x1b[2J\x9b\n\r\u202e\x07"
STATUS = canned_status.status(*(canned_status.actor("learner-0", process="learner-0") for _ in range(2)))
COMMANDS = (
    *(("ls",), ("ps", "cart-1"), ("monitor", "--json", "cart-1"), ("doctor", "cart-1"), ("stack", "cart-1")),
    *(("history", "cart-1"), ("set", "cart-1", "algorithm.learning_rate=1e-4"), ("pause", "cart-1")),
    *(("save", "cart-1"), ("down", "cart-1"), ("scale", "cart-1", "collection.workers=2"), ("resume", "cart-1")),
)


def framed(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def reply(name: str, *fields: Any) -> bytes:
    return framed(msgpack.packb([name, *fields]))


WHOLE = reply("Status", STATUS)
DEEP = b"\x91" * 900 + b"\xc0"
ANSWERS = {
    "refused": reply("Refused", HOSTILE, HOSTILE),
    "other reply": reply("Inspection", HOSTILE, [HOSTILE]),
    "unknown": reply(HOSTILE),
    "wrong type": reply("Status", [HOSTILE]),
    "hostile key": reply("Status", STATUS | {"channels": {HOSTILE: 1}}),
    "hostile value": reply("Status", STATUS | {"pid": -1}),
    "one more field": reply("Status", STATUS, 1),
    "deep": framed(b"\x92\xa6Status" + DEEP),
    "too deep": framed(DEEP * 100),
    "surrogate": framed(b"\x93\xa7Refused\xa3\xed\xa0\x80\xa1x"),
    "garbage": bytes(range(256)),
    "1 GiB": LENGTH.pack(1 << 30),
    "never all of it": LENGTH.pack(60 << 20) + b"x",
    "half": WHOLE[:50],
    "nothing": b"",
}


@contextlib.contextmanager
def answering(folder: Path, sent: bytes) -> Iterator[None]:
    """Within this context, a program listens at a control socket and sends these bytes after every request."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(control.control_path(folder)))
    listening.listen()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = listening.accept()
                with line, contextlib.suppress(OSError):
                    while line.recv(1 << 16):
                        line.sendall(sent)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        listening.close()
        assert not thread.is_alive()


@pytest.mark.rotates
@pytest.mark.parametrize("sent", ANSWERS.values(), ids=ANSWERS)
def test_every_command_ends_with_one_clear_error(place: Place, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(control, "ANSWER_S", 0.01)
    monkeypatch.setattr(poller, "SILENT_S", 0.01)
    directory = place.never_begun("cart")
    place.serve(directory, None)
    with answering(Path(read_run_facts(directory).socket_folder), sent):
        for words in COMMANDS:
            done = place.hive(*words)
            said = done.out + done.err
            assert all(line.isprintable() for line in said.split("\n"))
            assert done.code == {"ls": 0, "doctor": 1}.get(words[0], 2), words
            if words[0] not in ("ls", "doctor"):
                assert [line for line in said.split("\n") if line.startswith("error: ")] == [said.split("\n")[0]]


class Drip:
    """A connection on which one byte arrives a second, always within the timeout of a single read."""

    def __init__(self, sent: bytes, clock: list[float]) -> None:
        self.sent = sent
        self.clock = clock
        self.timeout: float | None = control.ANSWER_S

    def gettimeout(self) -> float | None:
        return self.timeout

    def settimeout(self, timeout: float | None) -> None:
        self.timeout = timeout

    def sendall(self, data: bytes) -> None:
        """The request is received."""

    def recv(self, count: int) -> bytes:
        self.clock[0] += 1.0
        first, self.sent = self.sent[:1], self.sent[1:]
        return first


def test_a_slow_answer_ends_at_the_deadline_of_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(stream, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    line = Drip(WHOLE, clock)
    with pytest.raises(UsageError, match="the supervisor does not answer"):
        control.ControlClient(line).status()  # type: ignore[arg-type]
    assert clock[0] <= control.ANSWER_S + 1.0
    assert line.timeout == control.ANSWER_S
