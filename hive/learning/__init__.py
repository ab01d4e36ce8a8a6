"""Learning in a run: approximations, their target networks, and the receiver of their gradients.

Scripts have `hive.compat.autonomous`, whose approximations have optimizers.
"""

from __future__ import annotations

from hive.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
