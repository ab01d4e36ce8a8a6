"""Requests of a view to the supervisor of a run: when it accepts each, how it is sent, and the notice that follows.

The terminal UI and the web page show the same notices. A request that the supervisor refuses raises its error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hive.runtime.run.control import ControlClient

# Request -> states of the run in which the supervisor accepts it.
ACCEPTED: Mapping[str, tuple[str, ...]] = {
    "pause": ("running",),
    "resume": ("paused",),
    "save": ("running", "paused"),
    "set": ("running",),
    "scale": ("running",),
    "down": ("running", "paused"),
    "restart": ("running",),
    "kill": ("running",),
}
NOTICES = {
    "pause": "the run is pausing",
    "resume": "the run resumes",
    "save": "a checkpoint is being written; the event log reports when it is done",
    "set": "the new values apply from the next update on",
    "scale": "the run saves its state and continues with other workers; the event log reports when it is done",
    "down": "the run finishes its work, saves its state and ends",
}


def send(client: ControlClient, kind: str, *, actor: str = "", sets: Sequence[str] = (), viewer: str) -> str:
    """Send a request; return the notice that reports what it does. Raises HiveError where it is refused.

    kind: a key of `ACCEPTED`. actor: for `restart` and `kill`. sets: KEY=VALUE, for `set` and `scale`. viewer: the
    command that sends it, which a run that it ends records as the reason.
    """
    if kind in ("restart", "kill"):
        client.kill(actor, by_hand=kind == "restart")
        return f"{actor} was killed and is being restarted"
    requests: dict[str, Callable[[], object]] = {
        "pause": client.pause,
        "resume": client.resume,
        "save": client.save,
        "set": lambda: client.set(sets),
        "scale": lambda: client.scale(sets),
        "down": lambda: client.down(viewer),
    }
    requests[kind]()
    return NOTICES[kind]
