"""The command line of `scripts/mutants`."""

from __future__ import annotations

import argparse
import os
import re
import time

from mutation.mutant import MUTANTS, UNDETECTABLE
from mutation.trials import Trial, trials


def main() -> int:
    """Try the mutants and print which probes failed. Return 1 if a mutant survived, or probes fail anyway."""
    arguments = _arguments()
    chosen = [mutant for mutant in MUTANTS if re.search(arguments.only, mutant.name)]
    begun, survivors = time.monotonic(), 0
    (unchanged,) = trials([None], 1)
    if unchanged.killers or unchanged.error:
        print(f"probes fail without any fault: {', '.join(unchanged.killers) or unchanged.error}")
        print("hint: repair these first; after a change in native/ run scripts/build")
        return 1
    print(f"{unchanged.passed} probes pass without a fault", flush=True)
    for number, trial in enumerate(trials(chosen, arguments.processes), start=1):
        survivors += bool(trial.survivors or trial.error)
        print(f"{number:3}/{len(chosen)} {_lines(trial)}", flush=True)
    print(f"\n{len(chosen)} mutants in {time.monotonic() - begun:.0f} s, {survivors} not detected")
    for text, reason in UNDETECTABLE.items():
        print(f"not tried: {text}: {reason}")
    return 1 if survivors else 0


def _lines(trial: Trial) -> str:
    """Return what to print about the trial of a mutant."""
    assert trial.mutant is not None
    rows = [trial.mutant.name + (f"  ERROR: {trial.error}" if trial.error else "")]
    if trial.mutant.tests:
        rows.append(f"{trial.mutant.tests:>16}  {', '.join(trial.killers) or 'SURVIVED'}")
    for algorithm in trial.mutant.algorithms:
        killers = trial.killers_of(algorithm)
        first = ", ".join(name.removeprefix("test_") for name in killers) or "SURVIVED"
        rows.append(f"{algorithm:>16}  {first}")
    return "\n".join(rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/mutants", description="Shows that the probes in tests/probes notice faults in the algorithms."
    )
    parser.add_argument("--only", default="", help="regular expression: mutants whose name contains it")
    parser.add_argument(
        "--processes", type=int, default=len(os.sched_getaffinity(0)), help="mutants that are tried at the same time"
    )
    return parser.parse_args()
