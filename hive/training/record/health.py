"""Judge from its metrics whether a run learns as it should, and say which key usually helps if it does not.

    Metrics ──> Health.judge ──> the warnings that began or ended with this line, for the event log

`WARNING_RULES` is the table of warnings: when one holds, its sentence and its advice. A warning begins when its
condition has held for long enough, measured in environment steps and in turns. It ends with the first line in which the
condition does not hold, and begins again after QUIET_S seconds of training at the earliest.

A Health depends on the lines of metrics alone. So a recorder that is restarted, and any reader of `metrics.jsonl`,
comes to the same warnings by judging the lines again. `Health.at_end` judges the whole run. Nothing here has an effect
on training.

The thresholds come from runs of all examples and of broken copies of them (2026-11). The comments give the values of
healthy runs, and those of broken ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hive.config import Config, ReplayConfig
from hive.envs import Box, EnvironmentSpec, choices_of, limit_advice, recipe_of
from hive.envs.make import LIMIT
from hive.networks.build.spaces import simple_actions
from hive.records.run_warnings import FAILURES_TRUNCATED, GOAL_NOT_JUDGED, RunWarning

INFO_MISSING = "info missing"
QUIET_S = 60.0  # seconds of training between two beginnings of one warning, as for the lines of runtime.diagnostics
WINDOW = 100  # episodes of a mean return: those of fewer episodes are not judged

LONG_STEPS = 50_000  # environment steps for which a slow decline must last; healthy runs recover from 30,000
LONG_SHARE = 0.1  # the same as a share of run.steps, for runs of more than 500,000 steps
SOME_TURNS = 100  # turns for which a statistic must be bad: some rounds of PPO, a second of A2C

# A collapse costs this share of what was learned (best mean - lowest before it; healthy runs dip by up to 0.36), and
# more than the standard deviation of single returns, which is ten standard errors of the mean.
LOST_SHARE = 0.5
LOST_OF_BEST = 0.25  # least loss as a share of the best mean's size: if the first line is the best, nothing was learned
# Least share of the entropy of uniform actions: at 0.001, one of two actions has a probability of 0.9999. A good policy
# of Acrobot-v1 had 0.01 and fell; policies that had lost all exploration had 1e-7 and less.
ENTROPY_SHARE = 0.001
# Range of a Gaussian's deviation, in half-widths of the action's bounds: above it nearly all actions are clipped to the
# bounds, below it all are alike. Pendulum-v1 begins at 0.5 and ends at 0.2.
DEVIATIONS = (0.001, 10.0)
# Largest mean KL divergence from the policy that acted, in nats. Healthy runs stay below 0.06, also with lag; Spinning
# Up and RL Zoo stop a round at 0.01 to 0.03. Broken runs had 6 and more.
KL = 0.5
CLIPPED_SHARE = 0.6  # largest share of clipped ratios: healthy runs stay below 0.42, broken ones had 0.88 and more
KL_TURNS = 50  # turns for which KL divergence and clipped share must be large: later the policy no longer moves
# Explained variance at which values explain nothing. A constant value has 0, and hardly ever less.
EXPLAINED = 0.01
# Least error of such values, as a share of the targets' size: in solved CartPole-v1 all targets are nearly 50, and what
# is left to explain is noise (explained variance -1, error 1e-4).
VALUE_ERROR = 0.1
# Sizes (root mean square) of value targets: 5 to 100 in the examples, up to 1,000 in MuJoCo's tasks. Adam moves a value
# by some 0.01 an update, so it needs a million updates for 10,000, and its first steps already exceed 0.01.
TARGETS = (0.01, 1e4)
# Share of the sum of rewards by which clipping the largest raises that of all others: healthy runs stay below 0.03.
MOVED_SHARE = 0.1
SKIPPED_SHARE = 0.05  # share of the turns that were skipped: single ones are in the event log
SKIPPED_TURNS = 20  # turns of which this share is computed
EPISODE_LIMITS = 2  # time limits of the environment, in each environment, by which an episode must have ended
EPISODE_STEPS = 30_000  # the same in steps, without a declared time limit: Atari's, of 27,000 steps, is the longest
# Factor by which mean lengths must change if the policy has an effect on them. Early or lost episodes shift them less.
LENGTHS_APART = 1.5
EACH = 10  # episodes of each environment in such a mean
LENGTHS_VARY = 0.1  # least deviation of lengths as a share of their mean: the limits of an environment hardly vary
ALL_ENDS = 0.95  # least share of the episodes: a few may reach a limit
CONSTANT_EPISODES = 500  # episodes with one return: MountainCar-v0 earns -200 for 250 to 500 before its first success

HALF_LOG_TWO_PI_E = 0.5 * math.log(2.0 * math.pi * math.e)  # entropy of a normal variable of deviation 1


@dataclass(frozen=True)
class HealthFacts:
    """The part of a run's config and environment that the judgement depends on."""

    steps: int  # run.steps
    goal: float | None  # run.stop_at_return
    environments: int  # number of environments in all collectors
    time_limit: int | None  # steps of an episode
    most_entropy: float | None  # entropy of uniform discrete actions, in nats; None if a part is continuous
    dimensions: int = 0  # number of dimensions of continuous actions
    info: tuple[str, ...] = ()  # env.info
    log_range: float = 0.0  # mean logarithm of half the width of their bounds; 0 where they are infinite or -1 and 1
    agents: int = 0  # of an environment of several
    replays: bool = False  # whether it learns from a replay memory
    pretrained: bool = False  # whether it begins with the weights of another run
    limit_advice: str = ""  # the setting that limits episodes of this environment

    @classmethod
    def of(cls, config: Config, environment: EnvironmentSpec, collectors: int) -> HealthFacts:
        """Return the facts of a run with this number of collectors."""
        facts = cls._of_actions(config, environment, collectors)
        env = config.env
        return replace(
            facts,
            agents=len(environment.agents),
            replays=isinstance(config.algorithm, ReplayConfig),
            pretrained=config.run.init_from is not None,
            limit_advice=limit_advice(replace(recipe_of(env), wrappers=env.wrappers), apart=env.is_apart),
        )

    @classmethod
    def _of_actions(cls, config: Config, environment: EnvironmentSpec, collectors: int) -> HealthFacts:
        run, action, environments = config.run, environment.action, collectors * config.collection.envs
        goals = run.steps, run.stop_at_return, environments, environment.max_episode_steps
        info = config.env.info
        if (choices := choices_of(action)) is not None:
            return cls(*goals, sum(math.log(n) for n in choices), info=info)
        parts: list[Any] = simple_actions(action)
        boxes = [part for part in parts if isinstance(part, Box)]
        if len(boxes) < len(parts) or config.network.action_distribution == "squashed":
            return cls(*goals, None, info=info)  # the entropy does not determine a deviation
        # Entropies are those of the scale in which a policy acts; for the actors of replay algorithms that is -1 to 1.
        scaled = isinstance(config.algorithm, ReplayConfig)
        bounds = [(*pair, scaled or box.scaled) for box in boxes for pair in zip(box.low, box.high, strict=True)]
        widths = [1.0 if is_scaled else 0.5 * (high - low) for low, high, is_scaled in bounds]
        logs = [math.log(width) if 0.0 < width < math.inf else 0.0 for width in widths]
        return cls(*goals, None, len(logs), info=info, log_range=sum(logs) / max(len(logs), 1))


