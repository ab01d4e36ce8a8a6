"""The measurements and reports of `scripts/bench` and `scripts/soak`. Not part of the package `hive`."""
