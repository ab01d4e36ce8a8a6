"""The name that hive.compat.pytorchrl had in the last release."""

from hive.lazy import renamed

__getattr__ = renamed(__name__, "hive.compat.pytorchrl")
