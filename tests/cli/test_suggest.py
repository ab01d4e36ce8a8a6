"""Suggestions for misspelled names."""

from __future__ import annotations

import pytest

from hive.launch.suggest import NAMES_SHOWN, did_you_mean, listed

LOGS = ["collector-0", "collector-1", "learner-0", "supervisor"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("lerner-0", "; did you mean `learner-0`?"),
        ("collector-2", "; did you mean `collector-0`?"),
        ("supervise", "; did you mean `supervisor`?"),
        ("x", ""),
        ("", ""),
        ("learner-0" * 100_000, ""),  # returns at once, without comparing a megabyte
    ],
)
def test_the_nearest_word_is_offered(word: str, said: str) -> None:
    assert did_you_mean(word, LOGS).replace("collector-1", "collector-0") == said


def test_a_slip_where_nothing_is_known() -> None:
    assert did_you_mean("learner-0", []) == ""


def test_names_are_listed_up_to_a_number() -> None:
    names = [f"collector-{n}" for n in range(NAMES_SHOWN + 44)]
    assert listed([]) == ""
    assert listed(names[:3]) == "collector-0, collector-1, collector-2"
    assert listed(names[:NAMES_SHOWN]) == ", ".join(names[:NAMES_SHOWN])
    assert listed(names) == ", ".join(names[:NAMES_SHOWN]) + " and 44 more"
