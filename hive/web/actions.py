"""The actions of the page: requests to the supervisor of a run. Each returns what the page then reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from hive.errors import UsageError
from hive.records import RunDirectory
from hive.runtime.run.control import ControlClient, open_run

__all__ = ["ACTIONS", "carry_out"]

MOST_SETS = 32  # maximum keys that one request changes

Action = Callable[[ControlClient, Sequence[str]], None]
ACTIONS: Mapping[str, tuple[Action, str]] = {
    "pause": (lambda client, _: client.pause(), "the run is pausing"),
    "resume": (lambda client, _: client.resume(), "the run resumes"),
    "save": (lambda client, _: client.save(), "a checkpoint is being written; the event log reports when it is done"),
    "down": (lambda client, _: client.down("hive web"), "the run finishes its work, saves its state and ends"),
    "set": (lambda client, sets: client.set(sets), "the new values apply from the next update on"),
}


def carry_out(directory: RunDirectory, action: object, sets: object = ()) -> str:
    """Send the request; return what it does. Raises UsageError if it is unknown or the supervisor refuses it."""
    if not isinstance(action, str) or action not in ACTIONS:
        raise UsageError(f"no such action; the actions are {', '.join(ACTIONS)}")
    texts = [text for text in sets if isinstance(text, str)] if isinstance(sets, list | tuple) else []
    if (action == "set") != bool(texts) or len(texts) > MOST_SETS:
        raise UsageError("`set` needs a list of texts KEY=VALUE, and the other actions have none")
    function, notice = ACTIONS[action]
    with closing(open_run(directory)) as client:
        function(client, texts)
    return notice
