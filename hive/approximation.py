"""The name that hive.learning had in the last release."""

from hive.lazy import renamed

__getattr__ = renamed(__name__, "hive.learning")
