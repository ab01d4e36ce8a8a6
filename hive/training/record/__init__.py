"""Writes metrics, checkpoints, videos and warnings of a run."""
