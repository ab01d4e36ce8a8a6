"""Requests of the terminal view to the supervisor: each in a thread of its own, with a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

from textual.message import Message

from hive.errors import HiveError
from hive.monitor.actor_detail import ActorInspection
from hive.monitor.requests import send
from hive.monitor.terminal.view import Request
from hive.records import RunDirectory
from hive.runtime.run.control import open_run


class Inspected(Message):
    """The supervisor has replied about an actor, or the request has failed."""

    def __init__(self, inspection: ActorInspection) -> None:
        super().__init__()
        self.inspection = inspection


class Noticed(Message):
    """A notice about a request: what it does, or why it failed."""

    def __init__(self, text: str, *, failed: bool = False) -> None:
        super().__init__()
        self.text = text
        self.failed = failed


class SupervisorRequests:
    """Sends requests to the supervisor of a run. post: takes the replies, as messages, from any thread."""

    def __init__(self, directory: RunDirectory, post: Callable[[Message], object]) -> None:
        self.directory = directory
        self.post = post

    def inspect(self, actor: str) -> None:
        """Request the stack and the transition history of an actor; the reply is an Inspected."""
        threading.Thread(target=self._inspect, args=(actor,), daemon=True).start()

    def _inspect(self, actor: str) -> None:
        try:
            with closing(open_run(self.directory)) as client:
                stack, transitions = client.inspect(actor)
            self.post(Inspected(ActorInspection(actor, stack, transitions)))
        except HiveError as error:
            self.post(Inspected(ActorInspection(actor, error=str(error))))

    def carry_out(self, request: Request) -> None:
        """Have a request carried out; the reply is a Noticed."""
        threading.Thread(target=self._carry_out, args=(request,), daemon=True).start()

    def _carry_out(self, request: Request) -> None:
        try:
            with closing(open_run(self.directory)) as client:
                notice = send(client, request.kind, actor=request.actor, sets=request.sets, viewer="hive monitor")
            self.post(Noticed(notice))
        except HiveError as error:
            self.post(Noticed(error.render().removeprefix("error: "), failed=True))
