from __future__ import annotations

import asyncio
import dataclasses
import errno
import gc
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from hive.errors import UsageError
from hive.records import RunDirectory, RunFacts, write_run_facts
from hive.runtime.run import control, control_server
from hive.runtime.run.control import (
    ANSWERS,
    PROTOCOL,
    REQUESTS,
    Down,
    GiveStatus,
    Inspect,
    InspectReply,
    KillActor,
    OtherProtocol,
    RequestAccepted,
    RequestRefused,
    Scale,
    StatusReply,
    Watch,
    control_path,
    open_control,
    open_run,
)
from hive.runtime.run.control_server import INSPECTION_BYTES, MAX_VIEWS, MAX_WATCHING, REQUEST_BYTES, ControlServer
from hive.runtime.wire.messages import Message, decode, encode
from hive.runtime.wire.stream import LENGTH, pack, read

ACTOR = {"name": "a-0", "pid": 7, "state": "running", "restarts": 0, "activity": "step", "since_s": 0.5, "busy": 1.0}
ACTOR |= {"wait_in": 0.0, "wait_out": None, "version": 3, "lag": None, "counters": {"steps": 1.0}}
STATUS = {
    "run": "cart-1",
    "pid": 7,
    "started": 1.7e9,
    "steps": 100,
    "state": "running",
    "actors": [ACTOR],
    "helpers": [],
    "channels": {"out": {"produced": 1, "consumed": 1, "dropped": {}, "in_flight": 0}},
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of a short name: pytest's own may be too long for a socket."""
    path = Path(tempfile.mkdtemp(prefix="hive-test-"))
    yield path
    shutil.rmtree(path)


class Run:
    """Records the requests that the server passes on."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.shown = 0
        self.error: Exception | None = None
        self.scaled: list[tuple[str, ...]] = []
        self.large = ""
        self.steered: list[str] = []
        self.killed: list[tuple[str, bool]] = []

    def status(self) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        self.shown += 1
        return STATUS | ({"large": self.large} if self.large else {})

    def down(self, reason: str, now: bool) -> None:
        self.asked.append((reason, now))

    def set(self, sets: Sequence[str]) -> None:
        self.steered.append(" ".join(("set", *sets)))

    def scale(self, sets: Sequence[str]) -> None:
        if "collection.workers=0" in sets:
            raise UsageError("nobody would collect", hint="take one")
        self.scaled.append(tuple(sets))

    def pause(self) -> None:
        self.steered.append("pause")

    def resume(self) -> None:
        if "pause" not in self.steered:
            raise UsageError("the run is not paused")
        self.steered.append("resume")

    def save(self) -> None:
        self.steered.append("save")

    async def inspect(self, actor: str, stack: bool) -> tuple[str, list[str]]:
        await asyncio.sleep(0)
        if actor != "a-0":
            raise UsageError(f"no actor `{actor}`")
        return (f"in run of {actor}" if stack else "") + self.large, ["starting -ready-> ready"]

    def kill(self, actor: str, by_hand: bool) -> None:
        self.killed.append((actor, by_hand))


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[ControlServer, Run]]:
    run = Run()
    server = ControlServer(control_path(folder), run)
    await server.start()
    try:
        async with asyncio.timeout(10):
            yield server, run
    finally:
        await server.close()
        await until(lambda: not server.views)


async def until(condition: Any) -> None:
    """Lets the loop run until something is so."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


@asynccontextmanager
async def view(folder: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(control_path(folder))
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def ask(ends: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: Message) -> Message:
    ends[1].write(pack(request))
    return await read(ends[0], ANSWERS)


# --- the supervisor's side


async def test_a_view_may_request_the_status_repeatedly(folder: Path) -> None:
    async with serving(folder) as (server, run), view(folder) as ends:
        for _ in range(3):
            assert await ask(ends, GiveStatus()) == StatusReply(STATUS)
        assert run.shown == 3
        assert len(server.views) == 1


async def test_a_view_ends_a_run(folder: Path) -> None:
    async with serving(folder) as (_, run), view(folder) as ends:
        assert await ask(ends, Down("enough", False)) == RequestAccepted()
        assert await ask(ends, Down("now", True)) == RequestAccepted()
        assert run.asked == [("enough", False), ("now", True)]


async def test_requests_are_answered_in_order(folder: Path) -> None:
    async with serving(folder) as (_, run), view(folder) as (reader, writer):
        writer.write(pack(GiveStatus()) + pack(Down("x", False)) + pack(GiveStatus()))
        answers = [await read(reader, ANSWERS) for _ in range(3)]
        assert answers == [StatusReply(STATUS), RequestAccepted(), StatusReply(STATUS)]
        assert run.asked == [("x", False)]


async def test_leaving_changes_nothing_for_the_run(folder: Path) -> None:
    async with serving(folder) as (server, run):
        async with view(folder) as ends:
            await ask(ends, GiveStatus())
        await until(lambda: not server.views)
        assert run.asked == []
        async with view(folder) as ends:
            assert await ask(ends, GiveStatus()) == StatusReply(STATUS)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        LENGTH.pack(2**32 - 1) + b"x",
        LENGTH.pack(3) + b"\xff\xff\xff",
        LENGTH.pack(0),
        pack(RequestAccepted()),
        pack(Down("x", False))[:4] + b"\x93\xa4Down\x01\x02",
    ],
)
async def test_garbage_closes_that_connection_and_nothing_else(folder: Path, garbage: bytes) -> None:
    async with serving(folder) as (server, run), view(folder) as other:
        async with view(folder) as (reader, writer):
            writer.write(garbage)
            writer.write_eof()
            assert await reader.read() == b""
        assert await ask(other, GiveStatus()) == StatusReply(STATUS)
        await until(lambda: len(server.views) == 1)
        assert run.asked == []


