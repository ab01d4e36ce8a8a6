"""`hive compare` and `hive plot`: results of groups of runs as a table, and learning curves as a picture.

    GROUP     RUNS  SEEDS    STEPS    SECONDS  FINAL                IQM    95 % INTERVAL   P(ABOVE FIRST)
    cartpole  3     1, 2, 3  80,896   0.6      500.0, 500.0, 489.6  496.5  489.6 to 500.0  –

Both read only the files of runs, so live runs take no notice. hive.comparison computes and draws.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.cli.arguments import DEFAULT_RUN, add_json
from hive.cli.select_run import chosen_run, named_run, say_default
from hive.cli.suggest import did_you_mean, listed
from hive.errors import UsageError
from hive.monitor.series import AXES, RETURN
from hive.paths import user_path
from hive.records import RunDirectory, find_runs, home_folder
from hive.records.documents import json_text
from hive.table import markdown_text, table_text

if TYPE_CHECKING:
    from hive.comparison.picture import Line
    from hive.comparison.results import Comparison
    from hive.comparison.selection import Group
    from hive.monitor.series import Axis

__all__ = ["add_compare", "add_plot", "draw_run"]

RUNS = """runs:
  cartpole-ppo-3        one run: a name, a unique prefix of a name, a path or `latest`
  cartpole-ppo          all runs cartpole-ppo-<n> in $HIVE_HOME
  'cartpole-*'          all runs in $HIVE_HOME whose names match
  slow='cartpole-[45]'  runs as one group named `slow`
