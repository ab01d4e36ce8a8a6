"""What callbacks have changed in a run, each change with the round from which it holds.

    learner     publishes all changes that still matter, as one version of the board `changes`
    collector   reads them before each rollout: attributes and options of its environments
    worker      reads them before each round: keys of [algorithm]

A change that follows round r holds from the first round of which no rollout can have begun before: that of the next
behaviour version (`first_round`). So it does not depend on time, and every process applies it at the same number. In
asynchronous runs it holds at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hive.algorithms.parameters import Configured, update_parameter
from hive.errors import UsageError
from hive.plain_data import LENGTH_BYTES, pack, read_content, unpack
from hive.runtime import Subscription
from hive.training.callbacks.events import ATTRIBUTE, KEY, OPTION
from hive.training.resume_barriers import NoBarriers, ResumeBarriers

CHANGES_BYTES = 1 << 16  # of a board's block: attributes are levels and ranges, not data sets


class Change(NamedTuple):
    """One change. kind: as in hive.training.callbacks.events. first: the round from which it holds."""

    first: int
    kind: str
    name: str
    value: Any


@dataclass(frozen=True)
class Values:
    """The changed values that hold in one round. built: the round from which the last change of an option holds."""

    attributes: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    built: int = 0


class Changes:
    """All changes that hold now or later, in the order in which they were made."""

    def __init__(self, changes: Sequence[Sequence[Any]] = ()) -> None:
        self.changes = [Change(*one) for one in changes]

    def add(self, first: int, kind: str, name: str, value: Any) -> None:
        """Add a change. Raises UsageError if all of them need more than CHANGES_BYTES.

        An option that keeps its value is none: environments are constructed again where one changes. Neither is a value
        that another one replaces before it holds.
        """
        before = self.changes
        self.changes = [one for one in before if one[:3] != (first, kind, name) or pack(one.value) == pack(value)]
        known = next((one for one in reversed(self.changes) if (one.kind, one.name) == (kind, name)), None)
        if kind == OPTION and known is not None and pack(known.value) == pack(value):
            return
        self.changes.append(Change(first, kind, name, value))
        if len(self.packed()) > CHANGES_BYTES - LENGTH_BYTES:
            self.changes = before
            raise UsageError(
                f"the changes of environments and keys need more than {CHANGES_BYTES >> 10} KiB",
                hint="have the environment load large data itself, and set its name or number",
            )

    def forget_before(self, number: int) -> None:
        """Forget changes that a later one has replaced for all rounds from `number` on."""
        last: dict[tuple[str, str], int] = {}
        for position, one in enumerate(self.changes):
            if one.first <= number:
                last[one.kind, one.name] = position
        self.changes = [
            one
            for position, one in enumerate(self.changes)
            if one.first > number or last[one.kind, one.name] == position
        ]

    def at(self, number: int) -> Values:
        """Return what holds in round `number`."""
        built = max((one.first for one in self.changes if one.first <= number and one.kind == OPTION), default=0)
        values = Values(built=built)
        homes = {ATTRIBUTE: values.attributes, OPTION: values.options, KEY: values.keys}
        for one in self.changes:
            if one.first <= number:
                homes[one.kind].pop(one.name, None)  # so that they are applied in the order in which they were set
                homes[one.kind][one.name] = one.value
        return values

    def packed(self) -> bytes:
        """Return the changes as bytes."""
        return pack([list(one) for one in self.changes])


def first_round(barriers: ResumeBarriers, rounds: int, gradient_lag: int = 0) -> int:
    """Return the first round that a change holds in which is made after `rounds` rounds have ended.

    gradient_lag: turns by which gradients may be made ahead, of batches that are drawn as early.
    """
    if isinstance(barriers, NoBarriers) or not rounds:
        return 0
    ahead = -(-gradient_lag * barriers.per_turn // barriers.per_round)
    return max(barriers.unbegun(rounds), rounds + ahead)


class ChangesReader:
    """The changes as a collector or gradient worker reads them.

    given: those of the checkpoint that the run continues from, which hold until the learner publishes its own.
    """

    def __init__(self, port: Subscription[Any], given: Changes) -> None:
        self._port = port if port.connected else None
        self._changes = given
        self._version = -1
        self._values = Values()
        self._key = (-1, 0)  # version and number of the changes in `_values`

    @property
    def connected(self) -> bool:
        """Whether the run can have changes."""
        return self._port is not None

    def at(self, number: int) -> Values:
        """Return what holds in round `number`; the same object while nothing has changed."""
        if self._port is None:
            return self._values
        while self._port.latest != self._version:
            board, latest = self._port.board, self._port.latest
            if board.view.pin(board.reader, latest) is None:
                continue  # it was overwritten by a newer version, which is read next
            self._version = latest
            self._changes = Changes(unpack(read_content(board.view.blocks[board.view.words.find(latest)])))
            self._port.unpin()
        held = sum(one.first <= number for one in self._changes.changes)
        if (self._version, held) != self._key:
            self._key, self._values = (self._version, held), self._changes.at(number)
        return self._values


class ChangedKeys:
    """The keys of [algorithm] of a gradient worker, which callbacks may change from round to round."""

    def __init__(self, port: Subscription[Any], given: Changes) -> None:
        self._reader = ChangesReader(port, given)
        self._seen: Values | None = None
        self._keys: dict[str, Any] = {}

    @property
    def connected(self) -> bool:
        """Whether the run can have changes."""
        return self._reader.connected

    def apply(self, number: int, algorithm: Configured) -> bool:
        """Use the keys that hold in round `number`; return whether any has changed."""
        values = self._reader.at(number)
        if values is self._seen:
            return False
        self._seen = values
        changed = {name: value for name, value in values.keys.items() if self._keys.get(name, self) != value}
        for name, value in changed.items():
            update_parameter(algorithm, name, value)
        self._keys |= changed
        return bool(changed)
