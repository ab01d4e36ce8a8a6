"""A supervisor that answers views over a real control socket, and says what a test tells it to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hive.errors import UsageError
from hive.runtime.control import ControlServer, control_path


class _Asked:
    """What the control socket asks of a fake supervisor."""

    def __init__(self, supervisor: FakeSupervisor) -> None:
        self.supervisor = supervisor

    def status(self) -> dict[str, Any]:
        return self.supervisor.status

    def down(self, reason: str, now: bool) -> None:
        self.supervisor.asked.append((reason, now))
        self.supervisor.on_down()

    def scale(self, sets: Sequence[str]) -> None:
        self.supervisor.scaled.append(tuple(sets))
        self.supervisor.on_scale()

    async def inspect(self, actor: str) -> tuple[str, Sequence[str]]:
        if not any(row["name"] == actor for row in self.supervisor.status["actors"]):
            raise UsageError(f"there is no actor `{actor}`")
        return f"in run of {actor}", ["starting -ready-> ready"]

    def kill(self, actor: str, by_hand: bool) -> None:
        if self.supervisor.refusal:
            raise UsageError(self.supervisor.refusal)
        self.supervisor.killed.append((actor, by_hand))


class FakeSupervisor:
    """Answers views from a thread, as a supervisor does from its process."""

    def __init__(self, folder: Path, status: dict[str, Any]) -> None:
        self.folder = folder
        self.status = status
        self.asked: list[tuple[str, bool]] = []
        self.on_down: Callable[[], None] = lambda: None
        self.scaled: list[tuple[str, ...]] = []
        self.on_scale: Callable[[], None] = lambda: None
        self.killed: list[tuple[str, bool]] = []
        self.refusal = ""  # of every kill
        self.listening = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.thread.start()
        assert self.listening.wait(10)

    async def _serve(self) -> None:
        self.loop, self.over = asyncio.get_running_loop(), asyncio.Event()
        server = ControlServer(control_path(self.folder), _Asked(self))
        await server.start()
        self.listening.set()
        await self.over.wait()
        await server.close()
        while server.views:
            await asyncio.sleep(0)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.over.set)
        self.thread.join(10)
        assert not self.thread.is_alive()
