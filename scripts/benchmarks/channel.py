"""`bench channel`: the rates of a channel and of a call between two processes, compared with bare transports and Ray.

Every way is a separate program (channel_ways.py, peers/ray_actors.py). Required rates:

    arrays   >= 0.8 x a bare ring buffer of slots in shared memory
    small    >= 100,000 messages a second, many at once
    call     a round trip takes <= 1.5 x that of a bare zmq.asyncio ping-pong
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.channel_ways import WAYS
from benchmarks.harness import (
    Bench,
    Check,
    Report,
    add_repetitions,
    aligned,
    interleaved,
    number,
    ratio_of,
    say,
    spread_cells,
    spread_of,
    spread_text,
)
from benchmarks.peer_environments import add_peer_options, peer_python
from benchmarks.programs import here, run_program

RAY = ("arrays/Ray", "small/Ray", "call/Ray")
UNITS = {
    "arrays": ("GB/s", "rate", 2),
    "rollouts": ("GB/s", "rate", 2),
    "small": ("messages/s", "rate", 0),
    "call": ("us, p50", "p50_us", 0),
}
LEAST_OF_RING, LEAST_SMALL, MOST_OF_PING_PONG = 0.8, 100_000, 1.5

Results = Mapping[str, Sequence[Mapping[str, float]]]  # way -> the figures that it printed, one for each repetition


def measure(options: argparse.Namespace, machine: Mapping[str, object]) -> Report:
    if options.peers:
        peer_python("ray", options.cache)
    names = sorted([*WAYS, *(RAY if options.peers else ())], key=lambda name: [*UNITS].index(_kind(name)))

    def figures(name: str, repetition: int) -> dict[str, float]:
        say(f"{repetition + 1}/{options.repetitions} {name}")
        return run_program(_command(name, options.seconds, options.cache), options.seconds, rate="rate")

    results, _ = interleaved(names, options.repetitions, figures)
    lines = [f"Two processes; medians of {options.seconds:g} s each, measured in turn.", *tables(results)]
    return Report(lines, {"seconds": options.seconds, "measured": results}, checks_of(results))


def _kind(name: str) -> str:
    return name.partition("/")[0]


def _command(name: str, seconds: float, cache: Path) -> list[object]:
    if name in RAY:
        return [peer_python("ray", cache), here("peers", "ray_actors.py"), _kind(name), seconds]
    return [sys.executable, here("channel_ways.py"), name, seconds]


def _values(results: Results, name: str) -> list[float]:
    return [one[UNITS[_kind(name)][1]] for one in results[name]]


def checks_of(results: Results) -> list[Check]:
    """Return the checks of the ways that were measured."""
    checks = []
    if {"arrays/hive", "arrays/bare ring"} <= results.keys():
        spread = ratio_of(_values(results, "arrays/hive"), _values(results, "arrays/bare ring"))
        checks.append(Check("arrays: >= 0.8 x a bare ring", spread_text(spread), spread.median >= LEAST_OF_RING))
    if "small/hive" in results:
        median = spread_of(_values(results, "small/hive")).median
        checks.append(Check("small: >= 100,000 a second", number(median), median >= LEAST_SMALL))
    if {"call/hive", "call/zmq.asyncio"} <= results.keys():
        spread = ratio_of(_values(results, "call/hive"), _values(results, "call/zmq.asyncio"))
        checks.append(Check("call: <= 1.5 x a ping-pong", spread_text(spread), spread.median <= MOST_OF_PING_PONG))
    return checks


def tables(results: Results) -> list[str]:
    lines = []
    for kind, (unit, _, digits) in UNITS.items():
        names = [name for name in results if _kind(name) == kind]
        rows = [(f"  {name.partition('/')[2]}", *spread_cells(_values(results, name), digits)) for name in names]
        lines += ["", *aligned((kind, unit, "least..most"), rows)] if rows else []
    return lines


def _options(parser: argparse.ArgumentParser) -> None:
    add_peer_options(parser, "Ray")
    add_repetitions(parser, 5, 3.0)


BENCH = Bench(
    "channel",
    "rates of a channel and of a call between two processes: hive, bare transports, Ray",
    "example: scripts/bench channel --no-peers --json channel.json --check",
    _options,
    measure,
)