class JudgedMetrics(NamedTuple):
    """One line of metrics, with what earlier lines say. Metrics that are missing are NaN."""

    facts: HealthFacts
    steps: int
    values: Mapping[str, float]
    turns: int  # turns since the previous line
    skipped: int  # those of them that were skipped
    best: float  # highest mean return so far; -inf before WINDOW episodes
    lowest: float  # lowest mean return before the best one
    spread: float  # standard deviation of the returns behind the best mean
    idle_steps: int  # environment steps since the line with the last new episode
    lengths: tuple[float, float] = (math.nan, math.nan)  # mean length of the first and of the latest episodes
    first_mean: float = math.nan  # mean return of the first episodes, and its deviation
    first_spread: float = math.nan
    terminated: bool = False  # whether an episode has

    def value(self, name: str) -> float:
        return self.values.get(name, math.nan)

    @property
    def mean(self) -> float:
        return self.value("return/mean_100")

    @property
    def at_goal(self) -> bool:
        return self.facts.goal is not None and math.isfinite(self.mean) and self.mean >= self.facts.goal


@dataclass(frozen=True)
class WarningRule:
    """One row of the table of warnings."""

    name: str
    cause: Callable[[JudgedMetrics], str]  # why it holds, as a clause; "" where it does not or cannot be judged
    advice: str  # "{limit}" stands for `HealthFacts.limit_advice`
    long: bool = False  # whether it must last for LONG_STEPS, or LONG_SHARE of the run
    turns: int = 0  # least number of turns for which it must last
    replay_advice: str = ""  # instead of `advice` with a replay memory, where it differs

    def advice_for(self, facts: HealthFacts) -> str:
        return ((facts.replays and self.replay_advice) or self.advice).replace("{limit}", facts.limit_advice)


