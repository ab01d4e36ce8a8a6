"""The testing kit: whole topologies in one process, in real or virtual time, undisturbed or under seeded faults."""

from hive.testing.inline import run_inline
from hive.testing.seams import Faults
from hive.testing.simulation import Simulation, simulate

__all__ = ["Faults", "Simulation", "run_inline", "simulate"]
