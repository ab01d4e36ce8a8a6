"""Runs one actor or a whole topology in one process, in real or virtual time."""

from __future__ import annotations

from typing import NoReturn

from hive.runtime.supervise.outcome import Outcome
from hive.testing.actor_harness import ActorResult, run_actor
from hive.testing.inline import run_inline

__all__ = ["ActorResult", "Outcome", "run_actor", "run_inline"]

SIMULATOR = {"At", "Faults", "Simulation", "simulate"}  # names of the simulator, which an installed hive does not have


def __getattr__(name: str) -> NoReturn:
    if name in SIMULATOR:
        raise ImportError(
            f"`hive.testing.{name}` is in hive's source folder now: put its folder `tests` on PYTHONPATH and write "
            f"`from simulation import {name}`"
        )
    raise AttributeError(f"module `hive.testing` has no attribute `{name}`")
