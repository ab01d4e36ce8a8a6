"""`hive compare`: compares the results of runs over seeds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.cli.parts.arguments import RUNS, add_json, add_policy, add_theme
from hive.launch.comparing import (
    XLABELS,
    check_metric,
    chosen_groups,
    environments,
    lines_of,
    ylabel,
)
from hive.monitor.series import AXES, RETURN
from hive.paths import user_path
from hive.records.documents import json_text
from hive.table import markdown_text, table_text

if TYPE_CHECKING:
    from hive.comparison.results import Comparison


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
    add_policy(compare)
    add_theme(compare)
    compare.set_defaults(run=run_compare)


def run_compare(options: argparse.Namespace) -> int:
    """Run `hive compare`; return the exit code."""
    from hive.comparison.curves import EVALUATION
    from hive.comparison.picture import check_file
    from hive.comparison.results import as_data, chosen_metric, compare, config_rows, notes_of, table_rows

    if options.output:
        check_file(options.output)
    metrics = [options.metric] if options.metric else [EVALUATION, RETURN]
    groups = chosen_groups(options.runs, metrics, options.policy)
    check_metric(groups, options.metric)
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


def _write_comparison(found: Comparison, path: Path, name: str) -> None:
    from hive.comparison import picture

    theme, groups = picture.THEMES[name], [row.group for row in found.rows]
    figure, (left, right) = picture.new_figure(10.0, 3.6, panels=(1.25, 1.0), theme=theme)
    lines = {group.label: lines_of(group, found.metric, AXES[0]) for group in groups}
    picture.draw_curves(left, lines, xlabel=XLABELS[AXES[0]], ylabel=ylabel(found.metric), theme=theme)
    left.set_title(environments(groups), loc="left")
    if found.threshold is not None:
        left.axhline(found.threshold, color=theme.ink, linewidth=0.8, linestyle=(0, (4, 3)))
    rows = [(row.group.label, row.finals, row.iqm) for row in found.rows]
    picture.draw_intervals(right, rows, xlabel=f"final {ylabel(found.metric)}", theme=theme)
    right.set_title("IQM and 95 % interval", loc="left")
    picture.write_figure(figure, path)
    print(path, file=sys.stderr)
