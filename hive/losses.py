"""The name that hive.algorithms.losses had in the last release."""

from hive.lazy import renamed

__getattr__ = renamed(__name__, "hive.algorithms.losses")
