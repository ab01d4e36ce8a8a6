"""The place in the last release of maps that scripts have pickled."""

from hive.lazy import renamed

__getattr__ = renamed(__name__, "hive.compat.rlpack")
