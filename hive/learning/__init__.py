"""What algorithms learn with in a run: approximations, their target networks, and the receiver of their gradients.

Scripts have `hive.compat.autonomous`, whose approximations have optimizers.
"""

from __future__ import annotations

from hive.lazy import lazy_names

MOVED = (
    *("Checkpointer", "DummyCheckpointer", "DummyWriter"),
    *("FeatureNetwork", "FixedTarget", "Identity", "PeriodicCheckpointer", "PolyakTarget", "QContinuous", "QDist"),
    *("QNetwork", "SinkWriter", "StepReport", "TrivialTarget", "VNetwork", "Writer", "accumulate_jointly"),
    *("load_checkpoint", "reinforce_jointly"),
)
"""Names for scripts, which this package had in the last release."""

__getattr__, __dir__ = lazy_names(__name__, __file__, dict.fromkeys(MOVED, "hive.compat.autonomous"))
