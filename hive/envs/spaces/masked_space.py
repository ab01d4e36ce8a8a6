"""The space of observations that have an action mask as one of their parts."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from hive.envs.spaces.observation import Path


class MaskedSpace(spaces.Dict):
    """A Dict of which one part, at `mask_path`, is the action mask. choices: the sizes of all discrete actions."""

    def __init__(self, parts: dict[str, spaces.Space[Any]], mask_path: Path, choices: tuple[int, ...]) -> None:
        super().__init__(parts)
        self.mask_path = mask_path
        self.choices = choices
