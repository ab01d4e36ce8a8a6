"""The command line of `scripts/bench`. A bench is a subcommand: tables on stdout, progress on stderr, JSON in a file.

Exit codes: 0 measured · 1 a measurement failed, or with --check a check failed · 2 usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from benchmarks import (
    accumulator_report,
    channel_report,
    checkpoint_report,
    goal_report,
    replay_memory_report,
    tree_report,
)
from benchmarks.accumulator import COUNTS, SIZES, cases, measure_case
from benchmarks.channel import measure_channels, ways
from benchmarks.checkpoint import KINDS, PARAMETERS, measure_checkpoints
from benchmarks.contender import PEERS, Contender, Measurement, Pythons
from benchmarks.goal import race, racers
from benchmarks.growth import add_growth
from benchmarks.ladder import append_rows, check_ladder, rows_of
from benchmarks.machine import CpuMeter, cores, load_average, machine_facts
from benchmarks.peer_environments import cache_folder, peer_python
from benchmarks.programs import BenchError
from benchmarks.replay_memory import bytes_of_a_row, measure_rows
from benchmarks.report import Check, best_pairs, checks_of, document_of, text_of
from benchmarks.settings import SETTINGS
from benchmarks.throughput import chosen, contenders, matches, measure
from benchmarks.tree import measure_trees
from benchmarks.tree import ways as tree_ways

__all__ = ["main"]

REPEATS, SECONDS = 4, 8.0
ACCUMULATOR_REPETITIONS = 15
CHANNEL_REPETITIONS, CHANNEL_SECONDS = 5, 3.0
TREE_REPETITIONS, TREE_SECONDS = 5, 2.0
SEEDS, LIMIT_S = 5, 300.0  # runs of each program of `goal`, and the time limit of one
REPLAY_ROWS = 200_000
CHECKPOINT_SECONDS, KILLS = 60.0, 5  # duration of each run, and kills of its learner

EXAMPLES = """examples:
  scripts/bench throughput --json throughput.json --check
  scripts/bench throughput --only 'a2c-python-16/*' --only 'ppo-*' --no-peers --seconds 4 --repeats 1
  scripts/bench throughput --only ppo-cartpole --python sample-factory=~/sf/bin/python
  scripts/bench throughput --ladder examples/results/ladder.csv --change 'native dense networks'
