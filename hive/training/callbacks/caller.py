"""Callbacks that are objects of the program which has started a run, and stay in its process.

    calling process   `ObjectServer`: a thread that calls the objects        <── Unix socket ──>   run: a `Caller` each

To the run a Caller is a callback like any other: it is called by number, and the learner waits for its answer. What
travels is plain data (hive.plain_data), with its length before it. When the calling process ends, its sockets close.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hive.errors import CallbackFailed
from hive.plain_data import pack, unpack
from hive.runtime.actor.error_location import explained
from hive.training.callbacks.calling import ForwardingCallback, call
from hive.training.callbacks.events import Actions, handlers_of, shown_name

HEADER = 8  # bytes of the length before a message
MOST_BYTES = 1 << 28  # of a message: a round of a million episodes, whose blocks in shared memory are as large
REFERENCE = "hive.training.callbacks.caller:Caller"
GONE = "the program that started the run has ended"


class Caller(ForwardingCallback):
    """Forwards events to an object of another process.

    address: of its ObjectServer. token: that the server expects. number: of the object. handlers: the methods of
    Callback that the object has. shown: what errors call it. Raises CallbackFailed if the process is gone.
    """

    def __init__(self, address: str, token: str, number: int, handlers: Sequence[str], shown: str) -> None:
        self.handlers = tuple(handlers)
        self.shown = shown
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(address)
        except OSError:
            raise CallbackFailed(f"the callback `{shown}`: {GONE}", hint="give callbacks=[...] when resuming") from None
        _send(self._socket, [token, number])

    def forward(self, kind: str, data: Mapping[str, Any], names: Sequence[str]) -> Actions:
        """Return what the object asks for. Raises CallbackFailed if it raises, or if its process has ended."""
        try:
            _send(self._socket, [kind, dict(data), list(names)])
            answer = _receive(self._socket)
        except (OSError, ValueError):
            raise CallbackFailed(GONE) from None
        if answer["error"]:
            raise CallbackFailed(answer["error"])
        return Actions(answer["stop"], answer["log"], [(kind, name, value) for kind, name, value in answer["changes"]])

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class ObjectServer:
    """Calls objects for a run: a context manager. entries: what `run.callbacks` has in their place."""

    def __init__(self, objects: Sequence[Any]) -> None:
        self._objects = list(objects)
        self._token = secrets.token_hex(16)
        self._folder = tempfile.TemporaryDirectory(prefix="hive-")  # which only this user can enter
        self._address = str(Path(self._folder.name) / "callbacks")
        self._listening = socket.socket(socket.AF_UNIX)
        self._open: list[socket.socket] = []
        # Of each object: the event that it has answered last, which a restarted Caller repeats, and the answer.
        self._last: list[tuple[Any, dict[str, Any]]] = [(None, {})] * len(self._objects)
        self._locks = [threading.Lock() for _ in self._objects]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """What `run.callbacks` has for each object."""
        shared = {"name": REFERENCE, "address": self._address, "token": self._token}
        return [
            {**shared, "number": number, "handlers": list(handlers_of(one)), "shown": shown_name(one)}
            for number, one in enumerate(self._objects)
        ]

    def __enter__(self) -> ObjectServer:
        self._listening.bind(self._address)
        self._listening.listen()
        threading.Thread(target=self._accept, name="hive-callbacks", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for one in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits there
            one.close()
        self._folder.cleanup()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=[connection], name="hive-callback", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Answer the events of one callback until its process ends."""
        with connection, contextlib.suppress(OSError, ValueError, TypeError):
            token, number = _receive(connection)
            while secrets.compare_digest(str(token), self._token):
                kind, data, names = _receive(connection)
                with self._locks[number]:
                    key, (last, answer) = (kind, data.get("event")), self._last[number]
                    if key != last:
                        answer = self._answer(self._objects[number], kind, data, names)
                        self._last[number] = key, answer
                _send(connection, answer)

    def _answer(self, one: Any, kind: str, data: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
        try:
            actions, error = call(one, handlers_of(one), kind, data, names), ""
        except BaseException as raised:  # also SystemExit, which would end this thread without a word
            actions, error = Actions(), explained(raised)
        return {"stop": actions.stop, "log": actions.log, "changes": [*map(list, actions.changes)], "error": error}


def _send(connection: socket.socket, value: Any) -> None:
    content = pack(value)
    connection.sendall(len(content).to_bytes(HEADER, "big") + content)


def _receive(connection: socket.socket) -> Any:
    """Return the next message. Raises OSError once the other end is closed, and ValueError for other bytes."""
    size = int.from_bytes(_exactly(connection, HEADER), "big")
    if size > MOST_BYTES:
        raise ValueError(f"a message of {size} bytes")
    return unpack(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = connection.recv(min(size - len(content), 1 << 20))
        if not part:
            raise ConnectionError("closed")
        content += part
    return bytes(content)
