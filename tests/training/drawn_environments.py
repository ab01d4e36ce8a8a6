"""Small environments with pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from small_environments import Small


class Drawn(Small):
    """An episode of `truncates` steps whose picture is as bright as its step number."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, kind: str = "picture", **ends: int) -> None:
        super().__init__(**ends)
        self.render_mode = render_mode
        self.kind = kind

    def observation(self) -> Any:
        return self.np_random.normal(size=1).astype(np.float32)

    def reward(self, action: Any) -> float:
        return float(self.np_random.normal())

    def render(self) -> Any:
        if self.kind == "raises":
            raise RuntimeError("no paint")
        return np.full((4, 6, 3), self.at, np.float32 if self.kind == "floats" else np.uint8)


class Unnamed(Drawn):
    """Does not accept `render_mode`, but says that it has pictures."""

    def __init__(self, truncates: int = 0) -> None:
        super().__init__(truncates=truncates)
