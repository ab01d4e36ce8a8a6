"""Runs made by hand for the server, and a client without a network. Also makes `canned_runs` importable."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hive.config import load_config, render
from hive.records import RunDirectory, RunFacts, Summary, find_runs, process_start_time, write_run_facts
from hive.runtime.run import control_server
from hive.runtime.run.control import PROTOCOL

sys.path.insert(0, str(Path(__file__).parents[1] / "monitor"))

from canned_runs import trainer
from fake_supervisor import FakeSupervisor

pytest.importorskip("starlette", reason="the extra `web` is not installed")

from hive.web.catalogue import Catalogue
from hive.web.guard import Guard
from hive.web.sampler import Samplers
from hive.web.site import Site

ENV = '[env]\nid = "CartPole-v1"\n'
HOST = "127.0.0.1:4483"


@dataclass
class Reply:
    """The answer to one request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


@dataclass
class Web:
    """A server without a socket, and the folder of its runs."""

    home: Path
    supervisors: list[FakeSupervisor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.samplers = Samplers()
        self.site = Site(Catalogue(lambda: find_runs(self.home)), self.samplers)
        self.guard = Guard(self.site.app, "127.0.0.1", 4483)

    def run(self, name: str = "cartpole", text: str = ENV) -> RunDirectory:
        """A run that has ended."""
        directory = RunDirectory.create(self.home, name)
        directory.resolved_file.write_text(render(load_config(f"{name}.toml", text=text)))
        parts = (directory.name, "a2c", "finished", "done", 1, True, 500, 9, 3, 33.0, 1.7e9, 9.0, 5.0, "", {})
        Summary(*parts, {"learner-0": 0}).write(directory.summary_file)
        return directory

    def live(self, name: str = "cartpole") -> tuple[RunDirectory, FakeSupervisor]:
        """A run whose supervisor answers."""
        directory = self.run(name)
        start, sockets = process_start_time(os.getpid()), str(directory.path)
        facts = RunFacts(directory.name, os.getpid(), start or 1, sockets, 1.7e9, [], "0.1", "3.11", protocol=PROTOCOL)
        write_run_facts(directory, facts)
        supervisor = FakeSupervisor(directory.path, trainer(10.0, pid=os.getpid(), run=directory.name))
        self.supervisors.append(supervisor)
        return directory, supervisor

    def ask(self, path: str, method: str = "GET", body: bytes = b"", app: Any = None, **headers: str | None) -> Reply:
        """Send a request and return the answer. Headers are given as `sec_fetch_site="none"`; None: without it."""
        named = {"host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in named.items() if value is not None}
        return asyncio.run(request(app or self.guard, path, method, body, sent))


async def request(app: Any, path: str, method: str, body: bytes, headers: Mapping[str, str]) -> Reply:
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 4483),
    }
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
    messages: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await app(scope, incoming.get, send)
    start = next(message for message in messages if message["type"] == "http.response.start")
    content = b"".join(message.get("body", b"") for message in messages if message["type"] == "http.response.body")
    return Reply(start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, content)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A server whose folder has a short name; supervisors send documents without delay."""
    monkeypatch.setattr(control_server, "PUSH_S", 0.05)
    home = Path(tempfile.mkdtemp(prefix="hv"))
    made = Web(home)
    yield made
    made.samplers.close()
    for supervisor in made.supervisors:
        supervisor.close()
    shutil.rmtree(home)
