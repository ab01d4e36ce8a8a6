"""Errors that a child process sends to its parent as plain data, and that the parent raises as its own."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from hive import errors
from hive.errors import EnvironmentFailed, HiveError
from hive.runtime.actor.error_location import named


class _RemoteTraceback(Exception):
    """The cause of an error that a child sent: its traceback, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def error_data(error: BaseException, failure: str) -> dict[str, Any]:
    """Return an error as data for JSON. failure: what an error that is not hive's own is reported as."""
    trace = "".join(traceback.format_exception(error))
    if not isinstance(error, HiveError):
        error = EnvironmentFailed(f"{failure}: {named(error)}")
    kind = next(cls.__name__ for cls in type(error).__mro__ if getattr(errors, cls.__name__, None) is cls)
    return {
        "kind": kind,
        "text": str(error),
        "hint": error.hint,
        "code": error.exit_code,
        "permanent": error.permanent,
        "not_finite": getattr(error, "not_finite", False),
        "trace": trace,
    }


def raise_sent(sent: Mapping[str, Any]) -> NoReturn:
    """Raise the error that `error_data` described, with its traceback as the cause."""
    raised: HiveError = getattr(errors, sent["kind"])(sent["text"], hint=sent["hint"])
    raised.exit_code, raised.permanent = sent["code"], sent["permanent"]
    if isinstance(raised, EnvironmentFailed):
        raised.not_finite = sent["not_finite"]
    raise raised from _RemoteTraceback(sent["trace"])