def _collapsed(line: JudgedMetrics) -> str:
    lost, learned = line.best - line.mean, line.best - line.lowest
    is_large = lost > LOST_SHARE * learned and lost > LOST_OF_BEST * abs(line.best) and lost > line.spread
    if is_large and not line.at_goal:
        return f"the mean return of {WINDOW} episodes fell from {line.best:.4g} to {line.mean:.4g}"
    return ""


def _not_finite(line: JudgedMetrics) -> str:
    if line.value("episodes") > 0 and not math.isfinite(line.mean):
        return f"the mean return of the last {WINDOW} episodes is no finite number"
    return ""


def _constant(line: JudgedMetrics) -> str:
    same = line.value("return/deviation_100") == 0.0 and line.best == line.lowest == line.mean
    # Weights of another run may have had the best possible return from the beginning.
    if same and line.value("episodes") >= CONSTANT_EPISODES and not (line.at_goal or line.facts.pretrained):
        return f"after {line.value('episodes'):,.0f} episodes all returns are {line.mean:.4g}, as at the beginning"
    return ""


def _no_exploration(line: JudgedMetrics) -> str:
    entropy, most = line.value("learner/entropy"), line.facts.most_entropy
    if most and entropy < ENTROPY_SHARE * most and not line.at_goal:
        return f"the policy hardly varies its actions (entropy {entropy:.2g} of {most:.2g} nats)"
    return ""


def _deviation(line: JudgedMetrics) -> float:
    """Return the Gaussian's deviation in half-widths of the bounds: a geometric mean over states and dimensions."""
    if not line.facts.dimensions:
        return math.nan
    exponent = line.value("learner/entropy") / line.facts.dimensions - HALF_LOG_TWO_PI_E - line.facts.log_range
    return math.exp(min(exponent, 700.0))  # the largest exponent whose power float64 holds is 709


def _narrow(line: JudgedMetrics) -> str:
    if (deviation := _deviation(line)) < DEVIATIONS[0] and not line.at_goal:
        return f"the policy's standard deviation is {deviation:.2g} of half the actions' range"
    return ""


def _wide(line: JudgedMetrics) -> str:
    if (deviation := _deviation(line)) > DEVIATIONS[1]:
        return f"the policy's standard deviation is {deviation:.2g} times half the actions' range"
    return ""


def _far(line: JudgedMetrics) -> str:
    kl, clipped = line.value("learner/kl"), line.value("learner/clipped")
    if kl > KL or clipped > CLIPPED_SHARE:
        return f"the policy moves too far from the one that acted (KL divergence {kl:.2g}, {clipped:.0%} clipped)"
    return ""


def _unexplained(line: JudgedMetrics) -> str:
    explained, size = line.value("learner/explained_variance"), line.value("learner/target_rms")
    error = math.sqrt(max(line.value("learner/value_loss"), 0.0)) / size if size > 0.0 else math.nan
    equal = line.value("return/deviation_100") == 0.0  # solved or never rewarded: nothing differs between episodes
    if explained <= EXPLAINED and error > VALUE_ERROR and not equal:
        return f"the values predict no difference between states (explained variance {explained:.2f})"
    return ""


