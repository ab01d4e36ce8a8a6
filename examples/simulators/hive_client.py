"""Lets hive train on a simulator that is written in Python, without hive in its process.

Copy this file. It needs Python 3.8 and the package msgpack. The protocol: examples/guide/simulator-protocol.md.

    from hive_client import box, discrete, serve

    class World:
        observation = box([4])
        action = discrete(2)

        def __init__(self, index, options): ...
        def reset(self, seed, options): return observation
        def step(self, action): return observation, reward, terminated, truncated

    serve(World)

`serve` makes a World for each environment, answers the requests of hive and returns when hive is finished. hive starts
the program (env.command), or the program listens: serve(World, listen="127.0.0.1:47000"), with env.connect in hive.

reset: seed is an integer, or None: go on with the random numbers that the world has. options: env.reset_options.
step may return a dictionary of numbers as a fifth value, those of `World.info`; hive uses them at the ends of episodes.
An observation is a flat or nested sequence of numbers, an array, or raw bytes; of a dictionary space, a dictionary. So
is an action: a number of a discrete space, otherwise a flat list of numbers, or a dictionary of these.

Further attributes of World, all optional: name, max_episode_steps (hive truncates episodes there), deterministic (equal
seeds and actions give equal bytes), info (names), and a method render(), which returns (height, width, RGB bytes).
"""

from __future__ import annotations

import array
import os
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

import msgpack

VERSION = 1
MOST_BYTES = 1 << 26  # of a request
TYPES = {"uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i", "int64": "q"}
TYPES.update({"float32": "f", "float64": "d"})


def box(shape: Any, dtype: str = "float32", low: Any = None, high: Any = None) -> Any:
    """Describe an array of numbers. low, high: one number for all elements, None for no bound, or raw bytes of all."""
    return {"type": "box", "dtype": dtype, "shape": list(shape), "low": low, "high": high}


def discrete(n: int, start: int = 0) -> Any:
    """Describe one of n integers from `start`."""
    return {"type": "discrete", "n": n, "start": start}


def multi_discrete(nvec: Any, start: Any = None) -> Any:
    """Describe several integers at once; the i-th is one of nvec[i]."""
    return {"type": "multi_discrete", "nvec": list(nvec), "start": start}


def multi_binary(shape: Any) -> Any:
    """Describe an array of bits."""
    return {"type": "multi_binary", "shape": list(shape)}


def dictionary(**parts: Any) -> Any:
    """Describe several of the others, each with a name."""
    return {"type": "dict", "parts": parts}


def serve(world: Callable[[int, Any], Any], listen: str | None = None) -> None:
    """Answer hive until it is finished. world: called with (index, options) for each environment.

    listen: "127.0.0.1:47000" or "unix:/path" to wait for hive there; it may come again after it has gone. None: what
    hive says, which is to connect to it if env.connect is not set.
    """
    listen = listen or os.environ.get("HIVE_ENV_LISTEN")
    if not listen:
        if "HIVE_ENV_ADDRESS" not in os.environ:
            raise SystemExit("hive starts this program (env.command), or give serve() an address to listen at")
        _answer(_connected(os.environ["HIVE_ENV_ADDRESS"]), world)
        return
    with _listening(listen) as server:
        started = "HIVE_ENV_LISTEN" in os.environ  # by hive, for one conversation
        while True:
            connection, _ = server.accept()
            _answer(connection, world)
            if started:
                return


def _connected(address: str) -> socket.socket:
    family, to = _place(address)
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.connect(to)
    return connection


def _listening(address: str) -> socket.socket:
    family, to = _place(address)
    server = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    elif os.path.exists(to):
        os.unlink(to)
    server.bind(to)
    server.listen(1)
    return server


def _place(address: str) -> Any:
    if address.startswith("unix:"):
        return socket.AF_UNIX, address[len("unix:") :]
    host, _, port = address.rpartition(":")
    return socket.AF_INET, (host, int(port))


def _answer(connection: socket.socket, world: Callable[[int, Any], Any]) -> None:
    """Answer every request of one connection."""
    if connection.family == socket.AF_INET:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    worlds = _Worlds(world)
    with connection:
        while True:
            request = _read(connection)
            if request is None:
                return
            kind, number = request.get("request"), request.get("number")
            try:
                if kind == "hello" and request.get("version") != VERSION:
                    raise ValueError(f"this program speaks version {VERSION}")
                if kind not in ("hello", "reset", "step", "render", "close"):
                    raise ValueError(f"unknown request {kind!r}")
                answer = getattr(worlds, kind)(request)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"[:1000]}
            version = {"version": VERSION} if kind == "hello" else {}
            body = msgpack.packb({**version, "number": number, **answer}, use_bin_type=True)
            connection.sendall(struct.pack("<I", len(body)) + body)
            if kind == "close" or "error" in answer:
                return


