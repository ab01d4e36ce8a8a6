"""Checkpoints: their folders, weights and rows, and where a run continues."""
