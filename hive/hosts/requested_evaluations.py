"""The evaluations that a host is asked for: each request is sent on every connection until its result arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from hive.errors import VersionGone
from hive.hosts.messages import Evaluate, Evaluated
from hive.runtime import Bytes
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.messages import decode, encode, type_set
from hive.training.messages import Evaluation, EvaluationDue

EVALUATIONS = type_set([Evaluation])


class RequestedEvaluations:
    """The requests to the evaluators of one host. send: sends a message with frames to its link process."""

    def __init__(self, send: Callable[..., bool]) -> None:
        self.evaluating: dict[int, tuple[Evaluate, Frames, asyncio.Future[Evaluation]]] = {}  # by evaluator
        self.unsent: set[int] = set()  # evaluators whose request this connection does not have
        self._send = send

    async def evaluate(self, due: EvaluationDue, weights: Bytes) -> Evaluation:
        """Have the host evaluate weights; waits for the result, also while the host is away.

        Raises VersionGone if it was lost with its evaluator.
        """
        request, parts = Evaluate(due.evaluator, due.turn), [*encode(due), weights.tobytes()]
        result: asyncio.Future[Evaluation] = asyncio.get_running_loop().create_future()
        self.evaluating[due.evaluator] = request, parts, result
        self.unsent.add(due.evaluator)
        self.send()
        try:
            return await result
        finally:
            del self.evaluating[due.evaluator]
            self.unsent.discard(due.evaluator)

    def send(self) -> None:
        """Send the requests that this connection does not have, as far as there is room."""
        for evaluator in sorted(self.unsent):
            request, parts, _ = self.evaluating[evaluator]
            if self._send(request, *parts):
                self.unsent.discard(evaluator)

    def send_again(self) -> None:
        """Send all requests on a new connection: those on their way may be lost."""
        self.unsent = {*self.evaluating}
        self.send()

    def evaluated(self, message: Evaluated, frames: Frames) -> None:
        """Pass the result of an evaluation on, or that it is lost. Raises WireError for an invalid one."""
        if message.evaluator in self.evaluating:
            request, _, result = self.evaluating[message.evaluator]
            if request.turn == message.turn and not result.done() and not frames:
                result.set_exception(VersionGone("its evaluator was killed"))
            elif request.turn == message.turn and not result.done():
                result.set_result(cast(Evaluation, decode(frames[:1], EVALUATIONS)))
