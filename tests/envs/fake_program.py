"""A program of the simulator protocol in a thread, whose answers a test may replace, and its conversations as bytes."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
import numpy as np

Answer = dict[str, Any] | bytes | None
"""Fields of an answer; bytes to send as they are; None: the connection ends."""

HELLO = {
    "version": 1,
    "secret": "",
    "name": "Fake",
    "observation": {"type": "box", "dtype": "float32", "shape": [2]},
    "action": {"type": "discrete", "n": 3},
    "count": 1,
    "deterministic": True,
    "max_episode_steps": None,
    "info": ["height"],
    "renders": True,
}


def framed(message: Any) -> bytes:
    body = msgpack.packb(message)
    return struct.pack("<I", len(body)) + body


def usual(request: dict[str, Any]) -> dict[str, Any]:
    """What an honest program answers. Its observations are [number of the request, 0]."""
    number, count = request["number"], len(request.get("which", [0]))
    seen = np.tile(np.array([number, 0], "<f4"), (count, 1)).tobytes()
    match request["request"]:
        case "hello":
            return dict(HELLO)
        case "reset":
            return {"observations": seen}
        case "step":
            return {
                "observations": seen,
                "rewards": np.ones(1, "<f4").tobytes(),
                "terminated": b"\0",
                "truncated": b"\0",
                "info": {"height": np.full(1, 7, "<f4").tobytes()},
            }
        case "render":
            return {"height": 1, "width": 2, "pixels": bytes(range(6))}
    return {}


class FakeProgram:
    """Listens at `address`. answer: called with each request; an answer without a number gets that of the request."""

    def __init__(self, folder: Path, answer: Callable[[dict[str, Any]], Answer]) -> None:
        self.address = f"unix:{folder}/fake"
        self.requests: list[dict[str, Any]] = []
        self._answer = answer
        self._connection: socket.socket | None = None
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(f"{folder}/fake")
        self._server.listen(4)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        if self._connection is not None:
            with contextlib.suppress(OSError):  # a test that fails leaves it open
                self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._connection = connection
            with contextlib.suppress(OSError), connection, connection.makefile("rb") as file:  # hive may end it
                self._converse(connection, file)

    def _converse(self, connection: socket.socket, file: BinaryIO) -> None:
        while len(head := file.read(4)) == 4:
            request = msgpack.unpackb(file.read(*struct.unpack("<I", head)))
            self.requests.append(request)
            answer = self._answer(request)
            if answer is None:
                return
            if isinstance(answer, dict):
                number = {} if "number" in answer else {"number": request["number"]}
                answer = framed({**answer, **number})
            connection.sendall(answer)
