"""The built-in trainer, each process of which writes down which methods of the documents' classes it executes."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hive
from hive.gradients import GradAccumulator
from hive.learning import Approximation
from hive.networks.weights.wrapper import NetworkWrapper

RECORDED = {
    GradAccumulator: ("adopt", "mean_reduce"),
    NetworkWrapper: ("apply_gradients_to_global_network", "update_target_network", "update_online_network"),
    Approximation: ("reinforce", "target"),
}
FILE = "RECORDED_DOCUMENTS"  # the environment variable that names the file to append to
seen: set[tuple[int, str]] = set()


def actor_above() -> str:
    """The name of the actor whose method is being executed."""
    frame = inspect.currentframe()
    while frame is not None:
        if isinstance(actor := frame.f_locals.get("self"), hive.Actor):
            return actor.name
        frame = frame.f_back
    return ""


def recorded(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        if (os.getpid(), name) not in seen and (actor := actor_above()):
            seen.add((os.getpid(), name))
            with Path(os.environ[FILE]).open("a") as file:
                file.write(f"{actor} {name}\n")
        return method(*arguments, **options)

    return call


def topology(config: hive.Config) -> hive.Topology:
    for cls, names in RECORDED.items():
        for name in names:
            setattr(cls, name, recorded(f"{cls.__name__}.{name}", getattr(cls, name)))
    return hive.schemes.build(config)