async def test_a_status_that_raises_costs_that_view_only(folder: Path) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["exception"]))
    async with serving(folder) as (_, run), view(folder) as other:
        run.error = KeyError("page")
        async with view(folder) as (reader, writer):
            writer.write(pack(GiveStatus()))
            assert await reader.read() == b""
        run.error = None
        assert await ask(other, GiveStatus()) == StatusReply(STATUS)
    gc.collect()  # before Python 3.12 a task's error is told when the task is thrown away
    assert [type(error) for error in complaints] == [KeyError]


async def test_silent_views_lock_no_command_out(folder: Path) -> None:
    async with serving(folder) as (server, _):
        silent = [await asyncio.open_unix_connection(control_path(folder)) for _ in range(MAX_VIEWS)]
        await until(lambda: len(server.views) == MAX_VIEWS)
        async with view(folder) as late:
            assert await ask(late, GiveStatus()) == StatusReply(STATUS)
            assert await silent[0][0].read() == b"", "the one that was silent longest has lost its place"
            assert len(server.views) == MAX_VIEWS
            async with view(folder) as later:
                assert await ask(later, GiveStatus()) == StatusReply(STATUS)
                assert await ask(late, GiveStatus()) == StatusReply(STATUS), "one that has asked keeps its place"
        for _, writer in silent:
            writer.close()


async def test_views_that_watch_leave_places_for_commands(folder: Path) -> None:
    async with serving(folder) as (server, _):
        watching = [await asyncio.open_unix_connection(control_path(folder)) for _ in range(MAX_WATCHING)]
        for ends in watching:
            assert await ask(ends, Watch()) == StatusReply(STATUS)
        async with view(folder) as late:
            refused = await ask(late, Watch())
            assert refused == RequestRefused(f"{MAX_WATCHING} views watch this run already", "close one of them")
            assert await ask(late, GiveStatus()) == StatusReply(STATUS)
        for _, writer in watching:
            writer.close()
        await until(lambda: not server.views)


@pytest.mark.parametrize("begun", [LENGTH.pack(REQUEST_BYTES + 1), LENGTH.pack(1 << 31)])
async def test_a_request_that_is_too_large_is_refused_before_its_bytes_are_read(folder: Path, begun: bytes) -> None:
    async with serving(folder), view(folder) as (reader, writer):
        writer.write(begun)
        assert await reader.read() == b""


@pytest.mark.parametrize("begun", [b"\x05", LENGTH.pack(100), LENGTH.pack(100) + b"x" * 99])
async def test_a_request_that_is_begun_must_be_completed_soon(
    folder: Path, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "REQUEST_S", 0.02)
    async with serving(folder), view(folder) as (reader, writer), view(folder) as idle:
        writer.write(begun)
        assert await reader.read() == b""
        assert await ask(idle, GiveStatus()) == StatusReply(STATUS), "one that has begun nothing may take its time"


async def test_closing_ends_every_view(folder: Path) -> None:
    async with serving(folder) as (server, _), view(folder) as ends:
        await ask(ends, GiveStatus())
        await server.close()
        assert await ends[0].read() == b""
        with pytest.raises(OSError):  # noqa: PT011
            await asyncio.open_unix_connection(control_path(folder))


