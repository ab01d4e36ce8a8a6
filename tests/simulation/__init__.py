"""A deterministic simulator: whole topologies in one process, in virtual time, under seeded faults.

`trainer`, `replay` and `hosts` draw schedules of the built-in trainer, which scripts/simulate runs.
"""

from simulation.fakes import At, Faults
from simulation.simulator import Simulation, simulate

__all__ = ["At", "Faults", "Simulation", "simulate"]
