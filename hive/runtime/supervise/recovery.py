"""Repair shared memory after an actor has exited, and read results that outlive the actors.

    slab    slots that the actor was filling are freed, half-done transitions are completed, and slots that it had
            claimed are dropped as `consumer_died` or, if the channel has `reoffer`, offered again
    board   its pins are removed; blocks that it wrote and did not publish become void
    page    a half-written entry in the account of a message channel is completed

Only the supervisor calls this, and only after the exit is confirmed: a stopped process is killed first, because it
could continue and write into slots that have a new owner.
"""

from __future__ import annotations

import hashlib

from hive.runtime.memory.segments import REASONS
from hive.runtime.process.processes import SharedMemory
from hive.runtime.topology.plan import Plan

__all__ = ["Recovery"]


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
        """Drop all messages still in flight as `run_ended`, after all actors have exited."""
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
        """Return the sha256, in hex, of the latest version of the plan's digest board; "" if there is none."""
        if not self.plan.digest_segment:
            return ""
        board = self.views.board(self.plan.digest_segment)
        block = board.words.find(board.latest) if board.latest >= 0 else -1
        return hashlib.sha256(board.blocks[block][: self.plan.digest_bytes].data).hexdigest() if block >= 0 else ""
