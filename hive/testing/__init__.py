"""Runs one actor or a whole topology in one process, in real or virtual time."""

from __future__ import annotations

from hive.lazy import moved_names
from hive.runtime.supervise.outcome import Outcome
from hive.testing.actor_harness import ActorResult, run_actor
from hive.testing.inline import run_inline

__all__ = ["ActorResult", "Outcome", "run_actor", "run_inline"]

SIMULATOR = ("At", "Faults", "Simulation", "simulate")  # an installed hive does not have it
__getattr__ = moved_names(
    __name__,
    {
        name: f"in hive's source folder: put its folder `tests` on PYTHONPATH and write `from simulation import {name}`"
        for name in SIMULATOR
    },
)
