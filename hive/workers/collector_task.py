"""CollectorTask: brings rollouts from collection workers to one gradient worker, in its thread or in one of its own.

    Central, synchronous       step() collects with the local worker, in the caller's thread
    Parallel, synchronous      step() has every remote worker make a rollout, each in a thread, and waits for all
    Central, asynchronous      the task's own thread collects, the local worker's network is nobody else's
    Parallel, asynchronous     the task's own thread hands on what is ready, and has that worker begin the next at once

One item of `queue` is one collection step: all rollouts of a synchronous round, in the order of their workers, or one
asynchronous rollout. So a round is trained on as a whole, and nothing piles up. The queue is bounded, and only the
task's own thread ever waits for room in it; a synchronous step() that finds a round untaken says so instead of waiting
for its own caller. Nobody waits for ever: `get` sees that the thread has failed or was stopped, `stop` has a limit.

With `col_fraction_workers` < 1 a round is over when so many workers are through: the others stop at their next step, if
they have their quota (`CWorkerSet(col_fraction_samples=...)`). Their rollouts are shorter, and count by their samples.

PyTorchRL calls it CollectorThread.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from hive.workers.c_worker import CollectedRollout, CWorker
from hive.workers.legality import check_modes

__all__ = ["CollectorTask", "CollectorThread"]

QUEUE_ITEMS = 4  # collection steps that wait for the gradient worker: more would only be older
POLL_S = 0.05  # between two looks whether a wait has become pointless
JOIN_S = 10.0  # a stop waits so long for rollouts in progress
GET_S = 60.0  # without a rollout for so long something hangs, and `get` says so


class CollectorTask(threading.Thread):
    """See the module. It starts itself where collection is asynchronous.

    index_worker: of its gradient worker. local_worker: holds the newest weights. remote_workers: collect if there are
    any. broadcast_interval: collection steps between two broadcasts of the local worker's weights to remote workers.
    quota: steps that a worker may make even when its round is cut short.

    Raises TopologyError for modes that do not go together.
    """

    def __init__(
        self,
        index_worker: int,
        local_worker: CWorker,
        remote_workers: Sequence[CWorker],
        col_fraction_workers: float = 1.0,
        col_communication: str = "synchronous",
        col_execution: str = "Central",
        broadcast_interval: int = 1,
        *,
        quota: int = 0,
    ) -> None:
        count = len(remote_workers)
        check_modes(col_execution, col_communication, count, col_fraction_workers, broadcast_interval)
        super().__init__(name=f"collector-task-{index_worker}", daemon=True)
        self.index_worker = index_worker
        self.local_worker = local_worker
        self.remote_workers = list(remote_workers)
        self.num_workers = count
        self.col_communication = col_communication
        self.col_execution = col_execution
        self.broadcast_interval = broadcast_interval
        self.num_sent_since_broadcast = 0
        self.stopped = False
        self.queue: queue.Queue[list[CollectedRollout]] = queue.Queue(QUEUE_ITEMS)
        self.error: BaseException | None = None
        self._quota = quota
        self._enough = math.ceil(round(col_fraction_workers * count, 9))
        self._finished = 0  # remote workers that are through with the round
        self._finishing = threading.Lock()
        self._running: dict[Future[CollectedRollout], CWorker] = {}
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=self.name) if count else None
        self.broadcast_new_weights()
        if self.asynchronous:
            self.start()

    @property
    def asynchronous(self) -> bool:
        return self.col_communication == "asynchronous"

    def should_broadcast(self) -> bool:
        """Whether `broadcast_interval` collection steps have been made since the last broadcast."""
        return self.num_sent_since_broadcast >= self.broadcast_interval

    def broadcast_new_weights(self) -> None:
        """Gives all remote workers the local worker's weights, version and bytes in one piece."""
        snapshot = self.local_worker.get_weights()
        for worker in self.remote_workers:
            worker.set_weights(snapshot)
        self.num_sent_since_broadcast = 0

    def run(self) -> None:
        """The thread of asynchronous collection: step after step until it is stopped, or something fails."""
        try:
            while not self.stopped:
                self.step()
        except BaseException as error:  # `get` raises it where somebody can see it
            self.error = error

    def step(self) -> None:
        """One collection step. Raises what environments raise, and RuntimeError if a round was not taken in between."""
        if not self.asynchronous and not self.queue.empty():
            raise RuntimeError("the round before has not been taken from the queue: take it before the next step()")
        if self.should_broadcast():
            self.broadcast_new_weights()
        if self._pool is None:
            rollouts = [self.local_worker.collect_data(self._gives_up)]
        elif self.asynchronous:
            rollouts = self._next_of_anybody(self._pool)
        else:
            rollouts = self._round(self._pool)
        self.num_sent_since_broadcast += 1
        self._put(rollouts)

    def get(self, timeout: float = GET_S) -> list[CollectedRollout]:
        """The oldest collection step; a synchronous one is made here if there is none.

        Raises RuntimeError when collection has failed (with what failed as its cause) or was stopped, and TimeoutError.
        """
        if not self.asynchronous and self.queue.empty() and not self.stopped:
            self.step()
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.queue.get(timeout=POLL_S)
            except queue.Empty:
                if self.error is not None:
                    raise RuntimeError(f"the collection of {self.name} has failed: {self.error}") from self.error
                if self.stopped:
                    raise RuntimeError(f"{self.name} has been stopped") from None
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.name} has brought no rollout for {timeout:g} s") from None

    def stop(self) -> None:
        """Ends collection and joins within a limit: rollouts in progress stop at their next step. Again: nothing.

        Raises TimeoutError if an environment does not return from a step by then.
        """
        self.stopped = True
        deadline = time.monotonic() + JOIN_S
        if self.is_alive() and threading.current_thread() is not self:
            self.join(JOIN_S)
        left = wait(self._running, max(0.0, deadline - time.monotonic())).not_done if self._running else set()
        if self._pool is not None:
            self._pool.shutdown(wait=not left, cancel_futures=True)
        if self.is_alive() or left:
            raise TimeoutError(
                f"{self.name} is still collecting after {JOIN_S:g} s: does an environment hang in step()?"
            )

    # --- inside

    def _put(self, rollouts: list[CollectedRollout]) -> None:
        """Waits for room, in the task's own thread only: a synchronous step has found the queue empty."""
        while not self.stopped:
            try:
                return self.queue.put(rollouts, timeout=POLL_S)
            except queue.Full:
                continue

    def _round(self, pool: ThreadPoolExecutor) -> list[CollectedRollout]:
        """A rollout of every remote worker, in their order."""
        self._finished = 0
        self._running = {pool.submit(self._of_the_round, worker): worker for worker in self.remote_workers}
        try:
            return [future.result() for future in self._running]
        finally:
            wait(self._running)  # where one has failed, too: nobody may collect with the same worker meanwhile
            self._running = {}

    def _of_the_round(self, worker: CWorker) -> CollectedRollout:
        rollout = worker.collect_data(self._cut)
        with self._finishing:
            self._finished += 1
        return rollout

    def _cut(self, steps: int) -> bool:
        """Whether a worker ends its rollout here: enough others are through, or everybody is to stop."""
        return self.stopped or (steps >= self._quota and self._enough <= self._finished)

    def _gives_up(self, steps: int) -> bool:
        return self.stopped

    def _next_of_anybody(self, pool: ThreadPoolExecutor) -> list[CollectedRollout]:
        """The first rollout that is ready. Its worker begins the next before anybody waits for room."""
        if not self._running:
            self._running = {pool.submit(w.collect_data, self._gives_up): w for w in self.remote_workers}
        while True:
            done, _ = wait(self._running, POLL_S, return_when=FIRST_COMPLETED)
            if done or self.stopped:
                break
        if not done:
            return []
        first = next(future for future in self._running if future in done)
        worker = self._running.pop(first)
        if not self.stopped:
            self._running[pool.submit(worker.collect_data, self._gives_up)] = worker
        return [first.result()]


CollectorThread = CollectorTask
"""Its name in PyTorchRL."""
