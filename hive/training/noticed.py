"""Logs what environments of several agents have shown as warnings of the run."""

from __future__ import annotations

from typing import Any

from hive.runtime import Actor


def log_notices(actor: Actor, vector: Any, told: set[str]) -> None:
    """Log the warnings of a vector that `told` does not have, and add them. Vectors of single agents have none."""
    notices = getattr(vector, "notices", None)
    for one in () if notices is None else notices.warnings():
        if one.kind not in told:
            told.add(one.kind)
            actor.note(**one.event)
