"""The command line of `scripts/bench`. A bench is a subcommand: tables on stdout, progress on stderr, JSON in a file.

Exit codes: 0 measured · 1 a measurement failed, or with --check a check failed · 2 usage.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import NoReturn

from benchmarks import channel, env_processes, goal, growth, league, replay_memory, throughput, tree
from benchmarks.harness import Bench, begin, check_lines, say, write_document
from benchmarks.machine import load_average
from benchmarks.programs import BenchError

BENCHES = [module.BENCH for module in (throughput, league, goal, channel, tree, replay_memory, growth, env_processes)]


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="bench", description="Measures hive on this machine.")
    commands = top.add_subparsers(dest="bench", required=True, metavar="BENCH")
    for bench in BENCHES:
        command = commands.add_parser(
            bench.name,
            help=bench.help,
            description=f"Measures {bench.help}.",
            epilog=bench.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        bench.add_options(command)
        command.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to this file")
        command.add_argument("--check", action="store_true", help="exit with 1 if a check fails")
        command.set_defaults(measured=bench)
    return top


def run(bench: Bench, options: argparse.Namespace) -> int:
    """Measure, write and print the results; return the exit code. Raises BenchError."""
    machine = begin(options.json)
    report = bench.measure(options, machine)
    machine["load_after"] = load_average()
    checks = [dataclasses.asdict(check) for check in report.checks]
    document = {"bench": bench.name, "machine": machine, **report.figures, "checks": checks}
    write_document(options.json, document)
    print("\n".join([*report.lines, *check_lines(report.checks)]))
    for error in report.errors:
        say(f"error: {error}")
    failed = options.check and any(check.passed is False for check in report.checks)
    return 1 if report.errors or failed else 0


def main(arguments: list[str] | None = None) -> NoReturn:
    """The `bench` command."""
    options = parser().parse_args(arguments)
    try:
        sys.exit(run(options.measured, options))
    except BenchError as error:
        say(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
