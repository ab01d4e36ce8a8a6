"""Workers that train one global network together: threads of one process, each with a NetworkWrapper of its own.

    worker 0   online ── gradients ──┐
    worker 1   online ── gradients ──┼── one update ── global ──> every online network
    worker 2   online ── gradients ──┘

Synchronous workers meet: an update waits for the gradients of all of them, is made by the last one to arrive, in the
order of the workers' numbers, so that the result does not depend on who came first. A worker that stays away ends the
waiting of the others after `timeout_s`, with an error that names it. Asynchronous workers do not meet; the lock of the
global network keeps their updates apart.

There is no waiting for processes here: in a run the learner has this role (see `hive.workers`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from hive.errors import NetworkError

__all__ = ["WorkerGroup"]

Network = TypeVar("Network")

# Longer than any batch should take, short enough that somebody still looks at the terminal.
TIMEOUT_S = 60.0


class Meeting:
    """One round of one network: what each worker brought, who was here at all, and how it ended."""

    def __init__(self) -> None:
        self.brought: dict[int, Any] = {}
        self.came: set[int] = set()  # with those that have given up waiting
        self.over = False
        self.error: Exception | None = None


class WorkerGroup(Generic[Network]):
    """`workers` workers, numbered from 0, and the global networks that they share, by name."""

    def __init__(self, workers: int, *, timeout_s: float = TIMEOUT_S) -> None:
        if not isinstance(workers, int) or workers < 1 or not timeout_s > 0:
            raise NetworkError(f"no group of {workers} workers that waits {timeout_s} s")
        self.workers = workers
        self.timeout_s = timeout_s
        self._condition = threading.Condition()
        self._networks: dict[str, Network] = {}
        self._meetings: dict[str, Meeting] = {}

    def check_worker(self, worker: int) -> None:
        """NetworkError if there is no worker of that number."""
        if not 0 <= worker < self.workers:
            raise NetworkError(f"no worker {worker} in a group of {self.workers}", hint="they are counted from 0")

    def global_network(self, name: str, make: Callable[[], Network]) -> Network:
        """The global network of that name; the first worker to ask makes it."""
        with self._condition:
            if name not in self._networks:
                self._networks[name] = make()
            return self._networks[name]

    def together(self, name: str, worker: int, brings: Any, act: Callable[[Mapping[int, Any]], None]) -> None:
        """Waits until every worker has come here for `name`, and until one of them has called its `act`.

        act: called once, with what everybody brought, by worker number in order. What it raises all of them
            raise. Raises NetworkError, without a call of `act`, for a worker that is here already, and where
            others have not come within `timeout_s`; then this worker has not come either, and may try again.
        """
        self.check_worker(worker)
        with self._condition:
            meeting = self._meetings.setdefault(name, Meeting())
            if worker in meeting.brought:
                raise NetworkError(
                    f"worker {worker} has brought gradients of `{name}` twice",
                    hint="give every thread a worker number of its own",
                )
            meeting.brought[worker] = brings
            meeting.came.add(worker)
            if len(meeting.brought) == self.workers:
                self._finish(name, meeting, act)
            elif not self._condition.wait_for(lambda: meeting.over, self.timeout_s):
                raise self._give_up(name, meeting, worker)
        if meeting.error is not None:
            raise _copy_of(meeting.error) from meeting.error

    def _give_up(self, name: str, meeting: Meeting, worker: int) -> NetworkError:
        """Takes `worker` out of the meeting, and the error that names those for whom it waited."""
        everybody = set(range(self.workers))
        missing = ", ".join(map(str, sorted(everybody - meeting.came or everybody - meeting.brought.keys())))
        del meeting.brought[worker]
        if not meeting.brought:
            del self._meetings[name]
        return NetworkError(
            f"no gradients of `{name}` from worker {missing} within {self.timeout_s:g} s",
            hint="every worker must apply gradients equally often; see if that one has failed or is slow",
        )

    def _finish(self, name: str, meeting: Meeting, act: Callable[[Mapping[int, Any]], None]) -> None:
        del self._meetings[name]  # whoever comes next begins another round
        try:
            act(dict(sorted(meeting.brought.items())))
        except Exception as error:
            meeting.error = error
        meeting.over = True
        self._condition.notify_all()


def _copy_of(error: Exception) -> NetworkError:
    """The same error for every thread: an exception that several threads raise would collect all their tracebacks."""
    return NetworkError(str(error), hint=getattr(error, "hint", ""))
