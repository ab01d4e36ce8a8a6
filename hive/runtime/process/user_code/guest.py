"""Lets hive run in the process of a script without a trace: settings of torch, and the states of global generators.

hive seeds the generators of torch, NumPy and Python wherever code of environments runs. A script that draws from them
too, between two runs in its own process, would otherwise get the same numbers after each of them.
"""

from __future__ import annotations

import random
import sys
from contextlib import ExitStack
from typing import Any

import numpy as np

from hive.runtime.process.user_code.torch_state import hive_torch


class Guest:
    """A part of hive in the process of a script: `with guest:` around all that it does there. It cannot be nested.

    Inside, generators go on where the previous block left them, because actors and algorithms may draw from them as
    well; outside, where the script left them. whole_run: also restore the number of torch's threads.
    """

    def __init__(self, *, whole_run: bool = False) -> None:
        self._whole_run = whole_run
        self._own: tuple[Any, ...] = ()
        self._outside: tuple[Any, ...] = ()
        self._stack = ExitStack()

    def __enter__(self) -> None:
        self._outside = _states()
        _restore(self._own)
        self._stack.enter_context(hive_torch(whole_run=self._whole_run))

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        self._own = _states()
        _restore(self._outside)


def _states() -> tuple[Any, ...]:
    """Return the states of the generators of Python, NumPy and, if it is imported, torch, which this layer is not."""
    torch = sys.modules.get("torch")
    generator = getattr(torch, "default_generator", None)
    more = () if generator is None else (generator.get_state(),)
    return random.getstate(), np.random.get_state(), *more  # noqa: NPY002


def _restore(states: tuple[Any, ...]) -> None:
    """Restore what `_states` returned; nothing of ()."""
    if states:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
    for state in states[2:]:
        sys.modules["torch"].default_generator.set_state(state)
