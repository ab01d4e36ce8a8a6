"""Algorithms, one file each."""

from hive.algorithms.a2c import A2C
from hive.algorithms.steps import Algorithm, Loss, Step

__all__ = ["A2C", "Algorithm", "Loss", "Step"]
