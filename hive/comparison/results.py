"""Computes a comparison of groups of runs, and writes it as data or as tables.

Every run counts with the last value of one metric: the mean return of evaluations if every run with values has it, else
the mean return of the last 100 training episodes, or the metric that the caller names. Higher values are better, unless
the caller states the opposite, as for losses: a threshold is then reached from above, and the probability of
improvement is that of lower values. The statistics are those of hive.comparison.statistics; the tasks of the bootstrap
are the environments of a group's runs, usually one. A run that never reaches the threshold counts as slower than all
that do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hive.comparison.curves import EVALUATION, MetricCurve, RunCurves
from hive.comparison.selection import RunGroup, config_differences, value_text
from hive.comparison.statistics import (
    LEAST_SEEDS,
    Interval,
    Scores,
    bootstrap,
    first_at_least,
    interquartile_mean,
    probability_of_improvement,
)
from hive.errors import UsageError
from hive.monitor.series import RETURN, Axis
from hive.records.return_text import return_text

NONE = "–"
MEANINGS = {
    EVALUATION: "mean return of the last evaluation",
    RETURN: "mean return of the last 100 training episodes",
}
UNEQUAL = 1.5  # ratio of the steps of two runs from which on a note says that they differ
SHOWN_SEEDS = 8  # maximum seeds and values listed in a cell of a table


@dataclass(frozen=True)
class Reached:
    """When the runs of a group first reached the threshold. Medians are infinite if half of the runs never did."""

    runs: int
    of: int
    steps: float
    seconds: float


@dataclass(frozen=True)
class Row:
    """The results of one group: of the runs that count, `scored`, and the last value of each, `finals`."""

    group: RunGroup
    scored: tuple[RunCurves, ...]
    finals: tuple[float, ...]
    iqm: Interval | None
    mean: float | None
    median: float | None
    reached: Reached | None


@dataclass(frozen=True)
class Comparison:
    """Rows of all groups, and the probability that a run of one group ends better than one of another: [row, column].

    improvement: None for a pair without values in a common environment. differences: key -> value in each group.
    """

    metric: str
    lower_is_better: bool
    threshold: float | None
    rows: tuple[Row, ...]
    improvement: tuple[tuple[Interval | None, ...], ...]
    differences: dict[str, list[Any]]


def chosen_metric(groups: Sequence[RunGroup], given: str | None = None) -> str:
    """Return the metric of a comparison. Raises UsageError if no run has it, or if no run has any values."""
    runs = [run for group in groups for run in group.runs]
    if given is not None:
        if not any(given in run.curves for run in runs):
            raise UsageError(f"no selected run has values of `{given}`")
        return given
    usable = [run for run in runs if run.curves]
    if not usable:
        raise UsageError(
            "the selected runs have no returns yet", hint="a run writes the first after `record.every_s` seconds"
        )
    return EVALUATION if all(EVALUATION in run.curves for run in usable) else RETURN


def compare(
    groups: Sequence[RunGroup], metric: str, threshold: float | None = None, *, lower_is_better: bool = False
) -> Comparison:
    """Compare groups by the last values of a metric.

    threshold: default for returns of which higher ones are better: `run.stop_at_return`, if all runs agree on it.
    """
    if threshold is None and metric in MEANINGS and not lower_is_better:
        threshold = _common_goal(groups)
    rows = tuple(_row(group, metric, threshold, lower_is_better) for group in groups)
    pairs = [[(theirs, mine) if lower_is_better else (mine, theirs) for theirs in rows] for mine in rows]
    improvement = tuple(tuple(_probability_above(*pair) for pair in line) for line in pairs)
    return Comparison(metric, lower_is_better, threshold, rows, improvement, config_differences(groups))


def _common_goal(groups: Sequence[RunGroup]) -> float | None:
    goals = {run.config.run.stop_at_return if run.config else None for group in groups for run in group.runs}
    return next(iter(goals)) if len(goals) == 1 else None


def _row(group: RunGroup, metric: str, threshold: float | None, lower_is_better: bool) -> Row:
    scored = group.counted(metric)
    curves = [run.curves[metric] for run in scored]
    finals = tuple(float(curve.values[-1]) for curve in curves)
    if not scored:
        return Row(group, (), (), None, None, None, None)
    iqm = bootstrap(interquartile_mean, list(_by_env(scored, finals).values()))
    reached = None if threshold is None else _reached(curves, threshold, lower_is_better)
    return Row(group, scored, finals, iqm, float(np.mean(finals)), float(np.median(finals)), reached)


def _by_env(runs: Sequence[RunCurves], finals: Sequence[float]) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """Return environment -> final values of its runs."""
    envs = dict.fromkeys(run.env for run in runs)
    return {env: np.array([v for run, v in zip(runs, finals, strict=True) if run.env == env]) for env in envs}


def _reached(curves: Sequence[MetricCurve], threshold: float, lower_is_better: bool) -> Reached:
    sign = -1.0 if lower_is_better else 1.0
    first = [first_at_least(sign * curve.values, sign * threshold) for curve in curves]
    steps = [math.inf if at is None else curve.steps[at] for at, curve in zip(first, curves, strict=True)]
    seconds = [math.inf if at is None else curve.seconds[at] for at, curve in zip(first, curves, strict=True)]
    count = sum(at is not None for at in first)
    return Reached(count, len(curves), _median(steps), _median(seconds))


def _median(values: Sequence[float]) -> float:
    """Return the median; infinite if one of the two middle values is."""
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float(low if low == high else (low + high) / 2.0)


def _probability_above(mine: Row, theirs: Row) -> Interval | None:
    """Return the probability that a run of one row ends above one of the other."""
    ours, others = _by_env(mine.scored, mine.finals), _by_env(theirs.scored, theirs.finals)
    common = [env for env in ours if env in others]
    if not common or mine is theirs:
        return None
    scores: Scores = [values[env] for env in common for values in (ours, others)]
    if min(map(len, scores)) < LEAST_SEEDS:
        return Interval(float(probability_of_improvement(scores)), -math.inf, math.inf)
    return bootstrap(probability_of_improvement, scores)


# --- data


def as_data(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain data, for JSON; infinite ends of intervals and medians are None."""
    return {
        "metric": comparison.metric,
        "lower_is_better": comparison.lower_is_better,
        "threshold": comparison.threshold,
        "groups": [_row_data(row) for row in comparison.rows],
        "probability_of_improvement": [
            {"of": mine.group.label, "over": theirs.group.label, **_interval_data(found)}
            for mine, line in zip(comparison.rows, comparison.improvement, strict=True)
            for theirs, found in zip(comparison.rows, line, strict=True)
            if found is not None
        ],
        "config": comparison.differences,
        "notes": notes_of(comparison),
    }


