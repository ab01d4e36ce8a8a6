"""Begins an episode of a single environment, with the options of env.reset_options."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


def begin(environment: Any, seed: int | None, options: Mapping[str, Any]) -> Any:
    """Call `reset` with a copy of `options`, or without the argument if there are none; return what it returns.

    Environments of the old form may have a `reset` that takes a seed alone.
    """
    if not options:
        return environment.reset(seed=seed)
    return environment.reset(seed=seed, options=copy.deepcopy(dict(options)))
