"""What agents learn with hive and with Stable-Baselines3, in the same tasks: the parts of `scripts/parity`."""
