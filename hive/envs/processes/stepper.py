"""What steps some environments of a vector for it: a helper, an environment process, or a program behind a socket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from hive.envs.context import EnvContext

Activity = Literal["start", "reset", "step"]
ACTIVITIES: tuple[Activity, ...] = ("start", "reset", "step")


@dataclass(frozen=True)
class Doing:
    """What a stepper does now.

    environment: the number of the one that it is about, among the stepper's own; None: it may be any of them. since_ns:
    of CLOCK_MONOTONIC.
    """

    activity: Activity
    environment: int | None
    since_ns: int


class Stepper(Protocol):
    """Steps environments `first` to `first + count` of a vector, whose columns of a row it writes.

    An order returns at once, and one is open at a time: `done` tells when it has been followed. Limits and restarts are
    the business of `ProcessVector`.
    """

    takes_attributes: bool

    def start(self, contexts: Sequence[EnvContext]) -> None:
        """Start the process, and order it to construct the environments."""

    def renew(self, contexts: Sequence[EnvContext]) -> None:
        """Order it to close its environments and to construct new ones, with other options or with env.rebuild."""

    def reset(self, seeds: Sequence[int]) -> None:
        """Order it to begin an episode in each environment, and to write the first observations into its columns."""

    def step(self) -> None:
        """Order it to step each environment once with the actions of the block, and to write its columns.

        An episode that ends is followed by the next one in the same step, as in `PythonVector`.
        """

    def done(self, limit_s: float) -> bool:
        """Wait for the end of the open order, at most `limit_s`; return whether it has ended.

        Raises EnvironmentFailed with a text that says what failed. Only `doing`, `pids`, `tail`, `left`, `close` and
        `end` follow then.
        """

    def left(self, limit_s: float) -> bool:
        """Wait at most `limit_s` for the exit after an error that it raised itself; return whether it is gone.

        Until then it closes its environments. True for one that has not raised: nothing is to be waited for.
        """

    def doing(self) -> Doing:
        """Return what the open order is about now."""

    def pids(self) -> Sequence[int]:
        """Return the process that was started, if any."""

    def tail(self) -> str:
        """Return the last lines of its output, at most 10 and 2,000 characters."""

    def change(self) -> None:
        """Order it to give its environments the attributes that the block has, if it `takes_attributes`."""

    def bound(self) -> None:
        """Keep its output within a size; it is called a few times a second."""

    def close(self, limit_s: float = 0.0) -> bool:
        """Order it to close its environments and to exit, unless another order is open for longer than `limit_s`.

        Return False in this case.
        """

    def end(self, limit_s: float) -> None:
        """Wait at most `limit_s` for its exit after `close`; then kill it with all that it has started: it is gone."""
