"""The rows of a comparison as Markdown tables, and its curves as SVG."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from comparison.cells import CURVES, Row
from comparison.tasks import TASKS
from comparison.verdicts import difference, improvement, overall

__all__ = ["text_of", "write_curves"]

Scores = dict[str, list[float]]


def scores_of(rows: Sequence[Row], trainer: str) -> Scores:
    """Task -> mean return of each seed, in the order of the seeds."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.trainer == trainer:
            found[row.task].append(row)
    return {task: [row.mean_return for row in sorted(of, key=lambda row: row.seed)] for task, of in found.items()}


def text_of(rows: Sequence[Row], trainer: str = "hive") -> str:
    """One line per task, then the score over all tasks. Markdown."""
    ours, theirs = scores_of(rows, trainer), scores_of(rows, "sb3")
    low = {task: float(np.mean(returns)) for task, returns in scores_of(rows, "random").items()}
    both = [task for task in TASKS if task in ours and task in theirs and task in low]
    lines = [
        f"| task | steps | {trainer} | Stable-Baselines3 | hive minus SB3, share, 90 % interval | verdict | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in both:
        found = difference(ours[task], theirs[task], low[task])
        share = f"{found.share.value:+.2f} ({found.share.low:+.2f} to {found.share.high:+.2f})"
        seconds = " / ".join(f"{median_seconds(rows, who, task):.0f}" for who in (trainer, "sb3"))
        cells = [
            task,
            f"{TASKS[task].steps:,}",
            spread(ours[task]),
            spread(theirs[task]),
            share,
            found.verdict,
            seconds,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    if both:
        score, better = overall(only(ours, both), only(theirs, both), low), improvement(ours, theirs)
        lines += [
            "",
            f"Score over all tasks (random policy 0, Stable-Baselines3 1; IQM): {score.value:.2f}, 95 % interval "
            f"{score.low:.2f} to {score.high:.2f}. Probability of improvement: {better.value:.2f} "
            f"({better.low:.2f} to {better.high:.2f}).",
        ]
    return "\n".join(lines)


def only(scores: Scores, tasks: Sequence[str]) -> Scores:
    return {task: scores[task] for task in tasks}


def spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f}; {len(values)})"


def median_seconds(rows: Sequence[Row], trainer: str, task: str) -> float:
    return float(np.median([row.seconds for row in rows if (row.trainer, row.task) == (trainer, task)]))


def curves_of(task: str, trainer: str, path: Path = CURVES) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """One array [points, 3] per seed: steps, seconds, mean return."""
    found: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    with path.open(newline="") as file:
        for record in csv.DictReader(file):
            if (record["task"], record["trainer"], record["settings"]) == (task, trainer, TASKS[task].digest):
                point = float(record["steps"]), float(record["seconds"]), float(record["return"])
                found[int(record["seed"])].append(point)
    return [np.asarray(points) for _, points in sorted(found.items())]


def write_curves(rows: Sequence[Row], trainer: str, folder: Path) -> Iterator[Path]:
    """One SVG per task: return against steps and against seconds, one thin line per seed. Needs matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    both = scores_of(rows, trainer).keys() & scores_of(rows, "sb3").keys()
    for task in sorted(both):
        figure, axes = pyplot.subplots(1, 2, figsize=(9, 3), sharey=True)
        for who, colour in ((trainer, "tab:orange"), ("sb3", "tab:blue")):
            for curve in curves_of(task, who):
                for axis, column in zip(axes, (0, 1), strict=True):
                    axis.plot(curve[:, column], curve[:, 2], color=colour, linewidth=0.8, alpha=0.8)
            axes[0].plot([], [], color=colour, label=who)
        axes[0].set(xlabel="environment steps", ylabel="mean return of 100 episodes", title=task)
        axes[1].set(xlabel="seconds")
        axes[0].legend(frameon=False)
        path = folder / f"{task}.svg"
        figure.tight_layout()
        figure.savefig(path)
        pyplot.close(figure)
        yield path