"""
CHECKPOINT_EXAMPLE = "example: scripts/bench checkpoint --json checkpoint.json --check"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="bench", description="Measures hive on this machine.")
    benches = top.add_subparsers(dest="bench", required=True, metavar="BENCH")
    _add_throughput(benches)
    _add_goal(benches)
    _add_accumulator(benches)
    _add_checkpoint(benches)
    _add_channel(benches)
    _add_tree(benches)
    _add_replay(benches)
    add_growth(benches)
    return top


def _add_throughput(benches: Any) -> None:
    one = benches.add_parser(
        "throughput",
        help="environment steps per second trained",
        description="Environment steps per second trained by A2C, PPO, IMPALA, PQN, DQN and SAC: hive and its peers.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one.add_argument("--list", action="store_true", help="print settings and contenders, and measure nothing")
    one.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="default: all")
    one.add_argument(
        "--no-peers", dest="peers", action="store_const", const=[], help="neither install nor measure peers"
    )
    one.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="contenders or settings whose name matches"
    )
    one.add_argument("--repeats", type=_count, default=REPEATS, help="measurements of each (default %(default)d)")
    one.add_argument("--seconds", type=_seconds, default=SECONDS, help="duration of each (default %(default)g)")
    _add_pythons(one)
    one.add_argument("--ladder", type=Path, metavar="FILE", help="append a row per setting and peer to this CSV file")
    one.add_argument("--change", metavar="TEXT", help="with --ladder: what was changed before these measurements")
    _add_outputs(one)
    one.set_defaults(run=throughput)


def _add_goal(benches: Any) -> None:
    one = benches.add_parser(
        "goal",
        help="wall time from the command to mean return 475 on CartPole",
        description="Wall time from the command to a mean return of 475 on CartPole, start-up included: hive, SB3.",
        epilog="example: scripts/bench goal --seeds 5 --json goal.json --check",
    )
    one.add_argument("--seeds", type=_count, default=SEEDS, help="runs of each program (default %(default)d)")
    one.add_argument("--limit", type=_seconds, default=LIMIT_S, help="seconds of one run (default %(default)g)")
    one.add_argument("--only", action="append", default=[], metavar="PATTERN", help="programs whose name matches")
    one.add_argument("--no-peers", dest="peers", action="store_false", help="neither install nor measure peers")
    one.add_argument("--list", action="store_true", help="print the programs, and measure nothing")
    _add_pythons(one)
    _add_outputs(one)
    one.set_defaults(run=goal)


def _add_pythons(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--cache", type=Path, default=cache_folder(), help="where peers are installed (default %(default)s)"
    )
    one.add_argument(
        "--python",
        action="append",
        type=_python,
        default=[],
        metavar="PEER=PATH",
        help="Python of an environment that has the peer; Sample Factory is measured only with this",
    )


def _python(text: str) -> tuple[str, Path]:
    peer, _, path = text.partition("=")
    found = Path(path).expanduser().absolute()
    if peer not in ("sb3", "sample-factory") or not found.is_file():
        raise argparse.ArgumentTypeError(f"expected sb3=PATH or sample-factory=PATH of a Python, got `{text}`")
    return peer, found


def _add_outputs(one: argparse.ArgumentParser) -> None:
    one.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to this file")
    one.add_argument("--check", action="store_true", help="exit with 1 if a check fails")


def _add_accumulator(benches: Any) -> None:
    one = benches.add_parser(
        "accumulator",
        help="reduce gradients to their mean and norm, with a check for finite values",
        description="K gradients to their mean, norm and finite check: hive, torch in several ways, a plain C loop.",
        epilog="example: scripts/bench accumulator --size '25 M' --rounds 4 --json accumulator.json --check",
    )
    one.add_argument("--size", action="append", choices=list(SIZES), default=[], help="default: each of them")
    one.add_argument("--rounds", action="append", type=int, choices=COUNTS, default=[], help="default: each of them")
    one.add_argument("--repetitions", type=_count, default=ACCUMULATOR_REPETITIONS, help="default %(default)d")
    _add_outputs(one)
    one.set_defaults(run=accumulator)


def _add_checkpoint(benches: Any) -> None:
    one = benches.add_parser(
        "checkpoint",
        help="time that checkpoints, publications and recoveries take the learner",
        description="Time that checkpoints, publications and recoveries take a learner of 25 million parameters.",
        epilog=CHECKPOINT_EXAMPLE,
    )
    one.add_argument(
        "--only", choices=[kind.name for kind in KINDS], action="append", default=[], help="default: each of them"
    )
    one.add_argument(
        "--seconds", type=_seconds, default=CHECKPOINT_SECONDS, help="duration of each run (default %(default)g)"
    )
    one.add_argument("--kills", type=_count, default=KILLS, help="kills of each run's learner (default %(default)d)")
    _add_outputs(one)
    one.set_defaults(run=checkpoint)


def _add_channel(benches: Any) -> None:
    one = benches.add_parser(
        "channel",
        help="rates of a channel and of a call between two processes",
        description="Rates of a channel and of a call between two processes: hive, bare transports, Ray.",
        epilog="example: scripts/bench channel --no-peers --json channel.json --check",
    )
    one.add_argument("--no-peers", dest="ray", action="store_false", help="neither install nor measure Ray")
    one.add_argument("--cache", type=Path, default=cache_folder(), help="where it is installed (default %(default)s)")
    one.add_argument("--repetitions", type=_count, default=CHANNEL_REPETITIONS, help="default %(default)d")
    one.add_argument(
        "--seconds", type=_seconds, default=CHANNEL_SECONDS, help="duration of each measurement (default %(default)g)"
    )
    _add_outputs(one)
    one.set_defaults(run=channel)


def _add_tree(benches: Any) -> None:
    one = benches.add_parser(
        "tree",
        help="priorities of a replay memory: writes and draws on one core",
        description="Priorities of a replay memory of 1,000,000 rows: hive, TorchRL, a NumPy sum tree.",
        epilog="example: scripts/bench tree --no-peers --json tree.json --check",
    )
    one.add_argument("--no-peers", dest="peers", action="store_false", help="neither install nor measure TorchRL")
    one.add_argument("--cache", type=Path, default=cache_folder(), help="where it is installed (default %(default)s)")
    one.add_argument("--repetitions", type=_count, default=TREE_REPETITIONS, help="default %(default)d")
    one.add_argument(
        "--seconds", type=_seconds, default=TREE_SECONDS, help="duration of each measurement (default %(default)g)"
    )
    _add_outputs(one)
    one.set_defaults(run=tree)


def _add_replay(benches: Any) -> None:
    one = benches.add_parser(
        "replay",
        help="memory that a replay memory of Atari frames takes",
        description="Memory that a replay memory of Atari frames takes: computed, and of one that is filled.",
        epilog="example: scripts/bench replay --check",
    )
    one.add_argument("--rows", type=_count, default=REPLAY_ROWS, help="rows of the real one (default %(default)d)")
    _add_outputs(one)
    one.set_defaults(run=replay)


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got `{text}`")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 3600.0:
        raise argparse.ArgumentTypeError(f"expected seconds, above 0 and below an hour, got `{text}`")
    return seconds


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def throughput(options: argparse.Namespace) -> int:
    pythons = Pythons(dict(options.python), options.cache)
    selected = _selected(options, pythons)
    if options.list:
        _print_settings(selected)
        return 0
    _check_folder(options)
    if (options.ladder is None) != (options.change is None):
        raise BenchError("--ladder and --change need each other")
    if options.ladder is not None:
        check_ladder(options.ladder)
    for peer in {one.peer for one in selected if one.peer is not None}:
        pythons.of(peer)  # installed before the first measurement, which it would disturb
    machine = _machine()
    results: dict[str, list[Measurement]] = {}
    failed: dict[str, str] = {}
    for setting in SETTINGS.values():
        mine = [one for one in selected if one.setting is setting]
        found, failures = measure(mine, options.repeats, options.seconds, say)
        results |= found
        failed |= failures
        if options.ladder is not None:  # setting by setting: an interrupted bench has written those that ended
            append_rows(options.ladder, rows_of(best_pairs(found, setting), options.change, machine))
    if not results:
        raise BenchError("no contender could be measured")
    measured = [one for one in selected if one.name in results]
    code = _ended(
        options,
        machine,
        lambda: document_of(measured, results, failed, options.repeats, options.seconds, machine),
        text_of(measured, results, options.repeats, options.seconds, machine),
        checks_of(results),
    )
    for name, error in failed.items():
        print(f"error: {name}: {error}", file=sys.stderr)
    return 1 if failed else code


def _selected(options: argparse.Namespace, pythons: Pythons) -> list[Contender]:
    """Return the contenders that the options choose. Raises BenchError if there are none."""
    selected = chosen(contenders(options.peers, pythons), options.only)
    if "sample-factory" not in pythons.given and any(one.peer == "sample-factory" for one in selected):
        say("sample-factory is left out: it needs an environment of its own, --python sample-factory=PATH")
        selected = [one for one in selected if one.peer != "sample-factory"]
    if not selected:
        raise BenchError(f"no contender matches --only; settings: {', '.join(SETTINGS)} (--list shows all contenders)")
    return selected


def _print_settings(selected: Sequence[Contender]) -> None:
    for setting in SETTINGS.values():
        shapes = [one.shape for one in selected if one.setting is setting]
        if shapes:
            print(f"{setting.name}\n    {setting.title}\n    {' '.join(shapes)}")


def goal(options: argparse.Namespace) -> int:
    pythons = Pythons(dict(options.python), options.cache)
    known = racers(pythons, options.peers)
    selected = [one for one in known if matches(one.name, options.only)]
    if not selected:
        raise BenchError(f"no program matches --only; known: {', '.join(one.name for one in known)}")
    if options.list:
        print("\n".join(f"{one.name:<14}  {one.title}" for one in selected))
        return 0
    _check_folder(options)
    if any(one.name.startswith("sb3") for one in selected):
        pythons.of("sb3")  # installed before the first run, whose time it would be
    machine = _machine()
    results = race(selected, options.seeds, options.limit, say)
    return _ended(
        options,
        machine,
        lambda: goal_report.document_of(results, options.limit, machine),
        goal_report.text_of(selected, results, options.limit),
        goal_report.checks_of(results, options.limit),
    )


def checkpoint(options: argparse.Namespace) -> int:
    _check_folder(options)
    machine = _machine()
    results: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        if kind.name in options.only or not options.only:
            say(f"{kind.name}: {options.seconds:g} s, {options.kills} kills")
            meter = CpuMeter()
            found = measure_checkpoints(kind, options.seconds, options.kills)
            results[kind.name] = {**found, "others_cores": meter.others_cores()}
    return _ended(
        options,
        machine,
        lambda: checkpoint_report.document_of(results, PARAMETERS, options.seconds, machine),
        checkpoint_report.text_of(results, PARAMETERS, options.seconds, cores()),
        checkpoint_report.checks_of(results, cores()),
    )


def channel(options: argparse.Namespace) -> int:
    _check_folder(options)
    if options.ray:
        peer_python("ray", options.cache)
    machine = _machine()
    results = measure_channels(ways(options.ray), options.repetitions, options.seconds, options.cache, say)
    return _ended(
        options,
        machine,
        lambda: channel_report.document_of(results, options.seconds, machine),
        channel_report.text_of(results, options.seconds),
        channel_report.checks_of(results),
    )


def tree(options: argparse.Namespace) -> int:
    _check_folder(options)
    if options.peers:
        peer_python("torchrl", options.cache)
    machine = _machine()
    results = measure_trees(tree_ways(options.peers), options.repetitions, options.seconds, options.cache, say)
    return _ended(
        options,
        machine,
        lambda: tree_report.document_of(results, options.seconds, machine),
        tree_report.text_of(results, options.repetitions, load_average()),
        tree_report.checks_of(results),
    )


def replay(options: argparse.Namespace) -> int:
    _check_folder(options)
    machine = _machine()
    computed, found = bytes_of_a_row(), measure_rows(options.rows)
    return _ended(
        options,
        machine,
        lambda: replay_memory_report.document_of(computed, found, machine),
        replay_memory_report.text_of(computed, found),
        replay_memory_report.checks_of(computed, found["bytes_per_row"]),
    )


def accumulator(options: argparse.Namespace) -> int:
    _check_folder(options)
    machine = _machine()
    results = {}
    for case in cases(options.size or list(SIZES), options.rounds or COUNTS):
        say(f"{case.size}, K = {case.count}")
        results[case] = measure_case(case, options.repetitions)
    return _ended(
        options,
        machine,
        lambda: accumulator_report.document_of(results, options.repetitions, machine),
        accumulator_report.text_of(results, options.repetitions, load_average()),
        accumulator_report.checks_of(results),
    )


def _ended(
    options: argparse.Namespace,
    machine: dict[str, object],
    document: Callable[[], dict[str, Any]],
    text: str,
    checks: Sequence[Check],
) -> int:
    """Write and print the results; return the exit code."""
    machine["load_after"] = load_average()
    if options.json is not None:
        options.json.write_text(json.dumps(document(), indent=2) + "\n")
    print(text)
    return 1 if options.check and any(check.passed is False for check in checks) else 0


def _check_folder(options: argparse.Namespace) -> None:
    if options.json is not None and not options.json.parent.is_dir():
        raise BenchError(f"the folder of `{options.json}` does not exist")


def _machine() -> dict[str, object]:
    machine = machine_facts()
    say(f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_before']}, hive at {machine['commit']}")
    return machine


def main(arguments: list[str] | None = None) -> NoReturn:
    """The `bench` command."""
    options = parser().parse_args(arguments)
    try:
        sys.exit(options.run(options))
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
