"""Which environment a config names, and how it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hive.declared import RULES
from hive.envs.wrappers import WrapperConfig

MASKED = "hive.envs.spaces.masks:Masked"  # the wrapper of env.action_mask around a single environment


@dataclass(frozen=True)
class Recipe:
    """Which environment, and how it is made: the keys of [env] that its constructor and its vector depend on.

    options: keyword arguments of the constructor; with the preset "atari" those of hive.envs.vectors.atari. kind:
    env.vector, "auto", "python" or "native" (`takes_native`). wrappers: put around single environments
    (hive.envs.wrappers). info: env.info, the values of `info` that a row has. rules: env.rules.
    command, connect: those of [env], of a program behind a socket (hive.envs.external).
    """

    id: str
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "auto"
    wrappers: Sequence[WrapperConfig] = ()
    preset: str = "none"
    info: Sequence[str] = ()
    rules: int = RULES
    mask: str | None = None  # env.action_mask; around a single environment it is also the last of the wrappers
    agent_index: bool = False
    state: bool = False
    command: Sequence[str] = ()
    connect: str | None = None

    @property
    def is_program(self) -> bool:
        """Whether the environment is a program behind a socket, of which `id` is only the label."""
        return bool(self.command) or self.connect is not None
