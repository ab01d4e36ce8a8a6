"""The testing kit: one actor, or whole topologies in one process, in real or virtual time, under seeded faults."""

from hive.testing.alone import Told, alone
from hive.testing.inline import run_inline
from hive.testing.seams import At, Faults
from hive.testing.simulation import Simulation, simulate

__all__ = ["At", "Faults", "Simulation", "Told", "alone", "run_inline", "simulate"]
