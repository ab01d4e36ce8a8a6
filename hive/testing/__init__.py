"""Runs one actor or a whole topology in one process, in real or virtual time."""

from __future__ import annotations

from hive.runtime.supervise.outcome import Outcome
from hive.testing.actor_harness import ActorResult, run_actor
from hive.testing.inline import run_inline

__all__ = ["ActorResult", "Outcome", "run_actor", "run_inline"]