def _row_data(row: Row) -> dict[str, Any]:
    finals = {run.name: value for run, value in zip(row.scored, row.finals, strict=True)}
    reached = row.reached
    return {
        "name": row.group.label,
        "runs": [
            {
                "name": run.name,
                "path": str(run.directory.path),
                "state": run.state,
                "seed": None if run.config is None else run.config.run.seed,
                "final": finals.get(run.name),
            }
            for run in row.group.runs
        ],
        "iqm": None if row.iqm is None else _interval_data(row.iqm),
        "mean": row.mean,
        "median": row.median,
        "threshold": None
        if reached is None
        else {
            "reached": reached.runs,
            "of": reached.of,
            "median_steps": _finite(reached.steps),
            "median_seconds": _finite(reached.seconds),
        },
    }


def _interval_data(interval: Interval) -> dict[str, float | None]:
    return {"value": interval.value, "low": _finite(interval.low), "high": _finite(interval.high)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# --- text


def notes_of(comparison: Comparison) -> list[str]:
    """Return sentences about what a reader of the tables must know."""
    meaning = MEANINGS.get(comparison.metric, "last value of each run")
    better = "lower is better" if comparison.lower_is_better else "higher is better"
    if comparison.metric not in MEANINGS and not comparison.lower_is_better:
        better += ", or use --lower-is-better"
    first = f"final values: {comparison.metric}, {meaning}; {better}"
    return [first, *_notes_on_runs(comparison), *_notes_on_groups(comparison)]


def _notes_on_runs(comparison: Comparison) -> Iterator[str]:
    """Name the runs that do not count, or not as they would when they had finished."""
    runs = [run for row in comparison.rows for run in row.group.runs]
    scored = [run for row in comparison.rows for run in row.scored]
    for run in runs:
        if comparison.metric not in run.curves:
            yield f"{run.name} is left out: it has no values of {comparison.metric}"
        elif run not in scored and run.config:
            yield f"{run.name} is left out: another run has its config and its seed {run.config.run.seed}"
    yield from (f"the config of {run.name} cannot be read: {run.fault}" for run in runs if run.config is None)
    if live := [run.name for run in runs if run.state == "running"]:
        yield f"still running: {_listed(live)}"
    for run in scored:
        at = f"it counts with its value at step {_last_step(comparison, run):,.0f}"
        if run.state in ("failed", "lost"):
            yield f"{run.name} did not finish ({run.state}): {at}"
        if (since := run.curves[comparison.metric].not_finite_from) is not None:
            yield f"{comparison.metric} of {run.name} is not finite from step {since:,.0f} on: {at}"


def _notes_on_groups(comparison: Comparison) -> Iterator[str]:
    """Say how far the groups can be compared."""
    steps = [_last_step(comparison, run) for row in comparison.rows for run in row.scored]
    if steps and max(steps) > UNEQUAL * min(steps):
        yield f"the runs end at different steps, {min(steps):,.0f} to {max(steps):,.0f}, with their values there"
    if any(len(row.finals) == 1 for row in comparison.rows):
        yield "a group with one run has no interval: train more seeds with `hive up CONFIG --seeds 1..5`"
    envs = {run.env for row in comparison.rows for run in row.group.runs if run.env}
    if len(envs) > 1:
        yield f"the environments differ ({_listed(sorted(envs))}), so compare returns with care"


def _last_step(comparison: Comparison, run: RunCurves) -> float:
    return float(run.curves[comparison.metric].steps[-1])


CELLS: Mapping[str, Callable[[Row, str], str]] = {
    "GROUP": lambda row, metric: row.group.label,
    "RUNS": lambda row, metric: str(len(row.group.runs)),
    "SEEDS": lambda row, metric: _listed(str(run.config.run.seed) if run.config else "?" for run in row.group.runs),
    "STEPS": lambda row, metric: _ends_at(row, metric, "steps", 0),
    "SECONDS": lambda row, metric: _ends_at(row, metric, "seconds", 1),
    "FINAL": lambda row, metric: _listed(map(return_text, row.finals)) or NONE,
    "IQM": lambda row, metric: NONE if row.iqm is None else return_text(row.iqm.value),
    "95 % INTERVAL": lambda row, metric: NONE if row.iqm is None else ends(row.iqm),
}
"""Title of a column -> its cell of a row, in a comparison by this metric."""


def table_rows(comparison: Comparison) -> tuple[Sequence[str], list[list[str]]]:
    """Return the head and the cells of the table of results, one row per group."""
    head = [*CELLS]
    rows = [[cell(row, comparison.metric) for cell in CELLS.values()] for row in comparison.rows]
    if len(rows) > 1:
        head.append("P(BELOW FIRST)" if comparison.lower_is_better else "P(ABOVE FIRST)")
        for cells, (first, *_) in zip(rows, comparison.improvement, strict=True):
            cells.append(NONE if first is None else f"{first.value:.2f} ({ends(first, 2)})".replace(f" ({NONE})", ""))
    if comparison.threshold is not None:
        head += [f"REACHED {comparison.threshold:g}", "STEPS TO IT", "SECONDS TO IT"]
        for cells, row in zip(rows, comparison.rows, strict=True):
            cells += _reached_cells(row.reached)
    return head, rows


def _ends_at(row: Row, metric: str, axis: Axis, decimals: int) -> str:
    """Return the median of where the curves of a row end on an axis."""
    places = [run.curves[metric].along(axis)[-1] for run in row.scored]
    return f"{_median(places):,.{decimals}f}" if places else NONE


def _reached_cells(reached: Reached | None) -> list[str]:
    if reached is None:
        return [NONE] * 3
    steps = "never" if math.isinf(reached.steps) else f"{reached.steps:,.0f}"
    seconds = "never" if math.isinf(reached.seconds) else f"{reached.seconds:,.1f}"
    return [f"{reached.runs} of {reached.of}", steps, seconds]


def config_rows(comparison: Comparison) -> tuple[Sequence[str], list[list[str]]]:
    """Return the head and the cells of the table of keys whose values differ; no rows if none does."""
    head = ["KEY", *(row.group.label for row in comparison.rows)]
    return head, [[key, *map(value_text, values)] for key, values in comparison.differences.items()]


def ends(interval: Interval, decimals: int | None = None) -> str:
    """Return "low to high", or a dash for an interval without ends."""
    if not math.isfinite(interval.low):
        return NONE
    low, high = (return_text(v) if decimals is None else f"{v:.{decimals}f}" for v in (interval.low, interval.high))
    return f"{low} to {high}"


def _listed(values: Iterable[str]) -> str:
    """Join values with blanks, the first SHOWN_SEEDS of them."""
    every = list(values)
    more = [f"and {len(every) - SHOWN_SEEDS} more"] if len(every) > SHOWN_SEEDS else []
    return ", ".join([*every[:SHOWN_SEEDS], *more])
