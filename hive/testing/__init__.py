"""Runs one actor or a whole topology in one process, in real or virtual time, optionally under seeded faults."""

from hive.runtime.supervise.outcome import Outcome
from hive.testing.actor_harness import ActorResult, run_actor
from hive.testing.fakes import At, Faults
from hive.testing.inline import run_inline
from hive.testing.simulation import Simulation, simulate

__all__ = ["ActorResult", "At", "Faults", "Outcome", "Simulation", "run_actor", "run_inline", "simulate"]
