"""Which environment a config names, and how it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hive.config.each import has_placeholders, indices_of
from hive.envs.context import EnvContext, filled
from hive.envs.wrappers import WrapperConfig

MASKED = "hive.envs.spaces.masks:Masked"  # the wrapper of env.action_mask around a single environment


@dataclass(frozen=True)
class Recipe:
    """Which environment, and how it is made: the keys of [env] that its constructor and its vector depend on.

    options: keyword arguments of the constructor; with the preset "atari" those of hive.envs.vectors.atari. kind:
    env.vector, "auto", "python" or "native" (`takes_native`). wrappers: put around single environments
    (hive.envs.wrappers). info: env.info, the values of `info` that a row has. reset_options: for
    `reset(options=...)`, at every reset. each: env.each. context: who the environment is, whose placeholders are filled
    then; None: of a recipe for several environments. command, connect: those of [env], of a program behind a socket
    (hive.envs.external), which is not made in Python.
    """

    id: str
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "auto"
    wrappers: Sequence[WrapperConfig] = ()
    preset: str = "none"
    info: Sequence[str] = ()
    mask: str | None = None  # env.action_mask; around a single environment it is also the last of the wrappers
    agent_index: bool = False
    state: bool = False
    reset_options: Mapping[str, Any] = field(default_factory=dict)
    each: Sequence[Mapping[str, Any]] = ()
    context: EnvContext | None = None
    command: Sequence[str] = ()
    connect: str | None = None

    def at(self, context: EnvContext) -> Recipe:
        """Return the recipe of one environment: with what env.each has for it, and with placeholders filled."""
        options, reset_options = dict(self.options), dict(self.reset_options)
        for entry in self.each:
            if context.index in indices_of(entry):
                options |= entry.get("options", {})
                reset_options |= entry.get("reset_options", {})
        return replace(
            self,
            options=filled(options, context),
            wrappers=filled(self.wrappers, context),
            reset_options=filled(reset_options, context),
            each=(),
            context=context,
        )

    @property
    def differs(self) -> str:
        """The first key that only single environments can follow; "" for none."""
        named = {
            "env.each": bool(self.each),
            "env.reset_options": bool(self.reset_options),
            "a placeholder in env.options": has_placeholders(self.options),
            "a placeholder in env.wrappers": has_placeholders(self.wrappers),
        }
        return next((name for name, given in named.items() if given), "")

    @property
    def is_program(self) -> bool:
        """Whether the environment is a program behind a socket, of which `id` is only the label."""
        return bool(self.command) or self.connect is not None
