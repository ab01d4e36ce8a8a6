"""The judgement of a run's metrics, on series of lines: what causes each warning, what does not, and what ends it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from small_trainer import config_of

from hive.envs import (
    Box,
    Composite,
    Discrete,
    EnvironmentSpec,
    MultiBinary,
    MultiDiscrete,
    ObservationSpec,
    configured_spec,
    configured_vector,
)
from hive.training.record import health
from hive.training.record.health import WARNING_RULES, Health, HealthFacts

LOG2 = math.log(2)
FACTS = HealthFacts(steps=200_000, goal=None, environments=8, time_limit=10**6, most_entropy=LOG2)
GAUSSIAN = replace(FACTS, most_entropy=None, dimensions=3, log_range=math.log(2.0))

HEALTHY: dict[str, float] = {
    "episodes": 1000,
    "return/mean_100": 100.0,
    "return/deviation_100": 10.0,
    "learner/skipped": 0,
    "learner/entropy": 0.3,
    "learner/kl": 0.05,
    "learner/clipped": 0.4,
    "learner/explained_variance": 0.9,
    "learner/target_rms": 30.0,
    "learner/value_loss": 4.0,
}

Series = Sequence[dict[str, Any]]


class Run:
    """A run of lines: each adds `steps` environment steps, `turns` updates, 50 episodes and `seconds`."""

    def __init__(self, facts: HealthFacts = FACTS, steps: int = 5_000, turns: int = 50, seconds: float = 1.0) -> None:
        self.health = Health(facts)
        self.each = steps, turns, seconds
        self.steps, self.updates, self.seconds, self.episodes = 0, 0, 0.0, 1000
        self.lines: list[tuple[int, int, float, dict[str, Any]]] = []
        self.log: list[tuple[str, str]] = []

    def line(self, **changes: Any) -> Run:
        """Judge one line; `learner__entropy=0` changes a metric."""
        values = {**HEALTHY, "episodes": self.episodes, **{k.replace("__", "/"): v for k, v in changes.items()}}
        self.steps += self.each[0]
        self.updates += self.each[1]
        self.seconds += self.each[2]
        self.episodes += 50
        self.lines.append((self.steps, self.updates, self.seconds, values))
        began, ended = self.health.judge(*self.lines[-1])
        self.log += [("-", warning.kind) for warning in ended] + [("+", warning.kind) for warning in began]
        return self

    def repeat(self, times: int, **changes: Any) -> Run:
        for _ in range(times):
            self.line(**changes)
        return self

    @property
    def active(self) -> list[str]:
        return [*self.health.active]


def mean(value: float, deviation: float = 10.0) -> dict[str, float]:
    return {"return__mean_100": value, "return__deviation_100": deviation}


def deviation(share: float) -> dict[str, float]:
    """The entropy of a policy whose three deviations are this share of half the range, 2."""
    return {"learner__entropy": 3 * (math.log(2.0 * share) + 0.5 * math.log(2 * math.pi * math.e))}


def test_a_healthy_run_has_no_warning() -> None:
    assert Run().repeat(200).log == []
    assert Run(GAUSSIAN).repeat(200, **deviation(0.5)).log == []


# (name, facts, lines before, the least that causes it, the most that does not)
CAUSES: dict[str, tuple[str, HealthFacts, Series, dict[str, Any], dict[str, Any]]] = {
    "half of what was learned": ("return collapsed", FACTS, [mean(20), mean(500, 0)], mean(259), mean(261)),
    "of a negative return": ("return collapsed", FACTS, [mean(-500), mean(-100, 40)], mean(-301), mean(-299)),
    "a quarter of the best": ("return collapsed", FACTS, [mean(500, 0)], mean(374), mean(376)),
    "a quarter of a negative best": ("return collapsed", FACTS, [mean(-100, 0)], mean(-126), mean(-124)),
    "within its deviation": ("return collapsed", FACTS, [mean(20, 10), mean(40, 25)], mean(14), mean(16)),
    "infinity": ("return not finite", FACTS, [], mean(math.inf), mean(1e38)),
    "null": ("return not finite", FACTS, [], {"return__mean_100": None}, mean(-1e38)),
    "no episode yet": ("return not finite", FACTS, [], mean(math.nan), {**mean(math.nan), "episodes": 0}),
    "always the same": (
        *("return constant", FACTS, [mean(-200, 0)]),
        *({**mean(-200, 0), "episodes": 500}, {**mean(-200, 0), "episodes": 499}),
    ),
    "the same again": ("return constant", FACTS, [mean(-200, 0)], mean(-200, 0), mean(-199.9, 0.1)),
    "worse than before": ("return constant", FACTS, [mean(-200, 0)], mean(-200, 0), mean(-240, 0)),
    "better than before": ("return constant", FACTS, [mean(-200, 0)], mean(-200, 0), mean(-199, 0)),
    "entropy": (
        *("entropy gone", FACTS, []),
        *({"learner__entropy": 0.00099 * LOG2}, {"learner__entropy": 0.00101 * LOG2}),
    ),
    "narrow": ("deviation collapsed", GAUSSIAN, [], deviation(0.00099), deviation(0.00101)),
    "wide": ("deviation exploded", GAUSSIAN, [], deviation(10.1), deviation(9.9)),
    "KL": ("updates too large", FACTS, [], {"learner__kl": 0.51}, {"learner__kl": 0.49}),
    "clipped": ("updates too large", FACTS, [], {"learner__clipped": 0.61}, {"learner__clipped": 0.59}),
    "explained variance": (
        *("values explain nothing", FACTS, []),
        {"learner__explained_variance": 0.009, "learner__value_loss": 10.0},
        {"learner__explained_variance": 0.011, "learner__value_loss": 10.0},
    ),
    "error of the values": (
        *("values explain nothing", FACTS, []),
        {"learner__explained_variance": -1.0, "learner__value_loss": 9.1},
        {"learner__explained_variance": -1.0, "learner__value_loss": 8.9},
    ),
    "large": ("rewards too large", FACTS, [], {"learner__target_rms": 1.01e4}, {"learner__target_rms": 0.99e4}),
    "large values of actions": (
        *("rewards too large", FACTS, []),
        {"learner__target_rms": None, "learner__q_mean": -1.01e4},
        {"learner__target_rms": None, "learner__q_mean": -0.99e4},
    ),
    "cut": ("rewards cut", FACTS, [], {"learner__rewards_moved": 0.11}, {"learner__rewards_moved": 0.09}),
    "small": ("rewards too small", FACTS, [], {"learner__target_rms": 0.0099}, {"learner__target_rms": 0.0101}),
}


@pytest.mark.parametrize("case", CAUSES)
def test_each_threshold(case: str) -> None:
    """Twenty lines of the least that causes a warning cause it, and only it; the most that does not causes none."""
    kind, facts, before, cause, none = CAUSES[case]
    for changes, expected in ((cause, [kind]), (none, [])):
        run = Run(facts)
        for line in before:
            run.line(**({**line, **deviation(0.5)} if facts is GAUSSIAN else line))
        steady = deviation(0.5) if facts is GAUSSIAN else {}
        assert run.repeat(20, **{**steady, **changes}).active == expected


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        (mean(100.0), "return collapsed"),
        ({"learner__entropy": 0.0}, "entropy gone"),
    ],
)
def test_a_run_at_its_goal_is_not_judged(changes: dict[str, Any], kind: str) -> None:
    """Below its goal it is. A policy that has reached it may well be certain of its actions."""
    for goal, expected in ((100.0, []), (100.1, [kind])):
        run = Run(replace(FACTS, goal=goal))
        if kind == "return collapsed":
            run.line(**mean(500.0, 0))
        assert run.repeat(20, **changes).active == expected


def test_a_constant_return_at_the_goal_is_none_to_warn_of() -> None:
    assert Run(replace(FACTS, goal=500.0)).repeat(20, **mean(500.0, 0)).active == []
    assert Run(replace(GAUSSIAN, goal=100.0)).repeat(20, **deviation(1e-4)).active == []


def test_weights_of_another_run_may_have_the_best_return_from_the_beginning() -> None:
    assert Run(FACTS).repeat(20, **mean(500.0, 0)).active == ["return constant"]
    assert Run(replace(FACTS, pretrained=True)).repeat(20, **mean(500.0, 0)).active == []


def test_values_need_not_explain_equal_returns() -> None:
    unexplained = {"learner__explained_variance": 0.0, "learner__value_loss": 500.0}
    assert Run().repeat(60, **unexplained).active == ["values explain nothing"]
    assert Run(replace(FACTS, pretrained=True)).repeat(60, **unexplained, **mean(500.0, 0)).active == []


@pytest.mark.parametrize(
    ("id", "env", "advice"),
    [
        ("CartPole-v1", {}, "env.options = { max_episode_steps = 1000 }"),
        ("small_environments:OneState", {}, 'env.wrappers = [{ name = "TimeLimit", max_episode_steps = 1000 }]'),
        (
            "small_environments:OneState",
            {"env__wrappers": '["FlattenObservation"]'},
            'add { name = "TimeLimit", max_episode_steps = 1000 } to env.wrappers',
        ),
    ],
)
def test_the_limit_that_is_advised_can_be_set(id: str, env: dict[str, Any], advice: str) -> None:
    config = config_of(id, **env)
    facts = HealthFacts.of(config, configured_spec(config.env), 1)
    assert facts.limit_advice == advice
    (text,) = (kind.advice_for(facts) for kind in WARNING_RULES if kind.name == "no episode ended")
    assert text.endswith(f"or limit episodes: {advice}")
    name, _, value = advice.partition(" = ")
    if name.startswith("add"):
        name, value = "env.wrappers", f'["FlattenObservation", {advice[4:].partition(" to ")[0]}]'
    limited = config_of(id, **{name.replace(".", "__"): value})
    vector = configured_vector(limited.env, 1)
    vector.close()


def test_a_goal_of_a_run_that_ended_before_a_hundred_episodes() -> None:
    facts = replace(FACTS, goal=5.0, limit_advice="shorten them")
    run = Health(facts)
    run.judge(64_640, 5, 1.0, {**HEALTHY, "episodes": 64.0})
    (warning,) = run.at_end(64_640)
    assert warning.line == (
        "goal not judged: run.stop_at_return = 5 was never judged: it is compared with the mean return of 100 episodes,"
        " and 64 of 100 episodes have ended; raise run.steps, or shorten episodes: shorten them"
    )
    run.judge(100_000, 6, 2.0, {**HEALTHY, "episodes": 100.0})
    assert run.at_end(100_000) == []
    for short, steps in ((replace(facts, time_limit=500), 64_640), (facts, 640)):  # the limit would shorten no episode
        run = Health(short)
        run.judge(steps, 5, 1.0, {**HEALTHY, "episodes": 64.0})
        assert run.at_end(steps)[0].line.endswith("; raise run.steps")
    assert Health(replace(FACTS, goal=None)).at_end(0) == []


def test_a_return_that_was_better_is_not_constant() -> None:
    run = Run(seconds=60.0).line(**mean(-200, 0)).line(**mean(-150, 20)).repeat(20, **mean(-200, 0))
    assert run.active == ["return collapsed"]


def test_a_mean_of_few_episodes_is_not_judged() -> None:
    few = {**mean(500.0, 0), "episodes": 99}
    assert Run().line(**few).line(**mean(20.0)).active == []
    assert Run().line(**{**few, "episodes": 100}).line(**mean(20.0)).active == ["return collapsed"]


def test_the_lowest_mean_counts_only_before_the_best_one() -> None:
    """500, then 300 and 240: half of what was learned from 100 to 500 is at 300. Later lows teach nothing new."""
    run = Run().line(**mean(100)).line(**mean(500)).line(**mean(301))
    assert run.active == []
    assert run.line(**mean(20)).line(**mean(299)).active == ["return collapsed"]


# --- how long a condition must hold


@pytest.mark.parametrize(
    ("kind", "changes", "turns"),
    [
        ("entropy gone", {"learner__entropy": 0.0}, 100),
        ("deviation collapsed", deviation(1e-4), 100),
        ("deviation exploded", deviation(100.0), 100),
        ("updates too large", {"learner__kl": 9.0}, 50),
        ("values explain nothing", {"learner__explained_variance": 0.0, "learner__value_loss": 10.0}, 100),
        ("rewards too large", {"learner__target_rms": 1e6}, 100),
        ("rewards too small", {"learner__target_rms": 1e-3, "learner__value_loss": 1e-8}, 100),
    ],
)
def test_a_condition_must_hold_for_some_turns(kind: str, changes: dict[str, Any], turns: int) -> None:
    """However many environment steps these are."""
    continuous = kind.startswith("deviation")
    facts, steady = (GAUSSIAN, deviation(0.5)) if continuous else (FACTS, {})
    run = Run(facts, turns=1).line(**steady).repeat(turns - 1, **changes)
    assert run.active == []
    assert run.line(**changes).active == [kind]
    broken = Run(facts, turns=1).repeat(turns - 1, **changes).line(**steady).repeat(turns - 1, **changes)
    assert broken.log == []


@pytest.mark.parametrize(("steps", "lines"), [(200_000, 10), (500_000, 10), (1_000_000, 20)])
def test_a_slow_decline_must_last(steps: int, lines: int) -> None:
    """50,000 steps, or a tenth of a longer run; the line before the first of them is its beginning."""
    unexplained = {"learner__explained_variance": 0.0, "learner__value_loss": 10.0}
    for changes in (unexplained, {"learner__target_rms": 1e-3, "learner__value_loss": 1e-8}):
        run = Run(replace(FACTS, steps=steps)).repeat(3).repeat(lines - 1, **changes)
        assert run.active == []
        assert len(run.line(**changes).active) == 1


def test_one_long_line_is_enough() -> None:
    """A line is a mean over all of its turns."""
    assert Run(steps=100_000, turns=800).line(learner__entropy=0.0).active == ["entropy gone"]


# --- skipped updates and episodes


@pytest.mark.parametrize(
    ("applied", "skipped", "share"), [(0, 20, "all"), (10, 10, "50% of"), (94, 6, "6% of"), (95, 5, ""), (0, 19, "")]
)
def test_skipped_updates(applied: int, skipped: int, share: str) -> None:
    """The metric counts all of them so far."""
    run = Run(turns=0)
    run.updates = 1000
    run.line(learner__skipped=7)
    run.updates += applied
    run.line(learner__skipped=7 + skipped)
    assert run.active == (["updates skipped"] if share else [])
    if share:
        text = run.health.active["updates skipped"].text
        assert text == f"{share} {applied + skipped} updates were skipped, because they were not finite"


def test_a_value_of_info_that_no_episode_has() -> None:
    run = Run(replace(FACTS, info=("is_success", "odd")))
    assert run.line(episodes=99, info__odd=1.0).active == []
    assert run.line(episodes=100, info__odd=1.0).active == ["info missing"]
    assert run.health.active["info missing"].text.startswith("no episode ended with `is_success` in its info")
    assert run.line(episodes=101, info__odd=1.0, info__is_success=0.0).active == []


@pytest.mark.parametrize(("limit", "most"), [(500, 8_000), (None, 240_000)])
def test_no_episode(limit: int | None, most: int) -> None:
    """Twice the time limit in each of eight environments."""
    for steps, expected in ((most, []), (most + 1, ["no episode ended"])):
        run = Run(replace(FACTS, time_limit=limit), steps=steps, seconds=60.0)
        run.steps = -steps
        assert run.line(episodes=0, return__mean_100=None).active == []
        assert run.line(episodes=0, return__mean_100=None).active == expected
    assert run.line(episodes=1).active == []
    assert run.line(episodes=1).active == ["no episode ended"]


# --- beginning, ending, again


def test_a_warning_begins_once_and_ends_once() -> None:
    run = Run().repeat(50, learner__entropy=0.0).repeat(50)
    assert run.log == [("+", "entropy gone"), ("-", "entropy gone")]
    (begin,) = [w for line in [Run().repeat(2, learner__entropy=0.0)] for w in line.health.active.values()]
    assert (begin.first_steps, begin.last_steps) == (10_000, None)
    assert begin.text == "the policy hardly varies its actions (entropy 0 of 0.69 nats)"
    assert "algorithm.entropy_weight" in begin.advice


def test_it_begins_again_after_a_minute_of_training_at_the_earliest() -> None:
    """One that comes and goes with every line is logged once a minute. Seconds are rounded, as in the file."""
    run = Run(turns=100)
    for _ in range(61):
        run.line(learner__entropy=0.0).line()
    assert run.log == [("+", "entropy gone"), ("-", "entropy gone")] * 3
    again = Run(turns=100, seconds=19.9999).line(learner__entropy=0.0).line().line().line(learner__entropy=0.0)
    assert again.log == [("+", "entropy gone"), ("-", "entropy gone"), ("+", "entropy gone")]
    early = Run(turns=100, seconds=19.9).line(learner__entropy=0.0).line().line().line(learner__entropy=0.0)
    assert early.log == [("+", "entropy gone"), ("-", "entropy gone")]


def test_lines_read_back_from_json_give_the_same_warnings() -> None:
    """JSON holds null for NaN and infinities, and rounds seconds; a recorder that is restarted reads it."""
    run = Run(seconds=1.00049).repeat(3).repeat(5, learner__entropy=0.0, return__mean_100=math.inf).line(learner__kl=9)
    run.repeat(80).repeat(4, learner__explained_variance=math.nan, learner__entropy=0.0).line()
    assert len(run.log) > 4
    later = Health(FACTS)
    log = []
    for steps, updates, seconds, values in run.lines:
        plain = {name: value if math.isfinite(value) else None for name, value in values.items()}
        began, ended = later.judge(steps, updates, round(seconds, 3), json.loads(json.dumps(plain)))
        log += [("-", warning.kind) for warning in ended] + [("+", warning.kind) for warning in began]
    assert log == run.log
    assert later.active == run.health.active


def test_other_lines_change_nothing() -> None:
    """Evaluations and the metrics of custom actors are in the same file."""
    run = Run().repeat(2, learner__entropy=0.0)
    assert run.health.judge(10_000, 100, 2.0, {"evaluation/mean_return": math.nan}) == ([], [])
    assert run.active == ["entropy gone"]


def test_metrics_that_a_custom_algorithm_lacks_are_not_judged() -> None:
    lacking = Health(FACTS)
    for number in range(1, 100):
        began, _ = lacking.judge(number * 10_000, number * 100, float(number), {"episodes": float(number)})
        assert [warning.kind for warning in began if warning.kind != "return not finite"] == []


@pytest.mark.parametrize(
    ("lengths", "changes", "warned"),
    [
        ((20, 10), {}, True),
        ((10, 20), {}, True),
        ((10, 20), mean(40.0, 10.0), False),  # which paid
        ((20, 15), {}, False),
        ((20, 10), {"length__deviation_100": 1.0}, False),  # a limit that hardly varies
        ((20, 10), {"ends__truncated": 0.9, "ends__limit": 0.1}, False),
        ((20, 10), {"ends__truncated": 0.99, "ends__terminated": 0.01}, False),
    ],
)
def test_truncated_ends_that_follow_the_policy_are_failures(
    lengths: tuple[int, int], changes: dict[str, float], warned: bool
) -> None:
    """As first uniform actions and then worse ones make them: 16 environments, 100 episodes a line."""
    health = Health(replace(FACTS, environments=16))
    ends = {"ends__truncated": 1.0, "ends__terminated": 0.0, "ends__limit": 0.0, "length__deviation_100": 5.0}
    steps, found = 0, []
    for number in range(1, 11):
        steps += 100 * lengths[number > 5]
        now = {**mean(20.0), **ends, "length__mean_100": lengths[number > 5], **(changes if number > 5 else {})}
        values = {**HEALTHY, "episodes": 100 * number, **{name.replace("__", "/"): now[name] for name in now}}
        found += [one.kind for one in health.judge(steps, number, float(number), values)[0]]
    assert found == ["failures truncated"] * warned


# --- facts


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Discrete(4), (math.log(4), 0, 0.0)),
        (MultiDiscrete((2, 3)), (math.log(6), 0, 0.0)),
        (Box((2,), (-2.0, 0.0), (2.0, 1.0)), (None, 2, (math.log(2.0) + math.log(0.5)) / 2)),
        (Box((2,), (-math.inf, 3.0), (math.inf, 3.0)), (None, 2, 0.0)),
        (Box((2,), (-2.0, 0.0), (2.0, 1000.0), scaled=True), (None, 2, 0.0)),  # entropies are those of -1 to 1
        (MultiBinary((3,)), (math.log(8), 0, 0.0)),
        (Composite((Discrete(4), MultiDiscrete((2, 3)))), (math.log(24), 0, 0.0)),
        (Composite((Discrete(4), Box((1,), (0.0,), (1.0,)))), (None, 0, 0.0)),
        (Composite((Box((1,), (0.0,), (2.0,)), Box((1,), (-4.0,), (4.0,)))), (None, 2, math.log(4.0) / 2)),
    ],
)
def test_facts_of_a_run(action: Any, expected: tuple[float | None, int, float]) -> None:
    config = config_of("small_environments:OneState", collection__envs=5, run__steps=77, run__stop_at_return=3)
    facts = HealthFacts.of(config, EnvironmentSpec("x", ObservationSpec((1,), "float32"), action, 9), 2)
    assert (facts.steps, facts.goal, facts.environments, facts.time_limit) == (77, 3.0, 10, 9)
    assert (facts.most_entropy, facts.dimensions, facts.log_range) == pytest.approx(expected)


def test_every_row_of_the_table_is_tried_above() -> None:
    tried = {kind for kind, *_ in CAUSES.values()} | {"updates skipped", "no episode ended", "info missing"}
    tried |= {"failures truncated"}
    assert tried == {kind.name for kind in WARNING_RULES}


def test_advice_of_a_run_with_a_replay_memory_names_no_key_that_it_refuses() -> None:
    without = replace(FACTS, replays=True)
    of_replays = [kind for kind in WARNING_RULES if kind.name not in ("deviation collapsed", "deviation exploded")]
    assert not [kind.name for kind in of_replays if "entropy_weight" in kind.advice_for(without)]
    assert "network.normalize_rewards" in " ".join(kind.advice_for(without) for kind in of_replays)


def test_every_key_in_the_advice_exists() -> None:
    """Advice that names a key that was renamed is worse than none."""
    from hive.config.algorithms import ALGORITHMS
    from hive.config.schema import Config

    words = {word.strip(",;().'\"") for kind in WARNING_RULES for word in f"{kind.advice} {kind.replay_advice}".split()}
    named = {word for word in words if word.partition(".")[0] in Config.__dataclass_fields__ and "." in word}
    assert len(named) > 8
    for key in named:
        table, _, name = key.partition(".")
        tables = ALGORITHMS.values() if table == "algorithm" else [type(getattr(config_of("CartPole-v1"), table))]
        assert any(name in each.__dataclass_fields__ for each in tables), key


def test_a_deviation_beyond_all_floats_is_a_warning_too() -> None:
    assert Run(GAUSSIAN).repeat(3, learner__entropy=1e9).active == ["deviation exploded"]
    assert health.QUIET_S == 60.0
