"""Keys: each has one action in each place, and every action is listed."""

from __future__ import annotations

from itertools import combinations

from hive.monitor.actions import SCREENS
from hive.monitor.keys import ACTIONS

PLACES = (*SCREENS, "detail", "report")


def test_no_key_means_two_things_in_one_place() -> None:
    for one, other in combinations(ACTIONS, 2):
        shared = {*one.key.split()} & {*other.key.split()}
        places = {*(one.screens or PLACES)} & {*(other.screens or PLACES)}
        assert not (shared and places), (one, other)


def test_actions_name_existing_places() -> None:
    assert {place for action in ACTIONS for place in action.screens} <= {*PLACES}


def test_every_action_has_a_text() -> None:
    assert all(action.text and action.shown for action in ACTIONS)


def test_only_what_changes_the_run_is_marked_so() -> None:
    assert [action.text for action in ACTIONS if action.changes] == [*("restart", "kill", "pause or resume", "save")]