either_loop = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@either_loop
@pytest.mark.parametrize("turns", range(8))
def test_closing_ends_a_view_that_has_only_just_come(
    folder: Path, turns: int, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """The connection is closed however far the loop has got with it, not only by a later garbage collection."""

    async def serve(line: socket.socket) -> None:
        run = Run()
        server = ControlServer(control_path(folder), run)
        await server.start()
        line.connect(str(control_path(folder)))
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.close()

    gc.disable()
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(1.0)
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(serve(line))
            try:
                assert line.recv(1) == b""
            except ConnectionResetError:
                pass  # it was never accepted
    finally:
        gc.enable()


@either_loop
def test_closing_does_not_wait_for_a_view_that_does_not_read(
    folder: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def serve(line: socket.socket) -> None:
        run = Run()
        run.large = "x" * 1_000_000
        server = ControlServer(control_path(folder), run)
        await server.start()
        line.connect(str(control_path(folder)))
        line.sendall(pack(GiveStatus()) * 10)
        await until(lambda: run.shown > 0)
        async with asyncio.timeout(10):
            await server.close()
        assert not server.views
        assert run.shown < 10

    with socket.socket(socket.AF_UNIX) as line, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(line))


class Full:
    """A listening socket in a process that had no descriptor left, once."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.refused = 0

    def fileno(self) -> int:
        return self.listener.fileno()

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.refused:
            self.refused += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self.listener.accept()

    def close(self) -> None:
        self.listener.close()


async def test_a_view_that_finds_no_descriptor_is_let_in_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "ACCEPT_AGAIN_S", 0.0)
    async with serving(folder) as (server, _):
        server.listener = full = Full(server.listener)  # type: ignore[assignment]
        async with view(folder) as ends:
            assert await ask(ends, GiveStatus()) == StatusReply(STATUS)
        assert full.refused == 1


async def test_a_removed_path_is_bound_again(folder: Path) -> None:
    """Views of before stay connected. The folder itself is made by the run, not by the server."""
    async with serving(folder) as (server, _), view(folder) as early:
        shutil.rmtree(folder)
        server._bind_again()
        assert not folder.exists()
        folder.mkdir()
        server._bind_again()
        server._bind_again()
        for _ in range(2):
            async with view(folder) as late:
                assert await ask(late, GiveStatus()) == StatusReply(STATUS)
        assert await ask(early, GiveStatus()) == StatusReply(STATUS)


async def test_a_server_that_never_started_can_be_closed(folder: Path) -> None:
    run = Run()
    await ControlServer(control_path(folder), run).close()


async def test_a_refusal_has_a_hint_and_leaves_the_connection_open(folder: Path) -> None:
    async with serving(folder) as (_, run), view(folder) as ends:
        refused = await ask(ends, Scale(("collection.workers=0",)))
        assert refused == RequestRefused("nobody would collect", "take one")
        assert await ask(ends, Scale(("collection.workers=4", "gradients.workers=2"))) == RequestAccepted()
        assert run.scaled == [("collection.workers=4", "gradients.workers=2")]


# --- views that watch


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send the status every hundredth of a second instead of every second."""
    monkeypatch.setattr(control_server, "PUSH_S", 0.01)


@pytest.mark.usefixtures("at_once")
async def test_a_watching_view_receives_the_status_repeatedly(folder: Path) -> None:
    async with serving(folder) as (server, run):
        async with view(folder) as ends:
            assert await ask(ends, Watch()) == StatusReply(STATUS)
            assert [await read(ends[0], ANSWERS) for _ in range(3)] == [StatusReply(STATUS)] * 3
            assert run.shown >= 4
        await until(lambda: not server.views)
        await until(lambda: len(asyncio.all_tasks()) == 1)  # no task sends the status any more


@pytest.mark.usefixtures("at_once")
async def test_one_document_serves_all_watching_views(folder: Path) -> None:
    async with serving(folder) as (_, run), view(folder) as first, view(folder) as second:
        await ask(first, Watch())
        await ask(second, Watch())
        for _ in range(20):
            await read(first[0], ANSWERS)
            await read(second[0], ANSWERS)
        assert run.shown <= 2 + 30  # and not 42


@pytest.mark.usefixtures("at_once")
async def test_who_watches_can_ask_too(folder: Path) -> None:
    async with serving(folder) as (_, run), view(folder) as (reader, writer):
        writer.write(pack(Watch()) + pack(Watch()) + pack(KillActor("a-0", True)))
        told = [await read(reader, ANSWERS) for _ in range(6)]
        assert told.count(RequestAccepted()) == 1
        assert told.count(StatusReply(STATUS)) == 5
        assert run.killed == [("a-0", True)]


@pytest.mark.usefixtures("at_once")
async def test_a_view_that_does_not_read_misses_some(folder: Path) -> None:
    """The server buffers a bounded number of bytes for it."""
    async with serving(folder) as (_, run), view(folder) as other:
        run.large = "x" * 500_000
        async with view(folder) as (_, writer):
            writer.write(pack(Watch()))
            await ask(other, Watch())
            for _ in range(50):
                await read(other[0], ANSWERS)
            tasks = [task for task in asyncio.all_tasks() if "_push" in repr(task)]
            waiting = [task.get_coro().cr_frame.f_locals["writer"].transport for task in tasks]  # type: ignore[union-attr]
            assert max(transport.get_write_buffer_size() for transport in waiting) < 3 * len(run.large)


@pytest.mark.usefixtures("at_once")
async def test_a_status_that_raises_ends_the_view_that_watches(folder: Path) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["exception"]))
    async with serving(folder) as (_, run), view(folder) as other:
        async with view(folder) as ends:
            await ask(ends, Watch())
            run.error = KeyError("page")
            while await ends[0].read(1 << 16):
                pass
        run.error = None
        assert await ask(other, GiveStatus()) == StatusReply(STATUS)
    gc.collect()
    assert [type(error) for error in complaints] == [KeyError]


