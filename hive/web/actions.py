"""The actions of the page: requests to the supervisor of a run. Each returns what the page then reports."""

from __future__ import annotations

from contextlib import closing

from hive.errors import UsageError
from hive.monitor.requests import send
from hive.records import RunDirectory
from hive.runtime.run.control import open_run

MOST_SETS = 32  # maximum keys that one request changes
ACTIONS = ("pause", "resume", "save", "down", "set")


def carry_out(directory: RunDirectory, action: object, sets: object = ()) -> str:
    """Send the request; return what it does. Raises UsageError if it is unknown or the supervisor refuses it."""
    if not isinstance(action, str) or action not in ACTIONS:
        raise UsageError(f"no such action; the actions are {', '.join(ACTIONS)}")
    texts = [text for text in sets if isinstance(text, str)] if isinstance(sets, list | tuple) else []
    if (action == "set") != bool(texts) or len(texts) > MOST_SETS:
        raise UsageError("`set` needs a list of texts KEY=VALUE, and the other actions have none")
    with closing(open_run(directory)) as client:
        return send(client, action, sets=texts, viewer="hive web")
