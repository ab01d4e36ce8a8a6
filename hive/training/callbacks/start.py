"""Computes the state of callbacks at the start of a run: that of its checkpoint, with this run's numbers of rounds."""

from __future__ import annotations

from hive.training.blueprint import Blueprint
from hive.training.callbacks.changes import Changes
from hive.training.callbacks.messages import CallbacksState
from hive.training.run_start import first_round, same_rounds


def state_at_start(blueprint: Blueprint) -> CallbacksState:
    """Return the state that a run begins with.

    Rounds of another shape have other numbers. Then all changes hold from the first round of this run on.
    """
    state = CallbacksState.resumed(blueprint.resume)
    if not same_rounds(blueprint):
        first = first_round(blueprint)
        state.changes = [[min(one[0], first), *one[1:]] for one in state.changes]
    return state


def changes_at_start(blueprint: Blueprint) -> Changes:
    """Return the changes that hold when a run begins."""
    return Changes(state_at_start(blueprint).changes)
