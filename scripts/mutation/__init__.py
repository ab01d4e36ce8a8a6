"""Faults that learning has to notice, and the tests that notice them (see `scripts/mutants`)."""