def _size_of_targets(line: JudgedMetrics) -> float:
    """Return the size of value targets; Q-learning reports the mean of its values instead."""
    size = line.value("learner/target_rms")
    return abs(line.value("learner/q_mean")) if math.isnan(size) else size


def _large_rewards(line: JudgedMetrics) -> str:
    if (size := _size_of_targets(line)) > TARGETS[1]:
        return f"the value function must learn returns of about {size:.1e}"
    return ""


def _small_rewards(line: JudgedMetrics) -> str:
    if (size := line.value("learner/target_rms")) < TARGETS[0]:
        return f"the value function must learn returns of about {size:.1e}"
    return ""


def _clipped_rewards(line: JudgedMetrics) -> str:
    if (moved := line.value("learner/rewards_moved")) > MOVED_SHARE:
        share = line.value("learner/rewards_clipped")
        return (
            f"network.reward_clip cuts the largest {share:.2g} of the rewards, which raises the share of all others in "
            f"their sum by {moved:.2f}"
        )
    return ""


def _skipped(line: JudgedMetrics) -> str:
    if line.skipped > SKIPPED_SHARE * line.turns:
        which = "all" if line.skipped == line.turns else f"{line.skipped / line.turns:.0%} of"
        return f"{which} {line.turns:,} updates were skipped, because they were not finite"
    return ""


def _no_episode(line: JudgedMetrics) -> str:
    limit = line.facts.time_limit
    each = EPISODE_LIMITS * limit if limit else EPISODE_STEPS
    if line.idle_steps > each * line.facts.environments:
        return f"no episode has ended in {line.idle_steps:,} steps"
    return ""


def _truncated_failures(line: JudgedMetrics) -> str:
    """Judge episodes that the environment truncates after lengths that depend on the policy, which does not improve."""
    if line.terminated or line.facts.agents or line.value("ends/truncated") < ALL_ENDS:
        return ""
    first, now = line.lengths
    varies = line.value("length/deviation_100") > LENGTHS_VARY * line.value("length/mean_100")
    depends = max(first, now) > LENGTHS_APART * min(first, now)
    if varies and depends and line.mean <= line.first_mean + line.first_spread:
        return (
            f"no episode has terminated, and truncated ones lasted {first:,.0f} steps at first and {now:,.0f} now: "
            "truncated means interrupted, so the value of the last observation is added, and failing costs nothing"
        )
    return ""


def _no_info(line: JudgedMetrics) -> str:
    missing = [f"`{name}`" for name in line.facts.info if f"info/{name}" not in line.values]
    if missing and line.value("episodes") >= WINDOW:
        return f"no episode ended with {' or '.join(missing)} in its info"
    return ""


