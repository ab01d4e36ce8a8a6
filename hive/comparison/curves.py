"""Reads learning curves and final values from the directories of runs, whether they are live, ended or damaged.

A curve is one metric over the three axes of metrics.jsonl. Invalid lines, and values that are not finite, are left out;
a run without lines has no curves. Points are sorted by steps, because several evaluators write out of order; of those
with equal steps the newest counts. Unlike the curves of the monitor (hive.monitor.series), these have every point,
because times to a threshold and final values are read from them.

The last mean return of training episodes is that of `summary.json`, if there is one; a live run has its newest value.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hive.comparison.statistics import Doubles
from hive.config import Config, load_config
from hive.errors import ConfigError, RecordError
from hive.monitor.series import AXES, RETURN, Axis, place_of
from hive.records import RunDirectory, Summary, policies_of, policy_directory, read_jsonl, run_state
from hive.records.documents import is_json_number

EVALUATION = "evaluation/mean_return"


@dataclass(frozen=True)
class MetricCurve:
    """The points of one metric of one run, in the order of steps. All arrays are [N], N >= 1.

    not_finite_from: steps of the first line after the last point whose value is not finite; None if no line is.
    """

    steps: Doubles
    seconds: Doubles
    updates: Doubles
    values: Doubles
    not_finite_from: float | None = None

    def along(self, axis: Axis) -> Doubles:
        """Return the positions of the points on an axis."""
        places: Doubles = getattr(self, axis)
        return places


@dataclass(frozen=True, eq=False)
class RunCurves:
    """The part of one run that a comparison needs.

    curves: those of the requested metrics that have at least one point. metrics: the names of all metrics of the run.
    config: None if `resolved.toml` is missing or cannot be loaded; `fault` is then the reason.
    """

    directory: RunDirectory
    state: str
    config: Config | None
    fault: str
    curves: dict[str, MetricCurve]
    metrics: frozenset[str]

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def base_name(self) -> str:
        """The name without the number that every run has: "cartpole" for "cartpole-3"."""
        stem, dash, number = self.name.rpartition("-")
        return stem if dash and number.isdecimal() else self.name

    @property
    def env(self) -> str:
        """The id of the environment; "" if it is unknown."""
        return "" if self.config is None else self.config.env.id


def read_run(directory: RunDirectory, metrics: Sequence[str], policy: str | None = None) -> RunCurves:
    """Read one run and its curves of `metrics`. Raises RecordError if a file exists and cannot be read.

    policy: the name of one of several policies, whose metrics are read; None: the first. Raises UsageError for another.
    """
    folder = directory if policy is None else policy_directory(directory, policy)
    points = {metric: array("d") for metric in metrics}  # steps, seconds, updates and value of each in turn
    nulls: dict[str, list[float]] = {metric: [] for metric in metrics}  # steps of values that are not finite
    names: set[str] = set()
    for line in read_jsonl(folder.metrics_file):
        if (at := place_of(line)) is None:
            continue
        names.update(name for name in line if "/" in name)
        for metric, column in points.items():
            if is_json_number(value := line.get(metric)):
                column.extend((*at.values(), float(value)))  # type: ignore[arg-type]
            elif metric in line:
                nulls[metric].append(at["steps"])
    if RETURN in points and (last := _summary_point(directory, policy)) is not None:
        names.add(RETURN)
        points[RETURN].extend(last)
    curves = {metric: _curve(column, nulls[metric]) for metric, column in points.items() if column}
    config, fault = _config(directory)
    return RunCurves(directory, run_state(directory), config, fault, curves, frozenset(names))


def _curve(points: array[float], nulls: Sequence[float]) -> MetricCurve:
    """Make a curve with one point, the newest, of those with equal steps."""
    columns = np.array(points).reshape(-1, len(AXES) + 1).T
    columns = columns[:, np.lexsort((columns[2], columns[0]))]  # by steps, then by updates, then in the order of lines
    after = min((steps for steps in nulls if steps > columns[0, -1]), default=None)
    steps, seconds, updates, values = columns[:, np.append(np.diff(columns[0]) > 0.0, True)]
    return MetricCurve(steps, seconds, updates, values, after)


def _summary_point(directory: RunDirectory, policy: str | None) -> tuple[float, float, float, float] | None:
    """Return (steps, seconds, updates, mean return) of the end of a run; None without a summary or a mean return."""
    try:
        summary = Summary.read(directory.summary_file)
    except RecordError:
        return None  # the run is live, or its end left no summary
    updates, mean_return = summary.updates, summary.mean_return_100
    if policy is not None and len(policies_of(directory)) > 1:
        own = summary.policies.get(policy, {})
        updates, mean_return = own.get("updates", 0), own.get("mean_return_100")
    return None if mean_return is None else (summary.env_steps, summary.train_s, updates, mean_return)


def _config(directory: RunDirectory) -> tuple[Config | None, str]:
    """Return the config of a run, or None and the first line of the reason why it cannot be loaded."""
    try:
        return load_config(directory.resolved_file), ""
    except ConfigError as error:
        return None, str(error).partition("\n")[0]
