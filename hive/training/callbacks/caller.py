"""Callbacks that are objects of the program which has started a run, and stay in its process.

    calling process   `ObjectServer`: a thread that calls the objects        <── Unix socket ──>   run: a `Caller` each

To the run a Caller is a callback like any other: it is called by number, and the learner waits for its answer. What
travels is plain data (hive.plain_data), with its length before it. When the calling process ends, its sockets close.

The socket lies in the user's private folder of sockets. Its address and a token reach the processes of the run by the
environment that the program gives the supervisor, and stand in no file. So a resumed run, which another program or
command has started, never connects to the objects of an earlier one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import stat
import struct
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hive.config import Config
from hive.errors import CallbackFailed
from hive.plain_data import pack, unpack
from hive.runtime.actor.error_location import explained
from hive.runtime.process.command import of_program
from hive.runtime.process.spawning import CALLBACKS
from hive.runtime.run.folders import check_socket_paths, make_socket_folder
from hive.runtime.run.live_run import PROGRAM_ENDED
from hive.training.callbacks.calling import ForwardingCallback, call
from hive.training.callbacks.events import Actions, handlers_of, shown_name

HEADER = 8  # bytes of the length before a message
MOST_BYTES = 1 << 28  # of a message: a round of a million episodes, whose blocks in shared memory are as large
REFERENCE = "hive.training.callbacks.caller:Caller"
SEPARATOR = "|"  # between path and token in an address
CREDENTIALS = "3i"  # of SO_PEERCRED: pid, uid and gid


class Caller(ForwardingCallback):
    """Forwards events to an object of the program that waits for this run.

    number: of the object. handlers: the methods of Callback that the object has. shown: what errors call it. Raises
    CallbackFailed if the program has ended or is another one, and if the socket could be another user's.
    """

    def __init__(self, number: int, handlers: Sequence[str], shown: str) -> None:
        self.handlers = tuple(handlers)
        self.shown = shown
        given = of_program.get() or os.environ  # the former in a run `inline`
        path, _, token = given.get(CALLBACKS, "").rpartition(SEPARATOR)
        if not path:
            raise not_of_this_program(shown)
        try:
            self._socket = _connected(Path(path))
        except FileNotFoundError:
            raise not_of_this_program(shown) from None
        except OSError as error:
            raise CallbackFailed(f"the callback `{shown}`: {error}") from None
        _send(self._socket, [token, number])

    def forward(self, kind: str, data: Mapping[str, Any], names: Sequence[str]) -> Actions:
        """Return what the object asks for. Raises CallbackFailed if it raises, or if its process has ended."""
        try:
            _send(self._socket, [kind, dict(data), list(names)])
            answer = _receive(self._socket)
        except (OSError, ValueError):
            raise CallbackFailed(PROGRAM_ENDED) from None
        if answer["error"]:
            raise CallbackFailed(answer["error"])
        return Actions(answer["stop"], answer["log"], [(kind, name, value) for kind, name, value in answer["changes"]])

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class ObjectServer:
    """Calls objects for a run: a context manager.

    entries: what `run.callbacks` has in their place. address: of the socket, with a token. Raises PlatformError if
    there is no private folder for sockets.
    """

    def __init__(self, objects: Sequence[Any]) -> None:
        self._objects = list(objects)
        self._token = secrets.token_hex(16)
        check_socket_paths()
        self._folder = make_socket_folder()
        self._path = self._folder / "callbacks"
        self.address = f"{self._path}{SEPARATOR}{self._token}"
        self._listening = socket.socket(socket.AF_UNIX)
        self._open: list[socket.socket] = []
        # Of each object: the event that it has answered last, which a restarted Caller repeats, and the answer.
        self._last: list[tuple[Any, dict[str, Any]]] = [(None, {})] * len(self._objects)
        self._locks = [threading.Lock() for _ in self._objects]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """What `run.callbacks` has for each object."""
        return [
            {"name": REFERENCE, "number": number, "handlers": list(handlers_of(one)), "shown": shown_name(one)}
            for number, one in enumerate(self._objects)
        ]

    def __enter__(self) -> ObjectServer:
        self._listening.bind(str(self._path))
        self._listening.listen()
        threading.Thread(target=self._accept, name="hive-callbacks", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for one in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits there
            one.close()
        shutil.rmtree(self._folder, ignore_errors=True)

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
            _check_peer(connection)
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


def check_objects(config: Config) -> None:
    """Raise CallbackFailed if callbacks are objects of another program than the one that starts the run now."""
    for one in config.run.callbacks:
        if isinstance(one, Mapping) and one["name"] == REFERENCE and CALLBACKS not in of_program.get():
            raise not_of_this_program(str(one["shown"]))


def not_of_this_program(shown: str) -> CallbackFailed:
    """Return the error for a callback that is an object of a program which does not wait for this run."""
    return CallbackFailed(
        f"the callback `{shown}` is an object of the program that started the run, and cannot be called without it",
        hint="give new ones, result.resume(callbacks=[...]), or continue without: -s run.callbacks=[]",
    )


def _connected(path: Path) -> socket.socket:
    """Return a connection to a process of this user. Raises OSError."""
    _check_private(path)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
        _check_peer(connection)
    except OSError:
        connection.close()
        raise
    return connection


def _check_private(path: Path) -> None:
    """Raise PermissionError unless the socket and its folder are this user's, and closed to others."""
    for place, is_kind in ((path, stat.S_ISSOCK), (path.parent, stat.S_ISDIR)):
        facts = place.lstat()
        if not is_kind(facts.st_mode) or facts.st_uid != os.getuid():
            raise PermissionError(f"{place} is not yours")
    if stat.S_IMODE(path.parent.lstat().st_mode) & 0o077:
        raise PermissionError(f"{path.parent} is open to other users")


def _check_peer(connection: socket.socket) -> None:
    """Raise PermissionError unless a process of this user has the other end."""
    size = struct.calcsize(CREDENTIALS)
    _, user, _ = struct.unpack(CREDENTIALS, connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if user != os.getuid():
        raise PermissionError(f"a process of user {user} listens there")


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
