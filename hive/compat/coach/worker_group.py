"""Workers that train one global network together: threads of one process, each with its NetworkWrapper.

    worker 0   online ── gradients ──┐
    worker 1   online ── gradients ──┼── one update ── global ──> every online network
    worker 2   online ── gradients ──┘

With synchronous workers an update waits for the gradients of all of them. The last worker to arrive applies them in the
order of the workers' numbers, so the result does not depend on the order of arrival. If a worker does not arrive within
`timeout_s`, the others raise an error that names it. Asynchronous workers do not wait; the lock of the
global network serializes their updates.

This class coordinates threads only: between processes of a run the learner has this role (see `hive.training`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from hive.errors import NetworkError

SharedCopy = TypeVar("SharedCopy")

# Longer than any batch should take, and short enough that the user still watches the terminal.
TIMEOUT_S = 60.0


class Round:
    """One round of one network: the contribution of each worker, the workers that arrived, and the result."""

    def __init__(self) -> None:
        self.contributions: dict[int, Any] = {}
        self.arrived: set[int] = set()  # workers that have arrived, those that timed out included
        self.over = False
        self.error: Exception | None = None


class WorkerGroup(Generic[SharedCopy]):
    """A number of `workers`, numbered from 0, and the global networks that they share, by name.

    timeout_s: how long a worker waits for the others, in seconds. Raises NetworkError unless `workers` is a whole
    number of at least 1 and `timeout_s` is positive.
    """

    def __init__(self, workers: int, *, timeout_s: float = TIMEOUT_S) -> None:
        if not isinstance(workers, int) or workers < 1 or not timeout_s > 0:
            raise NetworkError(f"invalid group of {workers} workers that waits {timeout_s} s")
        self.workers = workers
        self.timeout_s = timeout_s
        self._condition = threading.Condition()
        self._networks: dict[str, SharedCopy] = {}
        self._rounds: dict[str, Round] = {}

    def check_worker(self, worker: int) -> None:
        """Raise NetworkError if the group has no worker of that number."""
        if not 0 <= worker < self.workers:
            raise NetworkError(f"no worker {worker} in a group of {self.workers}", hint="they are counted from 0")

    def global_network(self, name: str, make: Callable[[], SharedCopy]) -> SharedCopy:
        """Return the global network of that name; the first call creates it with `make`."""
        with self._condition:
            if name not in self._networks:
                self._networks[name] = make()
            return self._networks[name]

    def together(self, name: str, worker: int, contribution: Any, act: Callable[[Mapping[int, Any]], None]) -> None:
        """Wait until every worker has called this for `name`, and until the last one has called its `act`.

        act: called once, with {worker: contribution} in the order of the numbers. If it raises, every worker raises a
            NetworkError with its message. Raises NetworkError, without a call of `act`, for a worker number that is
            waiting already, and if other workers are missing after `timeout_s`. The contribution is then withdrawn,
            and this worker may call again.
        """
        self.check_worker(worker)
        with self._condition:
            current = self._rounds.setdefault(name, Round())
            if worker in current.contributions:
                raise NetworkError(
                    f"worker {worker} has contributed gradients of `{name}` twice",
                    hint="give every thread a different worker number",
                )
            current.contributions[worker] = contribution
            current.arrived.add(worker)
            if len(current.contributions) == self.workers:
                self._finish(name, current, act)
            elif not self._condition.wait_for(lambda: current.over, self.timeout_s):
                raise self._give_up(name, current, worker)
        if current.error is not None:
            raise _copy_of(current.error) from current.error

    def _give_up(self, name: str, current: Round, worker: int) -> NetworkError:
        """Remove `worker` from the round and return an error that names the missing workers."""
        everyone = set(range(self.workers))
        missing = ", ".join(map(str, sorted(everyone - current.arrived or everyone - current.contributions.keys())))
        del current.contributions[worker]
        if not current.contributions:
            del self._rounds[name]
        return NetworkError(
            f"no gradients of `{name}` from worker {missing} within {self.timeout_s:g} s",
            hint="every worker must apply gradients equally often; check whether that one has failed or is slow",
        )

    def _finish(self, name: str, current: Round, act: Callable[[Mapping[int, Any]], None]) -> None:
        del self._rounds[name]  # the next call begins another round
        try:
            act(dict(sorted(current.contributions.items())))
        except Exception as error:
            current.error = error
        current.over = True
        self._condition.notify_all()


def _copy_of(error: Exception) -> NetworkError:
    """Return a new error with the same text: one exception raised by several threads collects all their tracebacks."""
    return NetworkError(str(error), hint=getattr(error, "hint", ""))
