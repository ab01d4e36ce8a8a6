"""`hive plot`: draws learning curves of runs as PNG or SVG."""

from __future__ import annotations

import argparse
from typing import Any

from hive.cli.parts.arguments import DEFAULT_RUN, RUNS, add_policy, add_theme
from hive.launch.comparing import chosen_groups, environments, figure_of
from hive.monitor.series import AXES, RETURN
from hive.paths import user_path


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
    add_policy(plot)
    add_theme(plot)
    plot.set_defaults(run=run_plot)


def _window(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid number of points `{text}`: expected a whole number >= 1")
    return int(text)


def run_plot(options: argparse.Namespace) -> int:
    """Run `hive plot`; return the exit code."""
    from hive.comparison import picture

    picture.check_file(options.output)
    groups = chosen_groups(options.runs, [options.metric], options.policy)
    title = options.title or (f"{environments(groups)}: {options.policy}" if options.policy else "")
    figure = figure_of(groups, options.metric, options.x, options.smooth, options.theme, title)
    picture.write_figure(figure, options.output)
    print(options.output)
    return 0
