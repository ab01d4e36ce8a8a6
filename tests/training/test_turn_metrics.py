"""The metrics of the turns between two reports, from turns that were recorded by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hive.networks.rows.normalization import count_clipped
from hive.training.update.learner import PASSED, RETURNS_KEPT, LearnerStep
from hive.training.update.turn_metrics import StepRecord, TurnMetrics, clipped_values, end_values, finite_means

RETURNS = np.zeros(RETURNS_KEPT, np.float32)


def totals(seconds: float, steps: int) -> dict[str, float]:
    counters = {
        "env_steps": steps,
        "first_steps": 10,
        "episodes": 0,
        "skipped": 0,
        **{which.name: 0 for which in PASSED},
    }
    return {"train_s": seconds, "mean_return_100": math.nan, **counters}


def turn(loss: float, *, applied: bool = True, cause: str = "", lag: int = 0, policy: int | None = 0) -> StepRecord:
    step = LearnerStep(applied, 8 * applied, norm=loss, learning_rate=0.1, cause=cause, bad=-1)
    return StepRecord(step, [(8, np.array([loss]))], lag, policy)


def test_a_report_is_of_the_turns_since_the_last_one() -> None:
    report = TurnMetrics(["loss"], plain_bytes=400, reward_clip=10.0)
    report.window += [turn(1.0, lag=1), turn(3.0, lag=3)]
    first = report.take(totals(2.0, 100), RETURNS)
    assert (first["learner/loss"], first["lag/gradient_mean"], first["lag/policy_max"]) == (2.0, 2.0, 0.0)
    assert (first["rate/env_steps_per_s"], first["rate/updates_per_s"]) == (45.0, 1.0), "without the first steps"
    report.window.append(turn(7.0))
    second = report.take(totals(4.0, 400), RETURNS)
    assert (second["learner/loss"], second["rate/env_steps_per_s"], second["rate/updates_per_s"]) == (7.0, 150.0, 0.5)


def test_turns_without_an_update_wait_for_one_that_counts() -> None:
    """Such a turn carries moments or has zero samples. Its rollouts' lag is reported with the next turn that counts."""
    report = TurnMetrics(["loss"], plain_bytes=400, reward_clip=10.0)
    report.window.append(turn(9.0, applied=False, policy=5))
    assert report.take(totals(1.0, 10), RETURNS) == {}
    report.window.append(turn(1.0, policy=None))
    values = report.take(totals(2.0, 20), RETURNS)
    assert (values["learner/loss"], values["lag/policy_max"], values["rate/env_steps_per_s"]) == (1.0, 5.0, 5.0)
    report.window.append(turn(math.nan, applied=False, cause="loss"))
    assert report.take(totals(3.0, 30), RETURNS)["rate/updates_per_s"] == 0.0, "a skipped turn counts"


def test_what_a_hook_and_the_codec_add_is_reported_once() -> None:
    report = TurnMetrics(["loss"], plain_bytes=400, reward_clip=10.0)
    report.window.append(turn(1.0))
    report.of_hook["mine/x"] = 5.0
    report.compression_errors, report.sent_bytes = [0.1, 0.3], 100
    values = report.take(totals(1.0, 10), RETURNS)
    assert (values["mine/x"], values["gradients/compression_ratio"]) == (5.0, 4.0)
    assert values["gradients/compression_error"] == pytest.approx(0.2)
    report.window.append(turn(1.0))
    assert not {"mine/x", "gradients/compression_ratio"} & report.take(totals(2.0, 20), RETURNS).keys()


def test_means_leave_out_what_is_not_finite() -> None:
    """A statistic that a turn cannot tell, or that of a skipped turn, hides no other turn's."""
    rows = [np.array(row) for row in ([1.0, math.nan, math.nan], [2.0, 5.0, math.inf], [6.0, 7.0, math.nan])]
    assert finite_means(rows) == pytest.approx([3.0, 6.0, math.nan], nan_ok=True)


def test_what_clipping_does_to_proportions() -> None:
    """Three rewards of 1 and one of 40, in a scale where 10 is the most."""
    clipped = np.zeros(4)
    count_clipped(np.array([1, 1, -1, 40], np.float32), np.float32(1.0), 10.0, clipped)
    assert clipped.tolist() == [4, 1, 3, 40]
    values = clipped_values(clipped, 10.0)
    assert values["learner/rewards_clipped"] == 0.25
    assert values["learner/rewards_moved"] == pytest.approx(3 / 13 - 3 / 43)
    for alike in ([0, 0, 0, 40], [1, 1, 1, 9]):
        clipped = np.zeros(4)
        count_clipped(np.array(alike, np.float32), np.float32(1.0), 10.0, clipped)
        assert clipped_values(clipped, 10.0)["learner/rewards_moved"] == 0.0
    assert clipped_values(np.zeros(4), 10.0) == {}


def test_ends_are_counted_by_flag_and_by_the_declared_limit() -> None:
    ends = np.float32([8.0, -10.0, -10.0, -4.0, np.nan, 0.0])
    assert end_values(ends, 10) == {
        "length/mean_100": 8.0,
        "length/deviation_100": pytest.approx(6.0**0.5),
        "ends/terminated": 0.25,
        "ends/truncated": 0.25,
        "ends/limit": 0.5,
    }
    assert end_values(ends, None)["ends/truncated"] == 0.75
    assert end_values(ends[4:], 10) == {}, "none has ended, or an older checkpoint does not tell"