Other runs are grouped by config without seed, and by name without number."""

THEMES = ("light", "dark")  # those of hive.comparison.picture, which `hive --help` must not import
XLABELS = {"steps": "environment steps", "seconds": "seconds of training", "updates": "updates"}


def add_compare(commands: Any) -> None:
    compare = commands.add_parser(
        "compare",
        description="Compare groups of runs, such as seeds of two configs: final values, interquartile means with\n"
        "bootstrap intervals, the probability that one is better, time to a threshold, and how the configs differ.",
        epilog=f"{RUNS}\n\nexample: hive compare cartpole cartpole-slow --threshold 475 --png compared.png",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    compare.add_argument("runs", nargs="+", metavar="RUN", help="runs or groups of runs, see below")
    compare.add_argument(
        "--metric",
        metavar="NAME",
        help="metric whose last values are compared (default: evaluation/mean_return if all runs have it, else "
        "return/mean_100)",
    )
    compare.add_argument(
        "--lower-is-better",
        action="store_true",
        help="lower values of the metric are better, as of losses: a threshold is then reached from above",
    )
    compare.add_argument(
        "--threshold",
        type=float,
        metavar="VALUE",
        help="value that runs are to reach (default: run.stop_at_return, if all runs have the same)",
    )
    form = compare.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print Markdown tables")
    add_json(form)
    compare.add_argument(
        "-o",
        "--png",
        type=user_path,
        dest="output",
        metavar="FILE",
        help="also write a picture, .png or .svg: the curves, and the final values with their intervals",
    )
    _add_theme(compare)
    compare.set_defaults(run=run_compare)


def add_plot(commands: Any) -> None:
    plot = commands.add_parser(
        "plot",
        description="Draw learning curves: a thin line per seed, and the median and quartiles of each group of seeds.",
        epilog=f"{RUNS}\n\nexample: hive plot 'cartpole*' --x seconds -o curves.svg",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    plot.add_argument("runs", nargs="*", metavar="RUN", help=f"see below; default: {DEFAULT_RUN}")
    plot.add_argument(
        "-o", "--output", type=user_path, required=True, metavar="FILE", help="file to write: .png or .svg"
    )
    plot.add_argument("--x", choices=AXES, default=AXES[0], help=f"horizontal axis (default {AXES[0]})")
    plot.add_argument("--metric", default=RETURN, metavar="NAME", help=f"metric to draw (default {RETURN})")
    plot.add_argument(
        "--smooth", type=_window, default=1, metavar="N", help="draw the mean of the last N points (default 1)"
    )
    plot.add_argument("--title", default="", metavar="TEXT", help="heading of the picture (default: the environment)")
    _add_theme(plot)
    plot.set_defaults(run=run_plot)


def _add_theme(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--theme", choices=THEMES, default=THEMES[0], help=f"colours of the picture (default {THEMES[0]})"
    )


def _window(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid number of points `{text}`: expected a whole number >= 1")
    return int(text)


def run_compare(options: argparse.Namespace) -> int:
    """Run `hive compare`; return the exit code."""
    from hive.comparison.curves import EVALUATION
    from hive.comparison.results import as_data, chosen_metric, compare, config_rows, notes_of, table_rows

    if options.output:
        _check_picture(options.output)
    groups = _groups(options.runs, [options.metric] if options.metric else [EVALUATION, RETURN])
    _check_metric(groups, options.metric)
    metric = chosen_metric(groups, options.metric)
    found = compare(groups, metric, options.threshold, lower_is_better=options.lower_is_better)
    if options.json:
        print(json_text(as_data(found), indent=2))
    else:
        tables = [table_rows(found), *([config_rows(found)] if found.differences else [])]
        for index, (head, rows) in enumerate(tables):
            if index:
                print()
            print(markdown_text(head, rows) if options.markdown else table_text(head, rows))
        for note in notes_of(found):
            print(f"note: {note}", file=sys.stderr)
    if options.output:
        _write_comparison(found, options.output, options.theme)
    return 0


def run_plot(options: argparse.Namespace) -> int:
    """Run `hive plot`; return the exit code."""
    from hive.comparison import picture

    _check_picture(options.output)
    groups = _groups(options.runs, [options.metric])
    figure = _figure(groups, options.metric, options.x, options.smooth, options.theme, options.title)
    picture.write_figure(figure, options.output)
    print(options.output)
    return 0


def draw_run(directory: RunDirectory, metric: str, path: Path | None = None) -> Any:
    """Draw a metric of one run over environment steps; return the Figure. path: write it there, too.

    Raises UsageError if the run has no values of the metric.
    """
    from hive.comparison import picture
    from hive.comparison.curves import read_run
    from hive.comparison.selection import Selected, grouped

    if path is not None:
        picture.check_file(path)
    figure = _figure(grouped([(Selected(directory, ""), read_run(directory, [metric]))]), metric)
    if path is not None:
        picture.write_figure(figure, path)
    return figure


def _figure(
    groups: Sequence[Group], metric: str, axis: Axis = "steps", smooth: int = 1, theme: str = "light", title: str = ""
) -> Any:
    """Draw a metric of groups of runs. Raises UsageError if no run has values of it."""
    from hive.comparison import picture

    _check_metric(groups, metric)
    colours = picture.THEMES[theme]
    figure, (axes,) = picture.new_figure(7.0, 4.0, theme=colours)
    lines = {group.label: _lines(group, metric, axis, smooth) for group in groups}
    picture.draw_curves(axes, lines, xlabel=XLABELS[axis], ylabel=_ylabel(metric), theme=colours)
    axes.set_title(title or _environments(groups), loc="left")
    return figure


def _check_picture(path: Path) -> None:
    from hive.comparison.picture import check_file

    check_file(path)


def _groups(texts: Sequence[str], metrics: Sequence[str]) -> list[Group]:
    """Return the groups of the runs that texts select; without texts, the live or newest run."""
    from hive.comparison.curves import read_run
    from hive.comparison.selection import Selected, grouped, select

    if texts:
        selected = select(texts, find_runs(home_folder()), named_run)
    else:
        run = chosen_run(None)
        say_default(None, run)
        selected = [Selected(run, "")]
    return grouped((one, read_run(one.directory, metrics)) for one in selected)


def _check_metric(groups: Sequence[Group], metric: str | None) -> None:
    """Raise UsageError if no run has values of a metric that the user named, with the metrics that runs have."""
    runs = [run for group in groups for run in group.runs]
    if metric is None or any(metric in run.curves for run in runs):
        return
    known = sorted({name for run in runs for name in run.metrics})
    hint = f"metrics of these runs: {listed(known)}" if known else "these runs have no metrics yet"
    raise UsageError(f"no selected run has values of `{metric}`{did_you_mean(metric, known)}", hint=hint)


def _lines(group: Group, metric: str, axis: Axis, smooth: int = 1) -> list[Line]:
    from hive.comparison.statistics import rolling_mean

    curves = [run.curves[metric] for run in group.runs if metric in run.curves]
    return [(curve.along(axis), rolling_mean(curve.values, smooth)) for curve in curves]


def _ylabel(metric: str) -> str:
    return {RETURN: "mean return of 100 episodes", "evaluation/mean_return": "mean return of evaluations"}.get(
        metric, metric
    )


def _environments(groups: Sequence[Group]) -> str:
    return listed(dict.fromkeys(run.env for group in groups for run in group.runs if run.env))


def _write_comparison(found: Comparison, path: Path, name: str) -> None:
    from hive.comparison import picture

    theme, groups = picture.THEMES[name], [row.group for row in found.rows]
    figure, (left, right) = picture.new_figure(10.0, 3.6, panels=(1.25, 1.0), theme=theme)
    lines = {group.label: _lines(group, found.metric, AXES[0]) for group in groups}
    picture.draw_curves(left, lines, xlabel=XLABELS[AXES[0]], ylabel=_ylabel(found.metric), theme=theme)
    left.set_title(_environments(groups), loc="left")
    if found.threshold is not None:
        left.axhline(found.threshold, color=theme.ink, linewidth=0.8, linestyle=(0, (4, 3)))
    rows = [(row.group.label, row.finals, row.iqm) for row in found.rows]
    picture.draw_intervals(right, rows, xlabel=f"final {_ylabel(found.metric)}", theme=theme)
    right.set_title("IQM and 95 % interval", loc="left")
    picture.write_figure(figure, path)
    print(path, file=sys.stderr)
