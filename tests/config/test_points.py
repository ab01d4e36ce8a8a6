"""Schedules by points: what they take, which part of them an error names, and the key whose place they take."""

from __future__ import annotations

import pytest

from hive.config import A2CConfig, Config, PPOConfig, load_config, render, with_parameter
from hive.errors import ConfigError

ENV = '[env]\nid = "CartPole-v1"\n[algorithm]\n'
RATE, SCHEDULE = "algorithm.learning_rate", "algorithm.learning_rate_schedule"
POINTS = "learning_rate_schedule = [[0, 1e-3], [100_000, 1e-3], [100_001, 0]]\n"


def loaded(text: str, *sets: str) -> Config:
    return load_config("a.toml", ["run.scheme=ppo", *sets], text=ENV + text)


def refused(text: str, *sets: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(text, *sets)
    return str(caught.value)


def test_points_are_steps_and_numbers_and_survive_a_round_trip() -> None:
    config = loaded(POINTS, "algorithm.clip_range_schedule=[[7, 1]]", "algorithm.entropy_weight_schedule=[[0,0],[9,2]]")
    assert config.algorithm.learning_rate_schedule == ((0, 1e-3), (100_000, 1e-3), (100_001, 0.0))
    assert config.value("algorithm.clip_range_schedule") == ((7, 1.0),)
    assert type(config.value("algorithm.clip_range_schedule")[0][1]) is float
    assert load_config("b.toml", text=render(config)) == config
    assert load_config("b.toml", text=render(config, changed=True)).algorithm == config.algorithm
    assert hash(load_config("b.toml", text=render(config))) == hash(config)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ("[]", "expected at least one point, as in [[0, 3e-4], [200_000, 1e-5]], got an empty array"),
        ("[0, 1e-3]", "point 1: expected [step, value], as in [[0, 3e-4], [200_000, 1e-5]], got 0"),
        ("[[0, 1e-3], [5]]", "point 2: expected [step, value], as in [[0, 3e-4], [200_000, 1e-5]], got an array of 1"),
        ("[[0, 1e-3], [2e5, 1e-5]]", "point 2: expected an integer >= 0 as its step, got 200000.0"),
        ("[[-1, 1e-3]]", "point 1: expected an integer >= 0 as its step, got -1"),
        ("[[true, 1e-3]]", "point 1: expected an integer >= 0 as its step, got true"),
        ("[[0, 1], [9, 1], [9, 1]]", "point 3: expected a step after 9, that of point 2, got 9"),
        ("[[0, 1], [9, -1]]", "point 2: expected a number >= 0 as its value, got -1"),
        ("[[0, inf]]", "point 1: expected a number >= 0 as its value, got inf (not finite)"),
        ('[[0, "constant"]]', 'point 1: expected a number >= 0 as its value, got "constant"'),
        ("{}", 'expected "constant", "linear", "cosine" or points such as [[0, 3e-4], [200_000, 1e-5]], got a table'),
    ],
)
def test_the_wrong_point_is_named(points: str, message: str) -> None:
    assert f"a.toml:4: {SCHEDULE}: {message}\n" in refused(f"learning_rate_schedule = {points}\n")
    assert refused("", f"{SCHEDULE}={points}").endswith(f": {message}")


def test_the_wrong_value_is_marked() -> None:
    *_, line, marks = refused("clip_range_schedule = [\n  [0, 0.2],\n  [100, -1],\n]\n").splitlines()
    assert (line, marks) == ("     6 |   [100, -1],", "       |         ^^")


# --- beside the key itself


def test_a_value_beside_points_is_an_error_that_names_both() -> None:
    text = refused("learning_rate = 1e-3\n" + POINTS)
    assert f"a.toml:4: {RATE}: got 0.001, but the points of {SCHEDULE} (a.toml:5) give its values\n" in text
    assert text.splitlines()[-1].endswith('^ leave it out, or set learning_rate_schedule to "constant"')
    assert f"--set {RATE}=1: got 1, but the points of {SCHEDULE} (a.toml:4)" in refused(POINTS, f"{RATE}=1")
    assert f"the points of {SCHEDULE} (--set)" in refused("", f"{SCHEDULE}=[[0, 1]]", f"{RATE}=1")
    policies = "[policies.one]\nagents = 'a'\nalgorithm = {learning_rate = 0.1}\n"
    assert f"got 0.1, but the points of {SCHEDULE} (a.toml:4)" in refused(POINTS + policies)


def test_points_of_a_later_source_replace_a_value() -> None:
    """A file with a rate can be tried with points; and all of resolved.toml is given, too."""
    config = loaded("learning_rate = 0.5\n", f"{SCHEDULE}=[[0, 1]]")
    assert config.algorithm.learning_rate == PPOConfig().learning_rate
    entry = next(entry for entry in config.entries() if entry.name == RATE)
    assert (entry.value, entry.changed) == (None, False)
    constant = loaded("learning_rate = 0.5\n")
    assert load_config("b.toml", [f"{SCHEDULE}=[[0, 1]]"], text=render(constant)) == config
    back = load_config("b.toml", [f"{SCHEDULE}=constant", f"{RATE}=0.5"], text=render(config))
    assert back == constant
    assert config.differences(back) == constant.differences(config) == [RATE, SCHEDULE]


def test_a_policy_may_have_points_of_its_own() -> None:
    row = "[policies.one]\nagents = 'a'\nalgorithm = {learning_rate_schedule = [[0, 0.1]]}\n"
    config = loaded("learning_rate = 0.5\n" + row)
    assert config.learner("one").algorithm.learning_rate_schedule == ((0, 0.1),)
    assert config.algorithm.learning_rate == 0.5
    again = load_config("b.toml", text=render(config))
    assert again == config
    assert again.learner("one").algorithm == config.learner("one").algorithm


def test_a_running_run_takes_points_and_refuses_what_has_no_effect_beside_them() -> None:
    changed = with_parameter(A2CConfig(learning_rate=0.5), "learning_rate_schedule", [(0, 1), [5, 0.1]])
    assert changed == A2CConfig(learning_rate=0.5, learning_rate_schedule=((0, 1.0), (5, 0.1)))
    with pytest.raises(
        ConfigError, match="`learning_rate` has no effect: the points of learning_rate_schedule"
    ) as caught:
        with_parameter(changed, "learning_rate", 0.1)
    assert caught.value.hint == 'change learning_rate_schedule, or set it to "constant" first'
    with pytest.raises(ConfigError, match="learning_rate_schedule: point 1: expected an integer"):
        with_parameter(changed, "learning_rate_schedule", [[0.5, 1]])
