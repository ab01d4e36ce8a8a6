"""Who an environment is: its number in the run, its seed, and how often it was restarted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EnvContext:
    """What tells an environment from the others of its run, for ports, folders, maps and seeds of its own.

    index: its number over all collectors, which restarts do not change; those of evaluators follow. seed: that of its
    first reset. incarnation: how often it has been restarted. run: the name of the run, "" outside of one.
    """

    index: int
    seed: int = 0
    incarnation: int = 0
    run: str = ""
