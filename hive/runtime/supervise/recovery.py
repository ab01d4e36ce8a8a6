"""Repair shared memory after an actor has exited, and read results that outlive the actors.

    slots   slots that the actor was filling are freed, half-done transitions are completed, and slots that it had
            claimed are dropped as `consumer_died` or, if the channel says so, offered again
    zmq     likewise, and what it had sent and nobody had claimed is dropped: the contents were in its own memory
    board   its pins are removed; blocks that it wrote and did not publish become void
    page    a half-written entry in the account of a channel of messages is completed

The carrier of each channel does its part (hive.runtime.carriers).

Only the supervisor calls this, and only after the exit is confirmed: a stopped process is killed first, because it
could continue and write into slots that have a new owner.
"""

from __future__ import annotations

import hashlib

from hive.runtime.process.processes import SharedMemory
from hive.runtime.topology.plan import Plan


class Recovery:
    """Repairs the shared memory of a run."""

    def __init__(self, plan: Plan, memory: SharedMemory) -> None:
        self.plan = plan
        self.memory = memory
        self.views = memory.views

    def reclaim(self, actor: int, incarnation: int, why: str = "consumer_died") -> None:
        """Repair the page, slabs and boards of actor `actor`, whose process has exited.

        Slots that it had claimed are dropped with the reason `why`, one of REASONS.
        """
        self.memory.pages.page(actor).complete()
        self.retire(actor, incarnation, why)

    def retire(self, actor: int, incarnation: int, why: str = "consumer_died") -> None:
        """Repair only slabs and boards, for a finished actor whose process still runs and writes its page."""
        for channel in self.plan.channels:
            if actor in channel.producers or actor in channel.consumers:
                channel.description.reclaim(channel, self.memory, actor, incarnation, why)

    def drain(self) -> None:
        """Drop all messages still in flight as `run_ended`, after all actors have exited."""
        for channel in self.plan.channels:
            channel.description.drain(channel, self.memory)

    def digest(self) -> str:
        """Return the sha256, in hex, of the latest version of the plan's digest board; "" if there is none."""
        if not self.plan.digest_segment:
            return ""
        board = self.views.board(self.plan.digest_segment)
        block = board.words.find(board.latest) if board.latest >= 0 else -1
        return hashlib.sha256(board.blocks[block][: self.plan.digest_bytes].data).hexdigest() if block >= 0 else ""