async def test_an_actor_is_inspected(folder: Path) -> None:
    async with serving(folder) as (_, run), view(folder) as ends:
        assert await ask(ends, Inspect("a-0", True)) == InspectReply("in run of a-0", ("starting -ready-> ready",))
        assert await ask(ends, Inspect("b-0", True)) == RequestRefused("no actor `b-0`", "")
        run.large = "x" * (2 * INSPECTION_BYTES)  # more than a message carries
        inspection = await ask(ends, Inspect("a-0", True))
        assert isinstance(inspection, InspectReply)
        assert len(inspection.stack) == INSPECTION_BYTES


# --- a view's side


@pytest.mark.usefixtures("at_once")
async def test_a_client_watches_inspects_and_kills(folder: Path) -> None:
    def look() -> list[dict[str, Any]]:
        watching, asking = open_control(folder), open_control(folder)
        seen = [watching.watch(), watching.next_status(), watching.next_status()]
        assert asking.inspect("a-0") == ("in run of a-0", ("starting -ready-> ready",))
        asking.kill("a-0", by_hand=False)
        watching.close()
        asking.close()
        return seen

    async with serving(folder) as (server, run):
        assert await asyncio.to_thread(look) == [STATUS] * 3
        assert run.killed == [("a-0", False)]
        await until(lambda: not server.views)


def test_an_unexpected_reply_to_a_watching_view(folder: Path, listener: socket.socket) -> None:
    client = open_control(folder)
    line, _ = listener.accept()
    line.sendall(pack(StatusReply(STATUS)) + pack(RequestAccepted()))
    assert client.watch() == STATUS
    with pytest.raises(UsageError, match="sent an invalid reply: RequestAccepted instead of StatusReply") as caught:
        client.next_status()
    assert "another program" in caught.value.hint
    line.close()
    client.close()


async def test_a_client_scales_and_receives_refusals(folder: Path) -> None:
    def scale(count: int) -> None:
        client = open_control(folder)
        try:
            client.scale([f"collection.workers={count}"])
        finally:
            client.close()

    async with serving(folder) as (server, run):
        await asyncio.to_thread(scale, 3)
        with pytest.raises(UsageError, match="nobody would collect") as caught:
            await asyncio.to_thread(scale, 0)
        assert caught.value.hint == "take one"
        assert run.scaled == [("collection.workers=3",)]
        await until(lambda: not server.views)


async def test_a_client_sets_keys_and_receives_refusals(folder: Path) -> None:
    async with serving(folder) as (_, run):

        def steer() -> None:
            client = open_control(folder)
            with pytest.raises(UsageError, match=r"(?m)^the run is not paused$"):
                client.resume()
            client.pause()
            client.resume()
            client.save()
            client.set(["algorithm.learning_rate=1e-4"])
            assert client.inspect("a-0", stack=False) == ("", ("starting -ready-> ready",))
            client.close()

        await asyncio.get_running_loop().run_in_executor(None, steer)
        assert run.steered == ["pause", "resume", "save", "set algorithm.learning_rate=1e-4"]


