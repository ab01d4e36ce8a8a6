"""What `_native.Exchange` needs to know: the memory that a learner with a replay memory shares with its collectors.

An exchange publishes weights and appends rollouts within a native call of updates (native/include/hive/exchange.hpp),
in the order of hive.training.update.replay_learner. Each collector must have a process of its own, which native code
can wake.
"""

from __future__ import annotations

from typing import Any

from hive import _native
from hive.runtime import Layout, Publication, SlotInlet, Status
from hive.runtime.carriers.slots import SlotReceiver
from hive.training.update.learner import RETURNS_KEPT, Count
from hive.training.update.native_rounds import blocks_of

COUNTED = (Count.rollouts, Count.env_steps, Count.episodes)
ROLLOUT = (
    *("header", "observations", "actions", "final_observations", "rewards", "episode_returns", "errors", "infos"),
    *("terminated", "truncated", "valid", "final_index", "episode_lengths"),
)
LEDGER = ("counters", "written", "rollouts", "returns", "infos")


def exchange_of(
    rollouts: SlotInlet[Any],
    behaviour: Publication[Any],
    behaviour_bytes: int,
    ledger: Publication[Any],
    ledger_layout: Layout,
    replay: dict[str, Any],
    status: Status,
    phases: tuple[int, int],
) -> _native.Exchange | None:
    """Return the exchange of these channels; None while a collector has not joined, or where one shares its process.

    replay: ReplayMemory.writer_keys. phases: of the learner while it waits for rollouts, and while it appends them.
    """
    lines: SlotReceiver = rollouts.lines
    producers = lines.end.channel.producers
    pages = lines.end.host.pages_of(producers)
    if pages is None or set(behaviour.board.readers) != set(producers):
        return None
    slabs = [lines.views[producer] for producer in lines.producers]
    slots = [slab.slots for slab in slabs]
    offsets = slots[0].layout.offsets
    infos = ledger_layout.fields["infos"][1][1] if "infos" in ledger_layout.fields else 0
    return _native.Exchange(
        {
            "lines": [
                (slab.words, blocks_of([own.block(n) for n in range(len(own))]), page)
                for slab, own, page in zip(slabs, slots, pages, strict=True)
            ],
            "rollout": {name: offsets.get(name, 0) for name in ROLLOUT},
            "ledger": ledger.board.view.words,
            "ledger_blocks": blocks_of(ledger.board.view.blocks),
            "ledger_fields": {
                **{name: ledger_layout.offsets.get(name, 0) for name in LEDGER},
                "bytes": ledger_layout.bytes,
                "kept": RETURNS_KEPT,
                "info_count": infos,
            },
            "behaviour": behaviour.board.view.words,
            "behaviour_blocks": blocks_of(behaviour.board.view.blocks),
            "behaviour_bytes": behaviour_bytes,
            "counts": {count.name: int(count) for count in COUNTED},
            "replay": replay,
            "learner": lines.me,
            "page": status.page,
            "wait_phase": phases[0],
            "replay_phase": phases[1],
            "runtime": status.runtime,
        }
    )
