"""A supervisor that answers views over a real control socket with replies set by a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hive.errors import UsageError
from hive.runtime.run.control import control_path
from hive.runtime.run.control_server import ControlServer


class _Asked:
    """The run that the control server calls: it records requests and returns canned replies."""

    def __init__(self, supervisor: FakeSupervisor) -> None:
        self.supervisor = supervisor

    def _may(self) -> None:
        if self.supervisor.refusal:
            raise UsageError(self.supervisor.refusal)

    def status(self) -> dict[str, Any]:
        if self.supervisor.script:
            self.supervisor.status = self.supervisor.script.pop(0)
        return self.supervisor.status

    def down(self, reason: str, now: bool) -> None:
        self.supervisor.asked.append((reason, now))
        self.supervisor.on_down()

    def set(self, sets: Sequence[str]) -> None:
        self._may()
        self.supervisor.steered.append(" ".join(("set", *sets)))

    def scale(self, sets: Sequence[str]) -> None:
        self.supervisor.scaled.append(tuple(sets))
        self.supervisor.on_scale()

    def pause(self) -> None:
        self._may()
        self.supervisor.steered.append("pause")
        self.supervisor.on_pause()

    def resume(self) -> None:
        self.supervisor.steered.append("resume")
        self.supervisor.on_resume()

    def save(self) -> None:
        self._may()
        self.supervisor.steered.append("save")
        self.supervisor.on_save()

    async def inspect(self, actor: str, stack: bool) -> tuple[str, Sequence[str]]:
        if not any(row["name"] == actor for row in self.supervisor.status["actors"]):
            raise UsageError(f"there is no actor `{actor}`")
        return f"in run of {actor}" if stack and not self.supervisor.mute else "", ["starting -ready-> ready"]

    def kill(self, actor: str, by_hand: bool) -> None:
        self._may()
        self.supervisor.killed.append((actor, by_hand))


class FakeSupervisor:
    """Answers views from a thread, as a supervisor does from its process."""

    def __init__(self, folder: Path, status: dict[str, Any]) -> None:
        self.folder = folder
        self.status = status
        self.script: list[dict[str, Any]] = []  # the next status documents, one for each request
        self.asked: list[tuple[str, bool]] = []
        self.on_down: Callable[[], None] = lambda: None
        self.scaled: list[tuple[str, ...]] = []
        self.on_scale: Callable[[], None] = lambda: None
        self.mute = False  # whether actors have no stack
        self.steered: list[str] = []
        self.on_pause: Callable[[], None] = lambda: None
        self.on_resume: Callable[[], None] = lambda: None
        self.on_save: Callable[[], None] = lambda: None
        self.killed: list[tuple[str, bool]] = []
        self.refusal = ""  # error of every kill, pause and save; "": none
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