async def test_a_client_sends_requests_and_disconnects(folder: Path) -> None:
    def look() -> dict[str, Any]:
        client = open_control(folder)
        status = client.status()
        client.down("enough")
        client.down("at once", now=True)
        client.close()
        return status

    async with serving(folder) as (server, run):
        assert await asyncio.to_thread(look) == STATUS
        assert run.asked == [("enough", False), ("at once", True)]
        await until(lambda: not server.views)


def test_a_change_of_the_messages_is_another_protocol() -> None:
    """A change of a message increases PROTOCOL and is written down here. Names of fields are not on the wire."""
    said = {name: dict(cls.__annotations__) for name, cls in (REQUESTS | ANSWERS).items()}
    assert (PROTOCOL, said) == (
        2,
        {
            **{key: {} for key in ("GiveStatus", "Watch", "PauseRun", "ResumeRun", "Save", "RequestAccepted")},
            "Inspect": {"actor": "str", "stack": "bool"},
            "KillActor": {"actor": "str", "by_hand": "bool"},
            "Down": {"reason": "str", "now": "bool"},
            "RequestRefused": {"text": "str", "hint": "str"},
            **{key: {"sets": "tuple[str, ...]"} for key in ("Set", "Scale")},
            "StatusReply": {"status": "Tree"},
            "InspectReply": {"stack": "str", "transitions": "tuple[str, ...]"},
        },
    )


async def test_a_run_of_another_hive_is_refused_by_its_protocol(folder: Path) -> None:
    directory = RunDirectory.create(folder, "cart")
    facts = RunFacts("cart-1", os.getpid(), 1, str(folder), 0.0, [], "0.0.9", "3.11", protocol=PROTOCOL)
    async with serving(folder):
        write_run_facts(directory, facts)
        client = await asyncio.to_thread(open_run, directory)
        assert await asyncio.to_thread(client.status) == STATUS
        client.close()
        write_run_facts(directory, dataclasses.replace(facts, protocol=PROTOCOL + 1))
        with pytest.raises(
            UsageError, match=rf"(?m)speaks protocol {PROTOCOL}, cart-1 speaks {PROTOCOL + 1}$"
        ) as caught:
            open_run(directory)
    assert isinstance(caught.value, OtherProtocol)
    assert caught.value.hint.startswith("use the hive that started it (0.0.9); `kill -TERM ")


def test_no_supervisor_listens(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"no supervisor listens in .*No such file or directory"):
        open_control(folder)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(control_path(folder)))
    with pytest.raises(UsageError, match=r"no supervisor listens in .*Connection refused"):
        open_control(folder)


@pytest.fixture
def listener(folder: Path) -> Iterator[socket.socket]:
    """A supervisor that does as a test says."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(control_path(folder)))
        listening.listen(1)
        yield listening


def test_a_supervisor_that_does_not_answer(
    folder: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "ANSWER_S", 0.01)
    client = open_control(folder)
    with pytest.raises(UsageError, match="the supervisor does not answer") as caught:
        client.status()
    assert caught.value.hint == "it may be stopped: check its state with `ps`"
    client.close()


def test_a_supervisor_that_exits_before_it_answers(folder: Path, listener: socket.socket) -> None:
    client = open_control(folder)
    line, _ = listener.accept()
    line.sendall(pack(StatusReply(STATUS))[:10])
    line.shutdown(socket.SHUT_WR)
    with pytest.raises(UsageError, match="the supervisor is gone"):
        client.status()
    line.close()
    with pytest.raises(UsageError, match=r"the supervisor is gone \(.*Broken pipe\)"):
        client.down("x")
    client.close()


def test_an_answer_that_is_garbage(folder: Path, listener: socket.socket) -> None:
    client = open_control(folder)
    line, _ = listener.accept()
    line.sendall(LENGTH.pack(2) + b"\xff\xff")
    with pytest.raises(UsageError, match="sent an invalid reply: not msgpack"):
        client.status()
    line.close()
    client.close()


def test_the_control_socket_lies_in_the_socket_folder(folder: Path) -> None:
    assert control_path(folder) == folder / "control"
    assert len(os.fsencode(control_path(folder))) < 107


@pytest.mark.parametrize("answer", [StatusReply(STATUS), RequestAccepted()])
def test_answers_are_messages(answer: Message) -> None:
    assert decode(encode(answer), ANSWERS) == answer
