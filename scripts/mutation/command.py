"""The command line of `scripts/mutants`."""

from __future__ import annotations

import argparse
import os
import re
import time

from mutation.faults import MUTANTS, UNDETECTABLE
from mutation.trials import Trial, trials

__all__ = ["main"]


def main() -> int:
    """Try the mutants and print which probes failed. Return 1 if a mutant survived or a trial could not run."""
    arguments = _arguments()
    chosen = [mutant for mutant in MUTANTS if re.search(arguments.only, mutant.name)]
    begun, survivors = time.monotonic(), 0
    for number, trial in enumerate(trials([None, *chosen], arguments.processes)):
        lines, bad = _lines(trial)
        survivors += bad
        print(f"{number:3}/{len(chosen)} {lines}", flush=True)
    print(f"\n{len(chosen)} mutants in {time.monotonic() - begun:.0f} s, {survivors} not detected")
    for text, reason in UNDETECTABLE.items():
        print(f"not tried: {text}: {reason}")
    return 1 if survivors else 0


def _lines(trial: Trial) -> tuple[str, bool]:
    """Return what to print about a trial, and whether it is a failure."""
    if trial.mutant is None:
        return f"unchanged sources: {trial.passed} probes pass, {len(trial.killers)} fail {trial.error}", bool(
            trial.killers or trial.error
        )
    rows = [trial.mutant.name + (f"  ERROR: {trial.error}" if trial.error else "")]
    for algorithm in trial.mutant.algorithms:
        killers = trial.killers_of(algorithm)
        first = ", ".join(name.removeprefix("test_") for name in killers) or "SURVIVED"
        rows.append(f"{algorithm:>16}  {first}")
    return "\n".join(rows), bool(trial.survivors or trial.error)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/mutants", description="Shows that the probes in tests/probes notice faults in the algorithms."
    )
    parser.add_argument("--only", default="", help="regular expression: mutants whose name contains it")
    parser.add_argument(
        "--processes", type=int, default=len(os.sched_getaffinity(0)), help="mutants that are tried at the same time"
    )
    return parser.parse_args()
