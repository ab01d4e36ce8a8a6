"""Begins, continues, selects and follows runs: what the commands and `hive.train` have in common."""
