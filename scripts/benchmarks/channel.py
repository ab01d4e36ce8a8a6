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

from benchmarks.channel_ways import WAYS
from benchmarks.harness import (
    Bench,
    Check,
    Report,
    add_repetitions,
    measured_programs,
    number,
    ratio_of,
    spread_of,
    spread_text,
    ways_table,
)
from benchmarks.peer_environments import add_peer_options, peer_python
from benchmarks.programs import here

KINDS = {
    "arrays": ("GB/s", "rate", 2),
    "small": ("messages/s", "rate", 0),
    "call": ("us, p50", "p50_us", 0),
}
"""Kind of ways, each with a table -> its unit, the figure that its ways print, digits."""

LEAST_OF_RING, LEAST_SMALL, MOST_OF_PING_PONG = 0.8, 100_000, 1.5

Results = Mapping[str, Sequence[Mapping[str, float]]]  # way -> the figures that it printed, one for each repetition


def measure(options: argparse.Namespace, machine: Mapping[str, object]) -> Report:
    commands: dict[str, list[object]] = {way: [sys.executable, here("channel_ways.py"), way] for way in WAYS}
    if options.peers:
        python = peer_python("ray", options.cache)
        commands |= {f"{kind}/Ray": [python, here("peers", "ray_actors.py"), kind] for kind in KINDS}
    results = measured_programs(commands, options.repetitions, options.seconds, "rate")
    lines = [f"Two processes; medians of {options.seconds:g} s each, measured in turn. x: hive / this way."]
    for kind, (unit, figure, digits) in KINDS.items():
        ways = {way: _values(results, way, figure) for way in results if way.startswith(f"{kind}/")}
        lines += ways_table(kind, unit, ways, digits, f"{kind}/hive")
    return Report(lines, {"seconds": options.seconds, "measured": results}, checks_of(results))


def _values(results: Results, way: str, figure: str) -> list[float]:
    return [printed[figure] for printed in results[way]]


def checks_of(results: Results) -> list[Check]:
    arrays = ratio_of(_values(results, "arrays/hive", "rate"), _values(results, "arrays/bare ring", "rate"))
    small = spread_of(_values(results, "small/hive", "rate")).median
    call = ratio_of(_values(results, "call/hive", "p50_us"), _values(results, "call/zmq.asyncio", "p50_us"))
    return [
        Check("arrays: >= 0.8 x a bare ring", spread_text(arrays), arrays.median >= LEAST_OF_RING),
        Check("small: >= 100,000 a second", number(small), small >= LEAST_SMALL),
        Check("call: <= 1.5 x a ping-pong", spread_text(call), call.median <= MOST_OF_PING_PONG),
    ]


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
