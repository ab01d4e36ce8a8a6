"""Draws learning curves and results as PNG or SVG with matplotlib, without a display.

Every group has one color: a thin line per seed, a thick one for their median, and a band from the first to the third
quartile. Seeds report at different steps, so each line is interpolated on a common grid, from where all seeds have
begun to where the first one ends. Drawing uses figures without pyplot, so nothing global changes, and an SVG of the
same data has the same bytes.

matplotlib is the extra `plot`. It is imported at the first drawing.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hive.comparison.statistics import Doubles, Interval
from hive.distribution import pip_install
from hive.errors import UsageError
from hive.records.atomic import write_bytes
from hive.versions import check_versions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SeedLine: TypeAlias = tuple[Doubles, Doubles]
"""Positions and values [N] of one seed, in the order of the positions."""

SUFFIXES = (".png", ".svg")
GRID_POINTS = 200  # points of a median: more than a plot of this width shows
BAND = (25.0, 75.0)  # percentiles between which the band lies
BAND_LINES = 3  # least lines with a band: two have no quartiles of their own
LARGE = 10_000  # positions from here on are written as 10k: full numbers would touch each other
DPI = 160  # resolution of a PNG


@dataclass(frozen=True)
class Theme:
    """Colors of a picture. colors: those of groups, which readers with any color vision can tell apart."""

    background: str
    ink: str
    edge: str
    faint: str
    colors: tuple[str, ...]


# Light: Okabe and Ito's colors without yellow and black. Dark: lighter ones of the same hues, and yellow.
THEMES: Mapping[str, Theme] = {
    "light": Theme(
        "#FFFFFF",
        "#333333",
        "#999999",
        "#E6E6E6",
        ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6A3D9A", "#7F7F7F"),
    ),
    "dark": Theme(
        "#161B22",
        "#D5DBE3",
        "#6B7480",
        "#2B323C",
        ("#56B4E9", "#FF8A3D", "#2CC79A", "#E79AC4", "#F0E442", "#8C9EFF", "#B58CE0", "#A8B0BA"),
    ),
}
LIGHT = THEMES["light"]
STYLE: Mapping[str, Any] = {
    "svg.hashsalt": "hive",  # otherwise the names inside an SVG are random
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def style_of(theme: Theme) -> dict[str, Any]:
    """Return STYLE with the colors of a theme, as settings of matplotlib."""
    return dict(STYLE) | {
        "axes.facecolor": theme.background,
        "figure.facecolor": theme.background,
        "axes.edgecolor": theme.edge,
        "axes.labelcolor": theme.ink,
        "grid.color": theme.faint,
        "text.color": theme.ink,
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
    }


def check_file(path: Path) -> None:
    """Raise UsageError if a picture cannot be written to `path`: another suffix, or no folder or matplotlib."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"`{path}` is not a .png or .svg file", hint="the suffix of the file is its format")
    if not path.parent.is_dir():
        raise UsageError(f"`{path.parent}` is not a folder")
    _matplotlib()


def _matplotlib() -> Any:
    check_versions(["matplotlib"])
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("pictures need matplotlib", hint=pip_install("plot")) from error
    return matplotlib


def new_figure(
    width: float, height: float, panels: Sequence[float] = (1.0,), theme: Theme = LIGHT, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of a size in inches with panels side by side, of these relative widths.

    options: those of matplotlib's `Figure.subplots`, such as `sharey`.
    """
    matplotlib = _matplotlib()
    with matplotlib.rc_context(style_of(theme)):
        figure = _figure_class()(figsize=(width, height), layout="constrained")
        grid = figure.subplots(1, len(panels), squeeze=False, width_ratios=list(panels), **options)
    for axes in grid[0]:  # ticks that are made later take their colors from here
        axes.tick_params(which="both", colors=theme.ink, grid_color=theme.faint)
    return figure, [*grid[0]]


@functools.cache
def _figure_class() -> type[Figure]:
    """Return the class of figures: one that notebooks show although nothing has imported pyplot."""
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            content = io.BytesIO()
            self.savefig(content, format="png", dpi=DPI // 2)
            return content.getvalue()

    return Shown


def draw_curves(
    axes: Axes,
    groups: Mapping[str, Sequence[SeedLine]],
    *,
    xlabel: str,
    ylabel: str = "",
    legend: bool = True,
    theme: Theme = LIGHT,
) -> None:
    """Draw the lines of each group, label -> lines, with their median and band. Groups without lines keep a color."""
    from matplotlib.ticker import EngFormatter

    for index, (label, lines) in enumerate(groups.items()):
        if not lines:
            continue
        _draw_group(axes, f"{label} ({len(lines)})", lines, color_of(index, theme))
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if any(x[-1] >= LARGE for lines in groups.values() for x, _ in lines):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize="small", labelcolor=theme.ink)


def _draw_group(axes: Axes, label: str, lines: Sequence[SeedLine], color: str) -> None:
    """Draw the lines of one group. Without a range that all of them cover, points and no median."""
    aligned = _aligned(lines)
    for number, (x, y) in enumerate(lines):
        marker = "o" if aligned is None or len(x) == 1 else ""
        name = label if aligned is None and number == 0 else None
        axes.plot(x, y, color=color, linewidth=0.6, alpha=0.4, marker=marker, markersize=3.0, label=name)
    if aligned is not None:
        grid, every = aligned
        if len(lines) >= BAND_LINES:
            axes.fill_between(grid, *np.percentile(every, BAND, axis=0), color=color, alpha=0.15, linewidth=0.0)
        axes.plot(grid, np.median(every, axis=0), color=color, linewidth=1.8, label=label)


def _aligned(lines: Sequence[SeedLine]) -> tuple[Doubles, Doubles] | None:
    """Return a grid [G] and every line on it [lines, G]; None if there is no range that all lines cover."""
    if len(lines) == 1:
        return lines[0][0], lines[0][1][None]
    first, last = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    if first >= last:
        return None
    grid = np.linspace(first, last, GRID_POINTS)
    return grid, np.array([np.interp(grid, x, y) for x, y in lines])


def draw_intervals(
    axes: Axes,
    groups: Sequence[tuple[str, Sequence[float], Interval | None]],
    *,
    xlabel: str,
    theme: Theme = LIGHT,
) -> None:
    """Draw a row per group: a dot per final value, and the interquartile mean with its interval."""
    for index, (_, finals, interval) in enumerate(groups):
        color, row = color_of(index, theme), -index
        if interval is None:
            continue
        if np.isfinite(interval.low):
            axes.plot([interval.low, interval.high], [row, row], color=color, linewidth=7.0, alpha=0.3)
        axes.plot(finals, [row] * len(finals), "o", color=color, markersize=3.5, alpha=0.6, markeredgewidth=0.0)
        axes.plot([interval.value], [row], "|", color=color, markersize=17.0, markeredgewidth=2.2)
    axes.set(xlabel=xlabel, ylim=(-len(groups) + 0.4, 0.6))
    axes.set_yticks([-index for index in range(len(groups))], [label for label, _, _ in groups])
    axes.grid(visible=False, axis="y")


def color_of(index: int, theme: Theme = LIGHT) -> str:
    """Return the color of a group; there are eight, which repeat."""
    return theme.colors[index % len(theme.colors)]


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure atomically, in the format of the suffix. Raises RecordError if it cannot be written."""
    content, svg = io.BytesIO(), path.suffix.lower() == ".svg"
    with _matplotlib().rc_context(dict(STYLE)):
        figure.savefig(content, format="svg" if svg else "png", dpi=DPI, metadata={"Date": None} if svg else None)
    write_bytes(path, content.getvalue())
