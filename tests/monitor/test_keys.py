"""Keys: each does one thing in one place, and everything that can be done is listed."""

from __future__ import annotations

from itertools import combinations

from hive.monitor.keys import ACTIONS, SCREENS

PLACES = (*SCREENS, "detail", "report")


def test_no_key_means_two_things_in_one_place() -> None:
    for one, other in combinations(ACTIONS, 2):
        shared = {*one.key.split()} & {*other.key.split()}
        places = {*(one.screens or PLACES)} & {*(other.screens or PLACES)}
        assert not (shared and places), (one, other)


def test_places_are_those_that_there_are() -> None:
    assert {place for action in ACTIONS for place in action.screens} <= {*PLACES}


def test_every_action_has_words() -> None:
    assert all(action.text and action.shown for action in ACTIONS)


def test_only_what_changes_the_run_is_marked_so() -> None:
    assert [action.text for action in ACTIONS if action.changes] == [*("restart", "kill", "pause, or go on", "save")]
