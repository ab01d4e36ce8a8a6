"""The rows of a comparison as Markdown tables, and its curves as SVG."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from comparison.cells import Row, files_of
from comparison.tasks import TASKS, SchemeTask
from comparison.verdicts import difference, improvement, overall

__all__ = ["text_of", "write_curves"]

Scores = dict[str, list[float]]
Curve: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

COLOURS = ("tab:orange", "tab:blue")


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
    return "\n".join([*lines, *schemes_table(rows, trainer)])


def schemes_table(rows: Sequence[Row], trainer: str) -> list[str]:
    """One line per task of a scheme that only hive has; none without rows."""
    scores = scores_of(rows, trainer)
    tasks = [task for task in TASKS.values() if isinstance(task, SchemeTask) and task.name in scores]
    lines = ["", "| task | steps | mean return | steps to the goal, per seed | seconds |", "|---|---|---|---|---|"]
    for task in tasks:
        goals = ", ".join(steps_to(task.goal, curve) for curve in curves_of(task.name, trainer))
        cells = [task.name, f"{task.steps:,}", spread(scores[task.name]), f"{task.goal:g}: {goals}"]
        lines.append("| " + " | ".join([*cells, f"{median_seconds(rows, trainer, task.name):.0f}"]) + " |")
    return lines if tasks else []


def steps_to(goal: float, curve: Curve) -> str:
    """The steps after which the mean training return first reached the goal."""
    reached = curve[curve[:, 2] >= goal, 0]
    return f"{int(reached[0]):,}" if len(reached) else "never"


def only(scores: Scores, tasks: Sequence[str]) -> Scores:
    return {task: scores[task] for task in tasks}


def spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f}; {len(values)})"


def median_seconds(rows: Sequence[Row], trainer: str, task: str) -> float:
    return float(np.median([row.seconds for row in rows if (row.trainer, row.task) == (trainer, task)]))


def curves_of(task: str, trainer: str) -> list[Curve]:
    """One array [points, 3] per seed: steps, seconds, mean return."""
    found: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    with files_of(task)[1].open(newline="") as file:
        for record in csv.DictReader(file):
            if (record["task"], record["trainer"], record["settings"]) == (task, trainer, TASKS[task].digest):
                point = float(record["steps"]), float(record["seconds"]), float(record["return"])
                found[int(record["seed"])].append(point)
    return [np.asarray(points) for _, points in sorted(found.items())]


def write_curves(rows: Sequence[Row], trainer: str, folder: Path) -> Iterator[Path]:
    """One SVG per task of both trainers, and one per environment of the schemes that only hive has."""
    ours, theirs = scores_of(rows, trainer), scores_of(rows, "sb3")
    for name in sorted(ours.keys() & theirs.keys()):
        yield figure(folder, name, {trainer: curves_of(name, trainer), "sb3": curves_of(name, "sb3")})
    schemes: dict[str, dict[str, list[Curve]]] = defaultdict(dict)
    for task in TASKS.values():
        if isinstance(task, SchemeTask) and task.name in ours:
            schemes[task.env][task.scheme] = curves_of(task.name, trainer)
    for env, curves in schemes.items():
        yield figure(folder, f"q-learning-{env}", curves)


def figure(folder: Path, title: str, contenders: Mapping[str, Sequence[Curve]]) -> Path:
    """Write an SVG: return against steps and against seconds, one thin line per seed. Needs matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    sheet, axes = pyplot.subplots(1, 2, figsize=(9, 3), sharey=True)
    for (who, curves), colour in zip(contenders.items(), COLOURS, strict=False):
        for curve in curves:
            for axis, column in zip(axes, (0, 1), strict=True):
                axis.plot(curve[:, column], curve[:, 2], color=colour, linewidth=0.8, alpha=0.8)
        axes[0].plot([], [], color=colour, label=who)
    axes[0].set(xlabel="environment steps", ylabel="mean return of 100 episodes", title=title)
    axes[1].set(xlabel="seconds")
    axes[0].legend(frameon=False)
    path = folder / f"{title}.svg"
    sheet.tight_layout()
    sheet.savefig(path)
    pyplot.close(sheet)
    return path
