"""The rows of a comparison as Markdown tables with verdicts, and its curves as SVG.

The statistics, and the protocol that they follow, are those of `hive.comparison.statistics`.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from comparison.cells import Row, files_of
from comparison.tasks import INIT_TRAINERS, TASKS, InitTask, SchemeTask
from hive.comparison.picture import draw_curves, new_figure, write_figure
from hive.comparison.statistics import (
    LEAST_SEEDS,
    Doubles,
    Interval,
    bootstrap,
    interquartile_mean,
    probability_of_improvement,
)
from hive.comparison.statistics import Scores as Groups

QUIET_LOAD = 3.2  # of a machine that runs two cells and nothing else: each has up to two processes that compute

Scores = dict[str, list[float]]
Curve = NDArray[np.float64]

TOLERANCE = 0.1  # share of (peer - random policy) by which hive may lie below the peer


@dataclass(frozen=True, slots=True)
class Difference:
    """hive minus peer in one task, in shares of (peer - random policy), with its 90 % interval.

    verdict: "better" where the interval lies above 0, "not worse" above -TOLERANCE, "worse" below it; else "undecided".
    """

    share: Interval
    verdict: str


def difference(hive: Sequence[float], peer: Sequence[float], random_policy: float) -> Difference:
    """Mean return per seed of both trainers, compared as the project's rule says: see Difference."""
    ours, theirs = np.asarray(hive, np.float64), np.asarray(peer, np.float64)
    scale = float(theirs.mean()) - random_policy

    def share(groups: Groups) -> Doubles:
        return np.asarray((groups[0].mean(axis=-1) - groups[1].mean(axis=-1)) / scale)

    if scale <= 0.0 or min(len(ours), len(theirs)) < LEAST_SEEDS:
        value = float(share([ours, theirs])) if scale > 0.0 else float("nan")
        return Difference(Interval(value, float("-inf"), float("inf")), "undecided")
    found = bootstrap(share, [ours, theirs], 0.9)
    return Difference(found, verdict_of(found))


def verdict_of(found: Interval) -> str:
    """Return the verdict for an interval of a share; see Difference."""
    if found.low > 0.0:
        return "better"
    return "not worse" if found.low > -TOLERANCE else "worse" if found.high < -TOLERANCE else "undecided"


def improvement(hive: Mapping[str, Sequence[float]], peer: Mapping[str, Sequence[float]]) -> Interval:
    """The probability that a seed of hive scores above one of the peer, mean over tasks; ties count half."""
    tasks = sorted(hive.keys() & peer.keys())
    groups = [np.asarray(trainer[task], np.float64) for task in tasks for trainer in (hive, peer)]
    return bootstrap(probability_of_improvement, groups)


def overall(
    hive: Mapping[str, Sequence[float]], peer: Mapping[str, Sequence[float]], random_policy: Mapping[str, float]
) -> Interval:
    """The interquartile mean of hive's scores over all tasks and seeds: a random policy has 0, the peer's mean 1."""
    tasks = sorted(hive.keys() & peer.keys())
    scores = []
    for task in tasks:
        low, high = random_policy[task], float(np.mean(peer[task]))
        scores.append((np.asarray(hive[task], np.float64) - low) / (high - low))
    return bootstrap(interquartile_mean, scores)


