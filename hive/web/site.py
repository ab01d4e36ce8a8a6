"""The routes of the page. Files of the page are read once, at the start; a request selects one of them by name.

    GET  /                        the page                  GET  /static/<file>
    GET  /api/runs                the runs                  GET  /api/session     whether this browser may act
    GET  /api/stream?run=..&run=..                          server-sent events (hive.web.sampler)
    GET  /api/config, /api/difference, /api/log, /api/evaluations, /api/video, /api/actor
    POST /api/actions             {"run": .., "action": .., "sets": [..]}

Errors are JSON: {"error": .., "hint": ..}.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from hive import __version__
from hive.errors import HiveError, UsageError
from hive.monitor.requests import send
from hive.records import RunDirectory
from hive.records.documents import json_text, parse_object
from hive.runtime.run.control import open_run
from hive.web import reading
from hive.web.catalogue import Catalogue
from hive.web.positions import parse_ids
from hive.web.sampler import MOST_RUNS, Samplers, Viewer

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    "": "text/plain; charset=utf-8",
}
SILENT_S = 15.0  # seconds after which a stream without samples sends a comment: it shows that the connection lives
RETRY_MS = 1000  # delay of the browser before it reconnects
ID_LENGTH = 4096  # maximum length of an event id: 32 runs take 2,200 characters
MOST_SETS = 32  # maximum keys that one request changes
ACTIONS = ("pause", "resume", "save", "down", "set")
SEARCH_LENGTH = 200  # maximum length of the text that a log is searched for


class Site:
    """The application, with the samplers and the catalogue behind it."""

    def __init__(self, catalogue: Catalogue, samplers: Samplers) -> None:
        self.catalogue = catalogue
        self.samplers = samplers
        self.files = {path.relative_to(STATIC).as_posix(): path.read_bytes() for path in _files()}
        read: dict[str, Callable[[Request], Any]] = {
            "runs": lambda request: self.catalogue.list(),
            "session": self._session,
            "config": lambda request: reading.config(self._run(request)),
            "difference": lambda request: reading.difference(self._run(request), self._run(request, "other")),
            "log": self._log,
            "evaluations": lambda request: reading.evaluations(self._run(request)),
            "actor": self._actor,
        }
        routes = [Route(f"/api/{name}", _reader(function)) for name, function in read.items()]
        routes += [
            Route("/", lambda request: self._file(request, "index.html")),
            Route("/favicon.ico", lambda request: self._file(request, "icon.svg")),
            Route("/static/{name:path}", lambda request: self._file(request, request.path_params["name"])),
            Route("/api/stream", self._stream),
            Route("/api/video", self._video),
            Route("/api/actions", self._act, methods=["POST"]),
        ]
        self.app = Starlette(routes=routes, exception_handlers={HiveError: _failed, ClientDisconnect: _cut})

    def _run(self, request: Request, name: str = "run") -> RunDirectory:
        return self.catalogue.run(request.query_params.get(name, ""))

    def _file(self, request: Request, name: str) -> Response:
        content = self.files.get(name)
        if content is None:
            return _json({"error": "no such file", "hint": ""}, 404)
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=TYPES[Path(name).suffix])

    def _session(self, request: Request) -> dict[str, Any]:
        return {"version": __version__, "may_act": bool(request.state.may_act)}

    def _log(self, request: Request) -> dict[str, Any]:
        query = request.query_params
        known, lock = self.samplers.log_of(query.get("run", ""), self._run(request))
        search = query.get("search", "")[:SEARCH_LENGTH]
        return reading.log(known, lock, level=query.get("level", ""), actor=query.get("actor", ""), search=search)

    def _actor(self, request: Request) -> dict[str, Any]:
        query = request.query_params
        return reading.actor(self._run(request), query.get("actor", ""), stack=query.get("stack") == "1")

    def _video(self, request: Request) -> Response:
        path, kind = reading.video(self._run(request), request.query_params.get("file", ""))
        return FileResponse(path, media_type=kind)

    async def _stream(self, request: Request) -> Response:
        keys = list(dict.fromkeys(request.query_params.getlist("run")))
        if not 0 < len(keys) <= MOST_RUNS:
            raise UsageError(f"a stream has 1 to {MOST_RUNS} runs, not {len(keys)}", hint="select fewer runs")
        directories = {key: await run_in_threadpool(self.catalogue.run, key) for key in keys}
        last = request.headers.get("last-event-id") or request.query_params.get("after", "")
        ids = parse_ids(last[:ID_LENGTH], len(keys))
        viewer = Viewer(keys, ids)
        await run_in_threadpool(self.samplers.join, viewer, directories, ids)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._messages(viewer), headers=headers, media_type="text/event-stream")

    async def _messages(self, viewer: Viewer) -> AsyncIterator[str]:
        try:
            yield f"retry: {RETRY_MS}\n\n"
            while (message := await viewer.message(SILENT_S)) is not None:
                yield message
        finally:
            self.samplers.leave(viewer)

    async def _act(self, request: Request) -> Response:
        document = parse_object(await request.body())
        if document is None or not isinstance(document.get("run"), str):
            raise UsageError("an action is a JSON object with `run`, `action` and, for `set`, `sets`")
        directory = await run_in_threadpool(self.catalogue.run, document["run"])
        notice = await run_in_threadpool(carry_out, directory, document.get("action"), document.get("sets", ()))
        return _json({"notice": notice})


def _files() -> list[Path]:
    return [path for path in sorted(STATIC.rglob("*")) if path.is_file() and path.suffix in TYPES]


def _reader(function: Callable[[Request], Any]) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        return _json(function(request))

    return endpoint


def _json(value: Any, status: int = 200) -> Response:
    return Response(json_text(value), status, media_type="application/json")


def _cut(request: Request, error: Exception) -> Response:
    """Answer a body that the guard has cut off for its length, or whose sender has gone."""
    return _json({"error": "the request is too long", "hint": "send less"}, 413)


def _failed(request: Request, error: Exception) -> Response:
    return _json({"error": str(error), "hint": getattr(error, "hint", "")}, 400)


def carry_out(directory: RunDirectory, action: object, sets: object = ()) -> str:
    """Send the request; return what it does. Raises UsageError if it is unknown or the supervisor refuses it."""
    if not isinstance(action, str) or action not in ACTIONS:
        raise UsageError(f"no such action; the actions are {', '.join(ACTIONS)}")
    texts = [text for text in sets if isinstance(text, str)] if isinstance(sets, list | tuple) else []
    if (action == "set") != bool(texts) or len(texts) > MOST_SETS:
        raise UsageError("`set` needs a list of texts KEY=VALUE, and the other actions have none")
    with closing(open_run(directory)) as client:
        return send(client, action, sets=texts, viewer="hive web")
