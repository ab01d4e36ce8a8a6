"""The command palette: every action that is possible now, found by words of its name or explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, runtime_checkable

from textual.command import DiscoveryHit, Hit, Hits, Provider


class Command(NamedTuple):
    """A command: its name, its explanation, and what it does."""

    name: str
    help: str
    run: Callable[[], object]


@runtime_checkable
class HasCommands(Protocol):
    """An application that lists its commands."""

    def commands(self) -> Iterable[Command]:
        """Return the commands that are possible now."""


class Commands(Provider):
    """The commands of the application, as the palette shows them."""

    def _all(self) -> Iterable[Command]:
        return self.app.commands() if isinstance(self.app, HasCommands) else ()

    async def discover(self) -> Hits:
        for command in self._all():
            yield DiscoveryHit(command.name, command.run, help=command.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in self._all():
            if (score := matcher.match(command.name)) > 0:
                yield Hit(score, matcher.highlight(command.name), command.run, help=command.help)
