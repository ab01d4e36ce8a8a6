"""What is told of given transitions: facts of what is used, and warnings of other units and of following episodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hive.config import load_config
from hive.envs import Box, EnvironmentSpec, ObservationSpec
from hive.policy.transitions import StoredTransitions
from hive.records.transition_axes import Axes
from hive.training.update.given_report import GivenReport, report_of
from hive.training.update.given_rows import Given, GivenRows
from hive.training.update.replay_size import ReplaySize

ROWS = 200
RNG = np.random.default_rng(1)


def transitions(**changed: Any) -> StoredTransitions:
    """Episodes of ten steps, which a limit ends."""
    seen = RNG.normal(50.0, 20.0, (ROWS, 1)).astype(np.float32)
    after = np.concatenate([seen[1:], seen[:1]])
    ends = np.arange(1, ROWS + 1) % 10 == 0
    after[ends] += 1.0  # the last observation of an episode, not the first of the next
    values = {
        "observations": seen,
        "next_observations": after,
        "actions": RNG.uniform(-2.0, 2.0, (ROWS, 1)).astype(np.float32),
        "rewards": np.zeros(ROWS, np.float32),
        "terminated": np.zeros(ROWS, np.uint8),
        "truncated": ends.astype(np.uint8),
        "environments": np.zeros(ROWS, np.int64),
    }
    return StoredTransitions(**{**values, **changed})


def reported(found: StoredTransitions, n_step: int = 1, kept: int = 1000, **given: Any) -> GivenReport:
    size = ReplaySize(sources=1, envs=1, steps=4, kept=kept, rounds_ahead=2, stack=1, n_step=n_step, workers=1, batch=4)
    spec = EnvironmentSpec("t:Plant", ObservationSpec((1,), "float32"), Box((1,), (-2.0,), (2.0,)))
    return report_of(Given("a.npz", found, **given), GivenRows(found, size), spec, n_step)


def test_what_is_used_is_a_fact() -> None:
    report = reported(transitions(), kept=150, left_out=7, unread=("truncateds",))
    assert not report.warnings
    for words in ("200 transitions", "20 truncated", "7 of 207 rows", "newest 150 of 200", "not read: truncateds"):
        assert words in report.text


def test_scaled_actions_and_first_observations_of_the_next_episode() -> None:
    found = transitions()
    (scaled,) = reported(replace(found, actions=found.actions / 2 / np.abs(found.actions).max() * 2)).warnings
    assert "from -1 to 1, those of the environment from -2 to 2" in scaled.text
    after = np.concatenate([found.observations[1:], found.observations[:1]])
    (resets,) = reported(replace(found, next_observations=after)).warnings
    assert "first one of the next episode" in resets.text
    apart = replace(found, truncated=np.ones(ROWS, np.uint8), next_observations=found.next_observations + 0.5)
    (alone,) = reported(apart, n_step=3).warnings
    assert "n_step = 3" in alone.text


@pytest.mark.parametrize(("mean", "deviation", "told"), [(50.0, 20.0, True), (0.0, 1.0, False), (0.5, 1.5, False)])
def test_numbers_of_a_normalizer_are_compared_with_the_first_rollout(mean: float, deviation: float, told: bool) -> None:
    standard = RNG.normal(0.0, 1.0, (ROWS, 1)).astype(np.float32)
    found = transitions(observations=(standard - standard.mean()) / standard.std())
    first = RNG.normal(mean, deviation, (32, 4, 1)).astype(np.float32)
    assert (reported(found).normalized(first) is not None) is told
    assert reported(transitions()).normalized(first) is None
    assert reported(found).normalized(first[:1]) is None  # too few to say


def test_axes_and_the_environment_of_the_source_are_told() -> None:
    assert "[B, T]" in reported(transitions(), axes=Axes.SWAPPED).text
    (warned,) = reported(transitions(), axes=Axes.PROBABLY_SWAPPED).warnings
    assert "[B, T]" in warned.text
    source, own = (
        load_config("run.toml", [f"env.options={options}"], text="[env]\nid='t:Plant'").env
        for options in ("{wind=1.0}", "{wind=5.0}")
    )
    found = transitions()
    size = ReplaySize(sources=1, envs=1, steps=4, kept=9, rounds_ahead=2, stack=1, n_step=1, workers=1, batch=4)
    spec = EnvironmentSpec("t:Plant", ObservationSpec((1,), "float32"), Box((1,), (-2.0,), (2.0,)))
    for env, words in ((own, "env.options = {wind = 1.0}, here {wind = 5.0}"), (source, "the same env.id")):
        assert words in report_of(Given("old-1", found, env=source), GivenRows(found, size), spec, 1, env).text
