"""The name that hive.training had in the last release."""

from hive.lazy import renamed

__getattr__ = renamed(
    __name__,
    "hive.training",
    {
        **dict.fromkeys(("Snapshot", "Gradients", "CollectedRollout"), "hive.compat.pytorchrl"),
    },
)
