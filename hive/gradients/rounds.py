"""The place in the last release of a part of accumulators that scripts have pickled."""

from hive.lazy import moved_names

PLACE = (
    "a part of `hive.compat.rlpack.GradAccumulator`, which does not read accumulators of the last release: "
    "unpickle there, and pickle the MapOfTensors of `mean_reduce`"
)
__getattr__ = moved_names(__name__, {"GradientField": PLACE})
