"""Environments that count their constructions and their episodes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from small_environments import Contest, OneState


class Counts(OneState):
    """Plays the scenarios 0, 1, 2 ... in turn, and shows their number, or 0 in all of them."""

    made: ClassVar[list[int]] = []

    def __init__(self, shows: bool = True) -> None:
        super().__init__(terminates=5)
        self.made.append(1)
        self.scenario, self.shows = -1, shows

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.scenario += 1
        return super().reset(seed=seed)

    def observation(self) -> Any:
        return np.array([self.scenario * self.shows], np.float32)


class Refuses(Contest):
    """A contest of which `most` can be constructed."""

    made: ClassVar[list[int]] = []

    def __init__(self, most: int = 1000, **options: Any) -> None:
        super().__init__(**options)
        if len(self.made) >= most:
            raise OSError("it cannot be started again")
        self.made.append(1)


class Patience(OneState):
    """One of ten episodes has 100 steps, the others 2."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        result = super().reset(seed=seed)
        self.ends = (100 if self.np_random.random() < 0.1 else 2), 0
        return result
