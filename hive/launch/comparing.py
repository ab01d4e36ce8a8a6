"""Groups of runs for `hive compare`, `hive plot` and `Result.plot`, and pictures of their curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.errors import UsageError
from hive.launch.select_run import chosen_policy, chosen_run, named_run, say_default
from hive.launch.suggest import did_you_mean, listed
from hive.monitor.series import RETURN
from hive.records import RunDirectory, find_runs, home_folder, policies_of

if TYPE_CHECKING:
    from hive.comparison.picture import SeedLine
    from hive.comparison.selection import RunGroup
    from hive.monitor.series import Axis

XLABELS = {"steps": "environment steps", "seconds": "seconds of training", "updates": "updates"}


def draw_run(directory: RunDirectory, metric: str, path: Path | None = None) -> Any:
    """Draw a metric of one run over environment steps; return the Figure. path: write it there, too.

    Raises UsageError if the run has no values of the metric.
    """
    from hive.comparison import picture
    from hive.comparison.curves import read_run
    from hive.comparison.selection import Selected, grouped

    if path is not None:
        picture.check_file(path)
    figure = figure_of(grouped([(Selected(directory, ""), read_run(directory, [metric]))]), metric)
    if path is not None:
        picture.write_figure(figure, path)
    return figure


def figure_of(
    groups: Sequence[RunGroup],
    metric: str,
    axis: Axis = "steps",
    smooth: int = 1,
    theme: str = "light",
    title: str = "",
) -> Any:
    """Draw a metric of groups of runs. Raises UsageError if no run has values of it."""
    from hive.comparison import picture

    check_metric(groups, metric)
    colors = picture.THEMES[theme]
    figure, (axes,) = picture.new_figure(7.0, 4.0, theme=colors)
    lines = {group.label: lines_of(group, metric, axis, smooth) for group in groups}
    picture.draw_curves(axes, lines, xlabel=XLABELS[axis], ylabel=ylabel(metric), theme=colors)
    axes.set_title(title or environments(groups), loc="left")
    return figure


def chosen_groups(texts: Sequence[str], metrics: Sequence[str], policy: str | None = None) -> list[RunGroup]:
    """Return the groups of the runs that texts select; without texts, the live or newest run.

    policy: the name of one of several policies; None: the first, which is printed once if a run has others.
    """
    from hive.comparison.curves import read_run
    from hive.comparison.selection import Selected, grouped, select

    if texts:
        selected = select(texts, find_runs(home_folder()), named_run)
    else:
        run = chosen_run(None)
        say_default(None, run)
        selected = [Selected(run, "")]
    several = [one.directory for one in selected if policy is None and len(policies_of(one.directory)) > 1]
    for directory in several[:1]:
        chosen_policy(directory, None)
    return grouped((one, read_run(one.directory, metrics, policy)) for one in selected)


def check_metric(groups: Sequence[RunGroup], metric: str | None) -> None:
    """Raise UsageError if no run has values of a metric that the user named, with the metrics that runs have."""
    runs = [run for group in groups for run in group.runs]
    if metric is None or any(metric in run.curves for run in runs):
        return
    known = sorted({name for run in runs for name in run.metrics})
    hint = f"metrics of these runs: {listed(known)}" if known else "these runs have no metrics yet"
    raise UsageError(f"no selected run has values of `{metric}`{did_you_mean(metric, known)}", hint=hint)


def lines_of(group: RunGroup, metric: str, axis: Axis, smooth: int = 1) -> list[SeedLine]:
    from hive.comparison.statistics import rolling_mean

    curves = [run.curves[metric] for run in group.counted(metric)]
    return [(curve.along(axis), rolling_mean(curve.values, smooth)) for curve in curves]


def ylabel(metric: str) -> str:
    return {RETURN: "mean return of 100 episodes", "evaluation/mean_return": "mean return of evaluations"}.get(
        metric, metric
    )


def environments(groups: Sequence[RunGroup]) -> str:
    return listed(dict.fromkeys(run.env for group in groups for run in group.runs if run.env))
