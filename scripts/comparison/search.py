"""The command line of `scripts/search`: which settings reach an example's goal in the fewest environment steps.

    scripts/search run [EXAMPLE ...]                  every drawn setting with the seeds 1 and 2
    scripts/search judge EXAMPLE NUMBER [NUMBER ...]  these settings with seeds that the search did not use
    scripts/search report                             the best settings of each search

Rows are kept in examples/results/search.csv: a run that has a row is not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.harness import append_rows
from benchmarks.machine import commit_of_tree
from benchmarks.programs import Running, importing, launched, run_all

from comparison.cells import FOLDER, records_of
from comparison.hive_cell import train
from comparison.searches import SEARCHES, Search

RESULTS = FOLDER / "search.csv"
GOAL = "mean return"  # the stop reason of a run that has reached its goal begins so
SEEDS = (1, 2)  # seeds that every drawn setting is run with
HELD_OUT = (11, 12, 13, 14, 15)  # seeds that judge the settings which the search found
SHOWN = 5  # settings per search in a report
NEVER = float("inf")  # steps to a goal that a run did not reach


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of one setting. `number`: of the setting in its search; 0 is the example as it is."""

    example: str
    number: int
    seed: int
    keys: str


@dataclass(frozen=True, slots=True)
class Result(Trial):
    """The result of one run. steps: to the goal, or to the end of the budget if `reached` is 0."""

    reached: int
    steps: int
    seconds: float
    commit: str


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="search", description="Searches the settings of the examples.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run the settings that have no row yet")
    run.add_argument("examples", nargs="*", choices=[*SEARCHES, []], help="default: each of them")
    run.add_argument("--minutes", type=float, default=float("inf"), help="start no run after this time")
    judge = commands.add_parser("judge", help="run these settings with seeds that the search did not use")
    judge.add_argument("examples", nargs=1, choices=list(SEARCHES))
    judge.add_argument("numbers", nargs="+", type=int, help="numbers of settings, as the report shows them")
    judge.set_defaults(minutes=float("inf"))
    commands.add_parser("report", help="the best settings of each search")
    return top


def main(words: Sequence[str] | None = None) -> None:
    options = parser().parse_args(words)
    if options.command == "report":
        print(text_of(records_of(RESULTS, Result)))
        sys.exit(0)
    chosen = [SEARCHES[name] for name in options.examples or SEARCHES]
    held_out = options.command == "judge"
    trials = list(missing(chosen, HELD_OUT if held_out else SEEDS, options.numbers if held_out else None))
    sys.exit(run_trials(trials, options.minutes))


def missing(searches: Sequence[Search], seeds: Sequence[int], numbers: Sequence[int] | None) -> Iterator[Trial]:
    """The runs that have no row yet: of all settings, or of those with these numbers."""
    ended = {(row.example, row.keys, row.seed) for row in records_of(RESULTS, Result)}
    for search in searches:
        for number, settings in enumerate(search.drawn()):
            keys = " ".join(f"{key}={toml(value)}" for key, value in settings.items())
            for seed in seeds:
                if (numbers is None or number in numbers) and (search.example, keys, seed) not in ended:
                    yield Trial(search.example, number, seed, keys)


def toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def run_trials(trials: Sequence[Trial], minutes: float) -> int:
    commit = str(commit_of_tree())

    def finish(trial: Trial, result: dict[str, Any], load: float) -> str:
        row = Result(
            **asdict(trial),
            reached=int(result["reached"]),
            steps=result["steps"],
            seconds=round(result["seconds"], 2),
            commit=commit,
        )
        append_rows(RESULTS, [field.name for field in fields(Result)], [asdict(row)])
        return f"{'goal' if row.reached else 'no goal'} at {row.steps:,} steps"

    return run_all(trials, start, finish, minutes=minutes)


def start(trial: Trial) -> Running:
    """Start this file as the program of one run."""
    search = SEARCHES[trial.example]
    words = [search.config, search.most_steps, trial.seed, *trial.keys.split()]
    name = f"{trial.example} {trial.number} seed {trial.seed}"
    return launched(name, [sys.executable, "-P", __file__, *words], importing())


def trained(config: Path, steps: str, seed: str, keys: Sequence[str]) -> dict[str, Any]:
    """Train an example with other settings."""
    with tempfile.TemporaryDirectory(prefix="hive-search-") as folder:
        words = [f"run.steps={steps}", f"run.seed={seed}", "checkpoint.every={}", *keys]
        directory, seconds = train(words, Path(folder), config)
        summary = json.loads((directory / "summary.json").read_text())
        return {"reached": summary["stop_reason"].startswith(GOAL), "steps": summary["env_steps"], "seconds": seconds}


def text_of(results: Sequence[Result]) -> str:
    """The best settings of each search by the seeds of the search, and their steps with the held-out seeds."""
    lines: list[str] = []
    for example in SEARCHES:
        of = [row for row in results if row.example == example]
        keys = {row.keys: row.number for row in of}
        ranked = sorted(keys, key=lambda text: typical([row for row in of if row.keys == text and row.seed in SEEDS]))
        lines += ["", f"{example}: {len(keys)} settings"]
        shown = [text for text in ranked if text in ranked[:SHOWN] or not text or tested(of, text)]
        lines += [f"  {line_of([row for row in of if row.keys == text], keys[text])}  {text}" for text in shown]
    return "\n".join(lines[1:])


def tested(rows: Sequence[Result], keys: str) -> bool:
    return any(row.keys == keys and row.seed in HELD_OUT for row in rows)


def line_of(rows: Sequence[Result], number: int) -> str:
    searched, held_out = ([row for row in rows if row.seed in seeds] for seeds in (SEEDS, HELD_OUT))
    text = f"{number:3d}  search {steps_text(typical(searched))}"
    if held_out:
        reached = sum(row.reached for row in held_out)
        text += f"  held out {steps_text(typical(held_out))} ({reached} of {len(held_out)} reached)"
    return text


def typical(rows: Sequence[Result]) -> float:
    """The median of the steps to the goal; of two runs the mean, so that both have to reach it."""
    return statistics.median([row.steps if row.reached else NEVER for row in rows]) if rows else NEVER


def steps_text(steps: float) -> str:
    return "never" if steps == NEVER else f"{steps:,.0f}"


if __name__ == "__main__":
    print(json.dumps(trained(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])))
