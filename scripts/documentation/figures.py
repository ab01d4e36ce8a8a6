"""The page of figures, made from examples/results/*.csv: each table has one row for several measurements."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "examples" / "results"
Row = Mapping[str, str]


def rows_of(name: str) -> list[Row]:
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def number(value: float) -> str:
    """Return a number with three or four significant digits."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def grouped(rows: Iterable[Row], *keys: str) -> dict[tuple[str, ...], list[Row]]:
    """Return rows by the values of these columns, in the order of the file."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def spread(rows: Sequence[Row], column: str) -> str:
    """Return mean, least and greatest value, and how many there are."""
    values = [float(row[column]) for row in rows]
    if len(values) == 1:
        return f"{number(values[0])} (one seed)"
    return f"{number(statistics.mean(values))} ({number(min(values))} to {number(max(values))}; {len(values)} seeds)"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def parity(name: str = "parity") -> str:
    rows = [row for row in rows_of(name) if row["trainer"] != "random"]
    found = [
        (task, trainer, f"{int(steps):,}", spread(group, "mean_return"))
        for (task, trainer, steps, _), group in grouped(rows, "task", "trainer", "steps", "settings").items()
    ]
    return table(["task", "trainer", "steps", "mean return of 30 episodes"], sorted(found))


def init() -> str:
    groups = {(task, who): rows for (task, who), rows in grouped(rows_of("init"), "task", "trainer").items()}
    found = []
    for task in sorted({task for task, _ in groups}):
        bare, ours = groups[task, "hive:bare"], groups[task, "hive:init"]
        same = {(row["seed"], row["mean_return"]) for row in bare} == {
            (row["seed"], row["mean_return"]) for row in ours
        }
        texts = [spread(bare, "mean_return"), "the same numbers" if same else spread(ours, "mean_return")]
        found.append((task.removeprefix("init-"), f"{int(bare[0]['steps']):,}", *texts))
    return table(["environment", "steps", "scheme alone", "`hive init`"], found)


def earlier_parity() -> str:
    return parity("parity_earlier")


def league() -> str:
    newest = {key: group[-1] for key, group in grouped(rows_of("league"), "row", "contender").items()}
    return table(
        ["work", "contender", "median (range)", "hive / it"],
        [
            (
                work,
                contender,
                f"{number(float(row['median']))} {row['unit']} ({number(float(row['least']))} to "
                f"{number(float(row['most']))})",
                number(float(row["ratio"])) if row["ratio"] else "",
            )
            for (work, contender), row in newest.items()
        ],
    )


def bare() -> str:
    rows = [row for row in rows_of("bare") if not row["other_keys"]]
    groups = sorted(grouped(rows, "env", "scheme", "steps", "commit").items())
    return table(
        ["environment", "scheme", "steps", "commit", "mean return"],
        [
            (env, scheme, f"{int(steps):,}", commit, spread(group, "mean_return"))
            for (env, scheme, steps, commit), group in groups
        ],
    )


def q_learning() -> str:
    groups = grouped(rows_of("q_learning"), "task", "trainer", "steps")
    return table(
        ["task", "trainer", "steps", "mean return of 30 episodes"],
        [(task, who, f"{int(n):,}", spread(group, "mean_return")) for (task, who, n), group in groups.items()],
    )


def lag() -> str:
    groups = grouped(rows_of("lag_objective"), "env", "communication", "importance_clip", "settings")
    return table(
        ["environment", "communication", "`importance_clip`", "mean of the last 100 returns"],
        [(env, how, clip, spread(group, "mean_return_100")) for (env, how, clip, _), group in groups.items()],
    )


def agents() -> str:
    groups = grouped(rows_of("agents"), "task", "trainer", "steps")
    return table(
        ["task", "trainer", "steps", "mean return", "steps/s (median)"],
        [
            (task, who, f"{int(n):,}", spread(rows, "mean_return"), number(median(rows, "steps_per_s")))
            for (task, who, n), rows in groups.items()
            if who != "random"
        ],
    )


def median(rows: Sequence[Row], column: str) -> float:
    return statistics.median(float(row[column]) for row in rows)


def gpu() -> str:
    rows = [row for row in rows_of("gpu") if row["figure"] == "steps/s"]
    newest = {key: group[-1] for key, group in grouped(rows, "work", "setting", "device", "machine").items()}
    return table(
        ["work", "setting", "device", "steps/s", "machine"],
        [
            (work, setting, device, number(float(row["value"])), machine)
            for (work, setting, device, machine), row in newest.items()
        ],
    )


SECTIONS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "Returns beside other trainers": (
        "`parity.csv`, by `scripts/parity`: equal budgets, networks and hyper-parameters. "
        "[What agents learn](learning.md) explains the comparison.",
        parity,
    ),
    "Returns of earlier defaults": (
        "`parity_earlier.csv`: hive when on-policy algorithms collected one round ahead by default; `hive:half` had "
        "rounds of half the size, `hive:synchronous` no lag.",
        earlier_parity,
    ),
    "Returns without further keys": (
        "`bare.csv`: the defaults of each scheme, by commit; seeds 101 and more, and 21 to 35, chose them.",
        bare,
    ),
    "hive init against the scheme alone": (
        "`init.csv`, by `scripts/parity`: mean return of the last 100 training episodes, with the config that `hive "
        "init` writes and with the same scheme, environment and needed wrappers alone. Where it writes nothing that "
        "matters, the numbers are the same for each seed.",
        init,
    ),
    "Q-learning without a replay memory": ("`q_learning.csv`.", q_learning),
    "What lag costs": ("`lag_objective.csv`; [what agents learn](learning.md#what-lag-costs) explains it.", lag),
    "Several agents": ("`agents.csv`: parameters shared by all agents.", agents),
    "Speed beside other trainers": (
        "`league.csv`, by `scripts/bench league`: `hive / it` above 1 means that hive is faster, for seconds as well. "
        "[How fast](speed.md) describes the measurement.",
        league,
    ),
    "Speed with a GPU": ("`gpu.csv`, by `scripts/gpu`; [GPU](gpu.md) explains it.", gpu),
}


def figures_page() -> str:
    """Return the page: one table for each kind of measurement."""
    parts = [
        "# Figures",
        "<!-- Made by `scripts/docs --write` from examples/results. -->",
        "Every table is computed from a file in [examples/results](../results), which has each measurement with its "
        "commit and versions. Values are means, with the least and the greatest in parentheses.",
    ]
    for title, (text, make) in SECTIONS.items():
        parts += [f"## {title}", text, make()]
    return "\n\n".join(parts) + "\n"