def _read(connection: socket.socket) -> Any:
    """Return a request, None if hive is gone."""
    head = _bytes(connection, 4)
    if head is None:
        return None
    (size,) = struct.unpack("<I", head)
    if not 0 < size <= MOST_BYTES:
        raise SystemExit(f"a request of {size} bytes")
    body = _bytes(connection, size)
    return None if body is None else msgpack.unpackb(body, raw=False, max_bin_len=size, max_map_len=10000)


def _bytes(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 16))
        if not part:
            return None
        data += part
    return bytes(data)


class _Worlds:
    """The environments of one connection."""

    def __init__(self, world: Callable[[int, Any], Any]) -> None:
        self.world = world
        self.each: list[Any] = []

    def hello(self, request: Any) -> dict[str, Any]:
        indices, options = request["indices"], request["options"]
        self.each = [self.world(index, own) for index, own in zip(indices, options)]  # noqa: B905
        first = self.each[0]
        self.observation, self.action = first.observation, first.action
        self.info = list(getattr(first, "info", ()))
        answer = {
            "secret": os.environ.get("HIVE_ENV_SECRET", ""),
            "name": getattr(first, "name", type(first).__name__),
            "observation": self.observation,
            "action": self.action,
            "count": len(self.each),
            "deterministic": bool(getattr(first, "deterministic", False)),
            "max_episode_steps": getattr(first, "max_episode_steps", None),
            "info": self.info,
            "renders": hasattr(first, "render"),
        }
        return answer

    def reset(self, request: Any) -> dict[str, Any]:
        which, seeds, options = request["which"], request["seeds"], request["options"]
        seeds = seeds or [None] * len(which)
        seen = [self.each[b].reset(seed, own) for b, seed, own in zip(which, seeds, options)]  # noqa: B905
        return {"observations": _joined(self.observation, seen)}

    def step(self, request: Any) -> dict[str, Any]:
        actions = _divided(self.action, request["actions"], len(self.each))
        results = [one.step(action) for one, action in zip(self.each, actions)]  # noqa: B905
        info = [result[4] if len(result) > 4 else {} for result in results]
        answer = {
            "observations": _joined(self.observation, [result[0] for result in results]),
            "rewards": _little("f", [float(result[1]) for result in results]),
            "terminated": bytes(bool(result[2]) for result in results),
            "truncated": bytes(bool(result[3]) for result in results),
        }
        if self.info:
            values = {name: [float(one.get(name, "nan")) for one in info] for name in self.info}
            answer["info"] = {name: _little("f", each) for name, each in values.items()}
        return answer

    def render(self, request: Any) -> dict[str, Any]:
        height, width, pixels = self.each[request["environment"]].render()
        return {"height": height, "width": width, "pixels": bytes(pixels)}

    def close(self, request: Any) -> dict[str, Any]:
        for one in self.each:
            getattr(one, "close", int)()
        return {}


def _code(space: Any) -> str:
    """Return the type code of the elements of a space in messages."""
    return TYPES[space["dtype"]] if space["type"] == "box" else "B" if space["type"] == "multi_binary" else "q"


def _joined(space: Any, observations: Any) -> Any:
    """Return observations of several environments as raw bytes; of a dictionary space, a dictionary of bytes."""
    if space["type"] == "dict":
        return {name: _joined(part, [seen[name] for seen in observations]) for name, part in space["parts"].items()}
    code = _code(space)
    return b"".join(_raw(code, seen) for seen in observations)


def _raw(code: str, value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    try:
        view = memoryview(value)
    except TypeError:
        return _little(code, _flat(value))
    if view.format == code or (view.itemsize == 8 and code == "q" and view.format == "l"):
        return view.tobytes()  # of a NumPy array, for example
    return _little(code, _flat(view.tolist()))


def _flat(value: Any) -> list[Any]:
    """Return the numbers of a nested sequence, in order."""
    if hasattr(value, "__len__"):
        return [number for one in value for number in _flat(one)]
    return [value]


def _little(code: str, numbers: Any) -> bytes:
    """Return numbers as raw little-endian bytes."""
    packed: Any = array.array(code, numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return bytes(packed.tobytes())


def _divided(space: Any, raw: Any, count: int) -> list[Any]:
    """Return the action of each environment."""
    if space["type"] == "dict":
        parts = {name: _divided(part, raw[name], count) for name, part in space["parts"].items()}
        return [{name: each[b] for name, each in parts.items()} for b in range(count)]
    numbers: Any = array.array(_code(space))
    numbers.frombytes(raw)
    if sys.byteorder == "big":
        numbers.byteswap()
    size = len(numbers) // count
    if space["type"] == "discrete":
        return list(numbers)
    return [list(numbers[b * size : (b + 1) * size]) for b in range(count)]
