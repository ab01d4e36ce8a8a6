"""Callbacks that are objects of the program which has started a run, and stay in its process.

    calling process   `ObjectServer`: a thread that calls the objects        <── socket ──>   run: a `Caller` for each

To the run a Caller is a callback like any other: it is called by number, and the learner waits for its answer. What
travels is plain data (hive.plain_data). A calling process that has ended makes its callbacks fail.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import zmq

from hive.errors import CallbackFailed
from hive.plain_data import pack, unpack
from hive.runtime.actor.error_location import named
from hive.training.callbacks.calling import ForwardingCallback, call
from hive.training.callbacks.events import Actions, handlers_of

POLL_MS = 200  # between two looks whether the other process still exists
CREATED_S = 0.01  # difference at which two times of the creation of a process are those of two processes
REFERENCE = "hive.training.callbacks.caller:Caller"


class Caller(ForwardingCallback):
    """Forwards events to an object of another process.

    address: of its ObjectServer. token: that the server expects. number: of the object. pid, created: of its process.
    handlers: the methods of Callback that the object has.
    """

    def __init__(
        self, address: str, token: str, number: int, pid: int, created: float, handlers: Sequence[str], shown: str
    ) -> None:
        self.handlers = tuple(handlers)
        self.shown = shown
        self._process = pid, created
        self._request = token, number
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.connect(address)

    def forward(self, kind: str, data: Mapping[str, Any], names: Sequence[str]) -> Actions:
        """Return what the object asks for. Raises CallbackFailed if it raises, or if its process has ended."""
        self._socket.send(pack([*self._request, kind, dict(data), list(names)]))
        while not self._socket.poll(POLL_MS):
            if not self._exists():
                raise CallbackFailed("the program that started the run has ended")
        answer = unpack(self._socket.recv())
        if answer["error"]:
            raise CallbackFailed(answer["error"])
        return Actions(answer["stop"], answer["log"], [(kind, name, value) for kind, name, value in answer["changes"]])

    def _exists(self) -> bool:
        pid, created = self._process
        try:
            return bool(abs(psutil.Process(pid).create_time() - created) < CREATED_S)
        except psutil.NoSuchProcess:
            return False


class ObjectServer:
    """Calls objects for a run: a context manager. entries: what `run.callbacks` has in their place."""

    def __init__(self, objects: Sequence[Any]) -> None:
        self._objects = list(objects)
        self._token = secrets.token_hex(16)
        self._folder = tempfile.TemporaryDirectory(prefix="hive-")  # which only this user can enter
        self._address = f"ipc://{Path(self._folder.name) / 'callbacks'}"
        self._context = zmq.Context()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="hive-callbacks", daemon=True)
        self.errors: list[BaseException] = []

    @property
    def entries(self) -> list[dict[str, Any]]:
        """What `run.callbacks` has for each object."""
        process = psutil.Process(os.getpid())
        shared = {"name": REFERENCE, "address": self._address, "token": self._token}
        return [
            {
                **shared,
                "number": number,
                "pid": process.pid,
                "created": process.create_time(),
                "handlers": list(handlers_of(one)),
                "shown": type(one).__qualname__,
            }
            for number, one in enumerate(self._objects)
        ]

    def __enter__(self) -> ObjectServer:
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(self._address)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._context.destroy(linger=0)
        self._folder.cleanup()

    def _serve(self) -> None:
        while not self._stop.is_set():
            if self._socket.poll(POLL_MS):
                identity, content = self._socket.recv_multipart()
                if (answer := self._answer(content)) is not None:
                    self._socket.send_multipart([identity, answer])
        self._socket.close()

    def _answer(self, content: bytes) -> bytes | None:
        """Call an object; None for a request that is not of this run."""
        try:
            token, number, kind, data, names = unpack(content)
        except (ValueError, TypeError):
            return None
        if not secrets.compare_digest(str(token), self._token):
            return None
        one = self._objects[number]
        try:
            actions, error = call(one, handlers_of(one), kind, data, names), ""
        except Exception as raised:
            self.errors.append(raised)
            actions, error = Actions(), " ".join(named(raised).split())
        return pack(
            {"stop": actions.stop, "log": actions.log, "changes": [*map(list, actions.changes)], "error": error}
        )