WARNING_RULES: tuple[WarningRule, ...] = (
    WarningRule(
        "return collapsed",
        _collapsed,
        'lower algorithm.learning_rate, or set algorithm.learning_rate_schedule = "linear"; run.stop_at_return ends a '
        "run at its goal",
    ),
    WarningRule(
        "return not finite",
        _not_finite,
        "the rewards overflow: scale them, or set network.normalize_rewards = true",
    ),
    WarningRule(
        "return constant",
        _constant,
        "no action has made a difference yet: explore more (algorithm.entropy_weight, or nstep-q's "
        "algorithm.exploration_steps), set network.normalize_observations = true, or reward progress; or every episode "
        "ends with the same return: let steps cost something, or limit them",
        replay_advice="no action has made a difference yet: explore more (algorithm.learning_starts, and with action "
        "values algorithm.exploration_steps), set network.normalize_observations = true, or reward progress",
    ),
    WarningRule(
        "entropy gone",
        _no_exploration,
        "raise algorithm.entropy_weight or lower algorithm.learning_rate",
        turns=SOME_TURNS,
        replay_advice="raise algorithm.target_entropy_share or lower algorithm.learning_rate",
    ),
    WarningRule(
        "deviation collapsed",
        _narrow,
        "raise algorithm.entropy_weight or lower algorithm.learning_rate",
        turns=SOME_TURNS,
    ),
    WarningRule(
        "deviation exploded",
        _wide,
        "lower algorithm.entropy_weight or algorithm.learning_rate",
        turns=SOME_TURNS,
    ),
    WarningRule(
        "updates too large",
        _far,
        "lower algorithm.learning_rate or algorithm.epochs, or set algorithm.target_kl = 0.02",
        turns=KL_TURNS,
    ),
    WarningRule(
        "values explain nothing",
        _unexplained,
        "set network.separate_networks = true, or normalize with network.normalize_rewards = true and "
        "network.normalize_observations = true",
        long=True,
        turns=SOME_TURNS,
        replay_advice="lower algorithm.learning_rate, or normalize with network.normalize_rewards = true and "
        "network.normalize_observations = true",
    ),
    WarningRule(
        "rewards too large",
        _large_rewards,
        "set network.normalize_rewards = true",
        turns=SOME_TURNS,
        replay_advice="set network.normalize_rewards = true; if the rewards are small, the values diverge: lower "
        "algorithm.learning_rate, or change the target network more slowly (algorithm.target_interval, target_rate)",
    ),
    WarningRule(
        "rewards too small",
        _small_rewards,
        "set network.normalize_rewards = true, or check that rewards arrive",
        long=True,
        turns=SOME_TURNS,
    ),
    WarningRule(
        "rewards cut",
        _clipped_rewards,
        "raise network.reward_clip, or set network.normalize_rewards = false, or a rare large reward may be worth less "
        "than frequent small ones",
        long=True,
    ),
    WarningRule(
        "updates skipped",
        _skipped,
        "lower algorithm.learning_rate, set algorithm.clip_gradients, or network.normalize_rewards = true for large "
        "rewards",
        turns=SKIPPED_TURNS,
    ),
    WarningRule(
        FAILURES_TRUNCATED,
        _truncated_failures,
        "let `step` return terminated where the task has failed or is solved, and truncated only at a time limit",
    ),
    WarningRule(
        INFO_MISSING,
        _no_info,
        "env.info names keys of the info that the last step of an episode returns, also after its wrappers",
    ),
    WarningRule(
        "no episode ended",
        _no_episode,
        "the mean return is old or unknown: raise checkpoint.every if episodes are only long (environments begin anew "
        "there), let `step` return terminated or truncated, or limit episodes: {limit}",
    ),
)
"""The table of warnings. A new one is a new row; `tests/training/test_health.py` has the series that cause each."""


@dataclass
class _Streak:
    """How long the condition of one warning has held."""

    steps: int  # environment steps of the line before it began to hold
    turns: int = 0  # turns since then


