"""The name that hive.learning had in the last release; its classes for scripts are now in hive.compat.autonomous."""

from hive.lazy import renamed

MOVED = (
    *("Checkpointer", "DummyCheckpointer", "DummyWriter"),
    *("FeatureNetwork", "FixedTarget", "Identity", "PeriodicCheckpointer", "PolyakTarget", "QContinuous", "QDist"),
    *("QNetwork", "SinkWriter", "StepReport", "TrivialTarget", "VNetwork", "Writer", "accumulate_jointly"),
    *("load_checkpoint", "reinforce_jointly"),
)

__getattr__ = renamed(__name__, "hive.learning", dict.fromkeys(MOVED, "hive.compat.autonomous"))
