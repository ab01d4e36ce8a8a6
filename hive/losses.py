"""The name that hive.algorithms.losses had in the last release."""

from hive.lazy import renamed

__getattr__ = renamed(
    __name__,
    "hive.algorithms.losses",
    {
        **dict.fromkeys(("Floats", "Loss", "LossSlopes", "LossValue", "weighted_mean"), "hive.learning.loss"),
        **dict.fromkeys(("EPSILON", "VALUE_FIT", "value_fit"), "hive.algorithms.losses.actor_critic"),
    },
)
