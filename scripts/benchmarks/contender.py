"""Contenders of `bench throughput`: hive in each placement, and the peers that do the same work.

(a placement)       hive, started by its own command (benchmarks.settings, benchmarks.hive_run)
sb3, sb3-1-thread   Stable-Baselines3, torch with its default number of threads, and with one
plain, ...          the loops of our own in benchmarks/plain, likewise
sample-factory      Sample Factory's asynchronous PPO, where its Python is given
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.hive_run import measure_run
from benchmarks.peer_environments import add_cache_option, cache_folder, peer_python
from benchmarks.programs import here, run_program
from benchmarks.settings import PLACEMENTS, Setting, keys_of

PEERS = ("sb3", "plain", "sample-factory")

ROUND_S = 120.0  # seconds that a measurement may take beyond those asked for: warm-up and two rounds of a slow peer

Measurement = dict[str, Any]  # steps_per_s, and further figures of the contender


@dataclass(frozen=True)
class Pythons:
    """The Python of each peer: one that was given, or one of an environment that is created in `cache`."""

    given: Mapping[str, Path] = field(default_factory=dict)
    cache: Path = field(default_factory=cache_folder)

    def of(self, peer: str) -> Path:
        """Return the Python. Raises BenchError where its environment cannot be created."""
        if peer == "plain":
            return Path(sys.executable)
        return self.given.get(peer) or peer_python(peer, self.cache)


@dataclass(frozen=True)
class Contender:
    """One program to measure. `shape`: a placement of hive, or a peer with or without "-1-thread".

    measure: a function of the seconds to measure for. Raises BenchError.
    """

    setting: Setting
    shape: str
    measure: Callable[[float], Measurement]

    @property
    def name(self) -> str:
        return f"{self.setting.name}/{self.shape}"

    @property
    def title(self) -> str:
        return f"hive {self.shape}" if self.shape in PLACEMENTS else self.shape

    @property
    def peer(self) -> str | None:
        """The peer that it is, None for hive."""
        return peer_of(self.shape)


def peer_of(shape: str) -> str | None:
    """Return the peer of a shape: "sb3" of "sb3-1-thread"; None for hive."""
    name = shape.removesuffix("-1-thread")
    return name if name in PEERS else None


def contenders_of(setting: Setting, pythons: Pythons) -> list[Contender]:
    """Return the contenders of one setting: hive, and every peer with one thread of torch and with its default."""
    found = [Contender(setting, placement, _hive(setting, placement)) for placement in setting.placements]
    for peer in setting.peers:
        if peer == "sample-factory":
            found.append(Contender(setting, peer, _peer(setting, peer, 1, pythons)))
        else:
            found.append(Contender(setting, f"{peer}-1-thread", _peer(setting, peer, 1, pythons)))
            found.append(Contender(setting, peer, _peer(setting, peer, 0, pythons)))
    return found


def _hive(setting: Setting, placement: str) -> Callable[[float], Measurement]:
    return lambda seconds: measure_run(seconds, keys_of(setting, placement))


def _peer(setting: Setting, peer: str, threads: int, pythons: Pythons) -> Callable[[float], Measurement]:
    """Return a function that measures a peer.

    threads: number of threads of torch, 0 for its default, which is the number of cores.
    """
    program = {
        "sb3": here("peers", "sb3_rates.py"),
        "plain": here("plain", f"{setting.work['algorithm']}.py"),
        "sample-factory": here("peers", "sample_factory_rates.py"),
    }[peer]

    def measure(seconds: float) -> Measurement:
        command = [pythons.of(peer), "-P", program, seconds, threads, json.dumps(setting.work)]
        return run_program(command, seconds + ROUND_S)

    return measure


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether the name matches one of the shell patterns, or there is no pattern."""
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def add_python_options(parser: argparse.ArgumentParser) -> None:
    add_cache_option(parser)
    text = "Python of an environment that has the peer; Sample Factory is measured only with this"
    parser.add_argument("--python", action="append", type=_python, default=[], metavar="PEER=PATH", help=text)


def _python(text: str) -> tuple[str, Path]:
    peer, _, path = text.partition("=")
    python = Path(path).expanduser().absolute()
    if peer not in ("sb3", "sample-factory") or not python.is_file():
        raise argparse.ArgumentTypeError(f"expected sb3=PATH or sample-factory=PATH of a Python, got `{text}`")
    return peer, python
