"""Simulations of the built-in trainer, which scripts/simulate runs."""
