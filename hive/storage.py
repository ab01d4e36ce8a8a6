"""The name that hive.experience had in the last release."""

from hive.lazy import renamed

__getattr__ = renamed(__name__, "hive.experience")