@dataclass
class Health:
    """Judges the metrics of one run, line by line; see the module."""

    facts: HealthFacts
    active: dict[str, RunWarning] = field(default_factory=dict)  # the warnings that hold, by name

    def __post_init__(self) -> None:
        self._streaks: dict[str, _Streak] = {}
        self._began_s: dict[str, float] = {}  # training time at which each warning began last
        self._totals = (0, 0, 0)  # steps, updates and skipped turns of the previous line
        self._episodes, self._episode_steps = 0.0, 0  # number of episodes, and steps of the line that counted the last
        self._best, self._spread = -math.inf, math.inf
        self._least = self._lowest = math.inf  # lowest mean return of all, and before the best one
        self._counts = [(0, 0.0)]  # environment steps and episodes of lines
        self._first: tuple[float, float] | None = None  # mean and deviation of the first WINDOW returns
        self._terminated = False

    def judge(
        self, steps: int, updates: int, seconds: float, values: Mapping[str, float | None]
    ) -> tuple[list[RunWarning], list[RunWarning]]:
        """Return the warnings that begin and those that end with this line of metrics.

        seconds: training time. values: metrics by name; None, the null of JSON, counts as NaN. A line without the
        learner's metrics, such as an evaluation, changes nothing.
        """
        if "episodes" not in values:
            return [], []
        known = {name: math.nan if value is None else value for name, value in values.items()}
        began, ended = [], []
        line = self._line(steps, updates, known)
        for rule in WARNING_RULES:
            cause = rule.cause(line)
            if not cause:
                self._streaks.pop(rule.name, None)
                if rule.name in self.active:
                    ended.append(self.active.pop(rule.name))
            elif self._lasts(rule, line) and rule.name not in self.active:
                since_s = round(seconds, 3) - self._began_s.get(rule.name, -math.inf)
                if since_s >= QUIET_S:
                    self._began_s[rule.name] = round(seconds, 3)  # rounded as in metrics.jsonl
                    self.active[rule.name] = RunWarning(rule.name, cause, rule.advice_for(self.facts), steps)
                    began.append(self.active[rule.name])
        self._totals = steps, updates, int(_number(known.get("learner/skipped")))
        return began, ended

    def at_end(self, steps: int) -> list[RunWarning]:
        """Return the warnings about a run that ends now, after `steps` environment steps."""
        goal = self.facts.goal
        if goal is None or self._episodes >= WINDOW:
            return []
        cause = (
            f"run.stop_at_return = {goal:g} was never judged: it is compared with the mean return of {WINDOW} "
            f"episodes, and {self._episodes:,.0f} of {WINDOW} episodes have ended"
        )
        shorter = steps > LIMIT * self._episodes and (self.facts.time_limit or math.inf) > LIMIT
        limit = f", or shorten episodes: {self.facts.limit_advice}" if self.facts.limit_advice and shorter else ""
        return [RunWarning(GOAL_NOT_JUDGED, cause, f"raise run.steps{limit}", steps)]

    def _line(self, steps: int, updates: int, values: Mapping[str, float]) -> JudgedMetrics:
        """Add the line to the history, and return it with the history that its judgement needs."""
        _, updates_before, skipped_before = self._totals
        skipped = max(int(_number(values.get("learner/skipped"))) - skipped_before, 0)
        episodes, mean = values["episodes"], values.get("return/mean_100", math.nan)
        if episodes != self._episodes:
            self._episodes, self._episode_steps = episodes, steps
        if episodes >= WINDOW and math.isfinite(mean):
            self._least = min(self._least, mean)
            if mean > self._best:
                self._best, self._lowest = mean, self._least
                self._spread = _number(values.get("return/deviation_100"))
        turns = max(updates - updates_before, 0) + skipped
        kept = self._best, self._lowest, self._spread, steps - self._episode_steps
        if episodes:
            self._terminated |= values.get("ends/terminated", 1.0) > 0  # also where an older hive does not tell
        if episodes >= WINDOW and self._first is None:
            self._first = mean, _number(values.get("return/deviation_100"))
        lengths, first = self._mean_lengths(steps, episodes), self._first or (math.nan, math.nan)
        return JudgedMetrics(self.facts, steps, values, turns, skipped, *kept, lengths, *first, self._terminated)

    def _mean_lengths(self, steps: int, episodes: float) -> tuple[float, float]:
        """Return the mean length of the first and of the latest episodes; NaN before there are enough of both.

        They are so many that the short ones, which end first, no longer prevail: EACH of each environment.
        """
        counts, enough = self._counts, max(WINDOW, EACH * self.facts.environments)
        if self._terminated or self.facts.agents:
            return math.nan, math.nan
        counts.append((steps, episodes))
        first = next((one for one in counts if one[1] >= enough), None)
        before = next((one for one in reversed(counts) if episodes - one[1] >= enough), None)
        if first is None or before is None or before[1] < first[1]:
            return math.nan, math.nan
        return first[0] / first[1], (steps - before[0]) / (episodes - before[1])

    def _lasts(self, rule: WarningRule, line: JudgedMetrics) -> bool:
        """Return whether the condition of this warning, which holds, has held for long enough."""
        streak = self._streaks.setdefault(rule.name, _Streak(self._totals[0]))
        streak.turns += line.turns
        long = max(LONG_STEPS, LONG_SHARE * self.facts.steps) if rule.long else 0
        return streak.turns >= rule.turns and line.steps - streak.steps >= long


def _number(value: float | None) -> float:
    return 0.0 if value is None or not math.isfinite(value) else value