def scores_of(rows: Sequence[Row], trainer: str) -> Scores:
    """Task -> mean return of each seed, in the order of the seeds."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.trainer == trainer:
            found[row.task].append(row)
    return {task: [row.mean_return for row in sorted(of, key=lambda row: row.seed)] for task, of in found.items()}


def text_of(rows: Sequence[Row], trainer: str = "hive", peer: str = "sb3") -> str:
    """One line per task, then the score over all tasks. Markdown. peer: another trainer, or a variant of hive."""
    ours, theirs = scores_of(rows, trainer), scores_of(rows, peer)
    low = {task: float(np.mean(returns)) for task, returns in scores_of(rows, "random").items()}
    both = [task for task in TASKS if task in ours and task in theirs and task in low]
    lines = [
        f"| task | steps | {trainer} | peer | return of the peer | hive minus peer, share, 90 % interval "
        "| verdict | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task in both:
        found = difference(ours[task], theirs[task], low[task])
        share = f"{found.share.value:+.2f} ({found.share.low:+.2f} to {found.share.high:+.2f})"
        seconds = " / ".join(seconds_text(rows, who, task) for who in (trainer, peer))
        cells = [
            task,
            f"{TASKS[task].steps:,}",
            spread(ours[task]),
            peer_of(task) if peer == "sb3" else peer,
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
            f"Score over all tasks (random policy 0, peer 1; IQM): {score.value:.2f}, 95 % interval "
            f"{score.low:.2f} to {score.high:.2f}. Probability of improvement: {better.value:.2f} "
            f"({better.low:.2f} to {better.high:.2f}).",
        ]
    return "\n".join([*lines, *schemes_table(rows, trainer), *init_table(rows)])


def init_table(rows: Sequence[Row]) -> list[str]:
    """One line per environment of `hive init` against no settings; none without rows."""
    bare, init = (scores_of(rows, trainer) for trainer in INIT_TRAINERS)
    both = [task for task in TASKS.values() if task.name in bare and task.name in init]
    lines = [
        "",
        "| environment | steps | no settings | `hive init` | init minus none, 90 % interval |",
        "|---|---|---|---|---|",
    ]
    for task in both:
        groups = [np.asarray(scores[task.name], np.float64) for scores in (init, bare)]
        interval = "the same numbers"
        if init[task.name] != bare[task.name]:
            found = bootstrap(lambda drawn: np.asarray(drawn[0].mean(axis=-1) - drawn[1].mean(axis=-1)), groups, 0.9)
            interval = f"{found.value:+.2f} ({found.low:+.2f} to {found.high:+.2f})"
        cells = [task.env.rpartition(":")[2], f"{task.steps:,}", *(spread(one[task.name]) for one in (bare, init))]
        lines.append("| " + " | ".join([*cells, interval]) + " |")
    return lines if both else []


def peer_of(task: str) -> str:
    """The package that trained the cells "sb3" of a task."""
    found = TASKS[task]
    return "" if isinstance(found, SchemeTask | InitTask) else found.peer


def schemes_table(rows: Sequence[Row], trainer: str) -> list[str]:
    """One line per task of a scheme that only hive has; none without rows."""
    scores = scores_of(rows, trainer)
    tasks = [task for task in TASKS.values() if isinstance(task, SchemeTask) and task.name in scores]
    lines = ["", "| task | steps | mean return | steps to the goal, per seed |", "|---|---|---|---|"]
    for task in tasks:
        goals = ", ".join(steps_to(task.goal, curve) for curve in curves_of(task.name, trainer))
        cells = [task.name, f"{task.steps:,}", spread(scores[task.name]), f"{task.goal:g}: {goals}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines if tasks else []


def steps_to(goal: float, curve: Curve) -> str:
    """The steps after which the mean training return first reached the goal."""
    reached = curve[curve[:, 2] >= goal, 0]
    return f"{int(reached[0]):,}" if len(reached) else "never"


def only(scores: Scores, tasks: Sequence[str]) -> Scores:
    return {task: scores[task] for task in tasks}


def spread(values: Sequence[float]) -> str:
    digits = 1 if max(map(abs, values)) >= 10 else 2
    mean, least, most = (f"{value:.{digits}f}" for value in (np.mean(values), min(values), max(values)))
    return f"{mean} ({least} to {most}; {len(values)})"


def seconds_text(rows: Sequence[Row], trainer: str, task: str) -> str:
    """Return the median seconds of the cells on a known machine that did nothing else; "-" without such cells."""
    own = [row for row in rows if (row.trainer, row.task) == (trainer, task)]
    quiet = [row.seconds for row in own if row.machine and row.load <= QUIET_LOAD]
    return f"{np.median(quiet):.0f}" if quiet else "-"


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
    """One SVG per task of both trainers, and per environment of schemes of hive alone."""
    ours, theirs = scores_of(rows, trainer), scores_of(rows, "sb3")
    for name in sorted(ours.keys() & theirs.keys()):
        yield figure(folder, name, {"hive": curves_of(name, trainer), peer_of(name): curves_of(name, "sb3")})
    schemes: dict[str, dict[str, list[Curve]]] = defaultdict(dict)
    for task in TASKS.values():
        if isinstance(task, SchemeTask) and task.name in ours:
            schemes[task.env][task.scheme] = curves_of(task.name, trainer)
    for env, curves in schemes.items():
        yield figure(folder, f"q-learning-{env}", curves)


def figure(folder: Path, title: str, contenders: Mapping[str, Sequence[Curve]]) -> Path:
    """Write an SVG: return against steps and against seconds, as `hive plot` draws them."""
    sheet, panels = new_figure(9.0, 3.0, (1.0, 1.0), sharey=True)
    for axes, column, xlabel in zip(panels, (0, 1), ("environment steps", "seconds"), strict=True):
        lines = {who: [(curve[:, column], curve[:, 2]) for curve in curves] for who, curves in contenders.items()}
        draw_curves(axes, lines, xlabel=xlabel, legend=column == 0)
    panels[0].set(ylabel="mean return of 100 episodes")
    panels[0].set_title(title, loc="left")
    path = folder / f"{title}.svg"
    write_figure(sheet, path)
    return path
