"""Recovery: puts shared memory right after a confirmed death, and reads what the dead have left.

    slab    what the dead one was filling is freed, its half transitions are completed, what it had claimed is dropped
            as `consumer_died` or, where the channel says so, offered again
    board   its pins are taken out; blocks that it wrote and did not publish are void
    page    an entry in the account of a message channel that it was making is finished

Only the supervisor calls this, and only after the exit is confirmed: a stopped owner is killed first.
"""

from __future__ import annotations

import hashlib

from hive.runtime.memory import REASONS
from hive.runtime.plan import Plan
from hive.runtime.processes import SharedMemory

__all__ = ["Recovery"]


class Recovery:
    """The supervisor's hands in the shared memory of a run."""

    def __init__(self, plan: Plan, memory: SharedMemory) -> None:
        self.plan = plan
        self.memory = memory
        self.views = memory.views

    def reclaim(self, actor: int, incarnation: int, why: str = "consumer_died") -> None:
        """Actor `actor` is gone for certain. What it had claimed is dropped as `why`, one of REASONS."""
        self.memory.pages.page(actor).complete()
        self.retire(actor, incarnation, why)

    def retire(self, actor: int, incarnation: int, why: str = "consumer_died") -> None:
        """The same for one that is done, while the process that it shares with others goes on and owns its page."""
        for channel in self.plan.channels:
            writes, reads = actor in channel.producers, actor in channel.consumers
            if channel.carrier == "board" and writes:
                self.views.board(channel.segments[0]).words.recover_writer()
            elif channel.carrier == "board" and reads:
                self.views.board(channel.segments[0]).words.unpin(channel.consumers.index(actor))
            elif channel.carrier == "slab":
                own = [channel.segments[channel.producers.index(actor)]] if writes else []
                for name in channel.segments if reads else own:
                    words = self.views.slab(name).words
                    words.recover(actor, incarnation, channel.reoffer, REASONS.index(why))

    def drain(self) -> None:
        """Nobody is left: what is still in flight is dropped as `run_ended`."""
        pages = self.memory.pages
        for channel in self.plan.channels:
            for name in channel.segments if channel.carrier == "slab" else ():
                self.views.slab(name).words.drain(REASONS.index("run_ended"))
            for producer in channel.producers if channel.carrier == "message" else ():
                page = pages.page(producer)
                in_flight = page.counter(f"{channel.name}:in_flight")
                if left := page.get(in_flight):
                    page.add_both(page.counter(f"{channel.name}:run_ended"), left, in_flight, -left)

    def digest(self) -> str:
        """The sha256 of what the plan says is the run's result; "" when there is none."""
        if not self.plan.digest_segment:
            return ""
        board = self.views.board(self.plan.digest_segment)
        block = board.words.find(board.latest) if board.latest >= 0 else -1
        return hashlib.sha256(board.blocks[block][: self.plan.digest_bytes].data).hexdigest() if block >= 0 else ""
