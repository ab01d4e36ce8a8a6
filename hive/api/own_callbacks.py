"""Callbacks that stay objects of the calling program: `callbacks=[Pruning(trial)]`.

Classes, references and functions that make a callback become callbacks of the run, each in an actor of its own. An
object, or a function of one event, is called in this process, by a thread, while the call waits for the run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from hive.api.ending import waiting_for_runs
from hive.errors import UsageError
from hive.records import Summary

AnySummary = TypeVar("AnySummary", bound=Summary)

KEYS = ("callbacks", "run.callbacks")


class OwnCallbacks:
    """The objects among the callbacks of a call. keys: those of the run, with what stands for each object."""

    def __init__(self, keys: Mapping[str, Any], config: object = None) -> None:
        """config: of the call, possibly a mapping of tables. Raises TopologyError for an object that is no callback."""
        self.keys = keys = dict(keys)
        self._objects: list[Any] = []
        tables = config.get("run") if isinstance(config, Mapping) else None
        if isinstance(tables, Mapping) and "callbacks" in tables and not any(name in keys for name in KEYS):
            keys[KEYS[1]] = tables["callbacks"]
        self._name = next((name for name in KEYS if name in keys), None)
        given = [one for one in self._given() if not isinstance(one, str | Mapping | type)]
        if given:
            from hive.training.callbacks.events import Following, check_methods, shown_name, takes_event

            for one in given:
                check_methods(one, shown_name(one))
            self._objects = [Following(one) if takes_event(one) else one for one in given if _is_object(one)]

    def _given(self) -> list[Any]:
        if self._name is None:
            return []
        given = self.keys[self._name]
        if not isinstance(given, list | tuple):
            raise UsageError("`callbacks` takes a list", hint=f"{self._name}=[...]")
        return list(given)

    @contextlib.contextmanager
    def serving(self) -> Iterator[dict[str, Any]]:
        """Call the objects meanwhile, and return the keys of the run. Runs started meanwhile end with this program."""
        if not self._objects:
            with waiting_for_runs():
                yield self.keys
            return
        from hive.training.callbacks.caller import ObjectServer

        with ObjectServer(self._objects) as server, waiting_for_runs(server.address):
            entries = iter(server.entries)
            given = [next(entries) if _is_object(one) else one for one in self._given()]
            yield {**self.keys, str(self._name): given}

    def returned(self, result: AnySummary) -> AnySummary:
        """Pass the result to the objects that have `on_result`, which may raise, and return it."""
        for one in self._objects:
            if (follow := getattr(one, "on_result", None)) is not None:
                follow(result)
        return result


def _is_object(value: Any) -> bool:
    """Whether a callback is an object or a function of an event, not a reference, a table or what makes a callback."""
    if isinstance(value, str | Mapping | type):
        return False
    from hive.training.callbacks.events import HANDLERS, takes_event

    return not callable(value) or any(hasattr(value, name) for name in HANDLERS) or takes_event(value)
