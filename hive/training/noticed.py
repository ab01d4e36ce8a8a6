"""Logs what environments have shown: warnings of the run, of several agents, and refused resets."""

from __future__ import annotations

from typing import Any

from hive.envs import refused
from hive.records.run_warnings import FACT, RESET_REFUSED
from hive.runtime import Actor


def log_notices(actor: Actor, vector: Any, told: set[str]) -> None:
    """Log the warnings and facts of a vector whose names `told` does not have, and add them."""
    notices = getattr(vector, "notices", None)
    for one in () if notices is None else notices.warnings():
        if one.kind not in told:
            told.add(one.kind)
            actor.note(**one.event)
    if RESET_REFUSED not in told and (error := refused(vector)):
        told.add(RESET_REFUSED)
        what = f"environments refuse a reset within an episode ({error}), so they are constructed again at barriers"
        actor.note(FACT, f"{what} (checkpoint.every)", fact=RESET_REFUSED)
