"""Rates and shares as differences of totals, and the cases in which the past is discarded."""

from __future__ import annotations

import pytest
from canned_runs import COLLECTING, T, trainer

from hive.monitor import History, Rates
from hive.monitor.history import APART_S, SHARES_S, WINDOWS


def seen(*moments: tuple[float, float]) -> Rates:
    rates = Rates()
    for t, steps in moments:
        rates.add(t, {"env_steps": steps})
    return rates


def test_one_sample_gives_no_rate() -> None:
    assert Rates().rate("env_steps") is None
    assert seen((4.0, 20_480)).rate("env_steps") is None
    assert seen((0.0, 0), (0.0, 0), (0.0, 0)).rate("env_steps") is None


def test_a_rate_is_steps_over_time() -> None:
    rates = seen((0.0, 0), (2.0, 10_000))
    assert rates.rate("env_steps") == 5_000.0
    rates.add(4.0, {"env_steps": 14_000})
    assert rates.rate("env_steps") == 3_500.0
    assert rates.rate("unheard_of") == 0.0


def test_each_window_sees_its_own_past() -> None:
    rates = seen(*((float(second), 1_000.0 * second) for second in range(301)))
    for second in range(301, 361):
        rates.add(second, {"env_steps": 300_000 + 2_000.0 * (second - 300)})
    assert [rates.rate("env_steps", window) for window in WINDOWS] == [2_000, 2_000, pytest.approx(1_200)]


def test_a_long_window_is_silent_until_the_shorter_one_is_full() -> None:
    rates = seen((0.0, 0), (9.0, 9))
    assert [rates.rate("env_steps", window) for window in WINDOWS] == [1.0, None, None]
    rates.add(11.0, {"env_steps": 11})
    assert [rates.rate("env_steps", window) for window in WINDOWS] == [1.0, 1.0, None]


def test_what_is_kept_is_bounded() -> None:
    rates = seen(*((n / 100, float(n)) for n in range(100_000)))
    assert len(rates.samples) <= 1.1 * WINDOWS[-1] / APART_S
    assert rates.rate("env_steps") == pytest.approx(100.0)


def test_two_distant_samples_give_a_rate() -> None:
    assert seen((0.0, 0), (100.0, 200_000)).rate("env_steps") == 2_000.0


@pytest.mark.parametrize("back", [(5.0, 100.0), (20.0, 50.0)])
def test_decreasing_totals_discard_the_past(back: tuple[float, float]) -> None:
    rates = seen((0.0, 0), (10.0, 100), back)
    assert rates.rate("env_steps") is None
    assert len(rates.samples) == 1


def test_lines_of_metrics_give_rates_of_the_past() -> None:
    history = History()
    for second in range(70):
        history.add_metrics_line(
            {"t": T + second, "steps": 100 * second, "updates": second, "episodes": 2 * second, "x": None}
        )
    history.add_metrics_line(
        {"t": T + 70, "steps": 7_000, "updates": 70, "evaluation/mean_return": 9.0}
    )  # no line of the learner
    history.add(trainer(70.0), T + 68.5)  # lines written after this time are discarded
    assert history.rate("episodes", 60) == pytest.approx((700 - 2 * 8) / 60.5, rel=0.02)
    assert history.rate("env_steps", 300) == pytest.approx(350_000 / 68.5)


def test_shares_are_of_the_last_seconds() -> None:
    history = History()
    idle = {"wait behaviour": 1.0, "env": 0.0}
    for second in range(20):
        history.add(trainer(10.0 + second, collectors=(idle if second < 10 else COLLECTING,)), T + second)
    spent = history.spent("collector-0")
    assert spent is not None
    assert history.window_s == SHARES_S
    assert spent["env"] == pytest.approx(0.74 * SHARES_S)
    assert history.spent("nobody") is None


def test_a_new_incarnation_has_no_past() -> None:
    history = History()
    history.add(trainer(10.0), T)
    history.add(trainer(11.0, changes={"collector-0": {"incarnation": 2}}), T + 1)
    assert history.spent("collector-0") is None
    assert history.spent("collector-1") is not None
    history.add(trainer(12.0, changes={"collector-0": {"incarnation": 2}}), T + 2)
    assert history.spent("collector-0") is not None


def test_a_new_stage_has_no_past() -> None:
    history = History()
    history.add(trainer(10.0), T)
    history.add(trainer(11.0, collectors=(COLLECTING,) * 3), T + 1)
    assert history.window_s == 0.0
    assert history.channel_rate("rollouts") is None


def test_a_clock_that_is_set_back_has_no_past() -> None:
    history = History()
    for t in (T, T + 1, T - 3600, T - 3599):
        history.add(trainer(), t)
    assert history.window_s == 1.0


def test_rates_of_actors_channels_and_boards() -> None:
    history = History()
    for second in range(3):
        history.add(trainer(10.0 + second), T + second)
    assert history.actor_rate("collector-0", "env_steps") == pytest.approx(2_500)
    assert history.actor_rate("gradient-worker-0", "gradients") == pytest.approx(20)  # messages sent
    assert history.actor_rate("nobody", "env_steps") is None
    assert history.channel_rate("gradients") == pytest.approx(20)
    assert history.channel_rate("weights") == 0.0
    assert history.channel_rate("nothing") is None
