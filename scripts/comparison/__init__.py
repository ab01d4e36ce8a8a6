"""Learning with hive and with Stable-Baselines3 compared, in the same tasks: the parts of `scripts/parity`."""
