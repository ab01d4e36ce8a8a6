"""Rounds of updates in one native call, where a gradient worker and the learner share a process.

    worker    offers its next gradients: a description of them, or None         waits for the answer
    learner   waits for an offer; makes updates of it by `_native.Round`, in calls of at most CALL_S, until the worker
              has to make a gradient itself; answers how many it has made

Between two calls the learner does what follows a turn, and the event loop handles requests. An update within a call
does what a turn does, in the same order, on the same memory (native/include/hive/round.hpp). So versions, accounts and
what a kill costs are those of updates one by one, and so are the bytes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from hive import _native
from hive.experience import Purpose, stream_seed
from hive.learning.described import UNDESCRIBED, Described, describes
from hive.networks.rows.normalization import MOMENTS_OF
from hive.networks.weights.derived import noise_words
from hive.records.summary import FEW_UPDATES, NATIVE, ROUNDS
from hive.runtime import Layout, SlotInlet, Status
from hive.runtime.carriers.boards import BoardWriter
from hive.runtime.memory.segments import Arrays, Bytes
from hive.training.blueprint import Blueprint
from hive.training.update.learner import COLLECTED, Count, Learner, LearnerStep
from hive.training.update.replay_memory import EPSILON, ReplayMemory

CALL_S = 0.02  # of one call: the event loop must run within 50 ms for `hive set`, `stack`, a pause and a stop
LEAST_PACE = 64  # updates of the first call; a later one may make twice as many as the call before it, or these

COUNTED = (
    *(Count.updates, Count.first_ns, Count.last_ns, Count.largest_leaf, Count.saturated),
    *(Count.adopted, Count.reduced, Count.applied, Count.target_updates),
)
"""The counters that an update changes."""

NO_WORDS = np.zeros(0, np.int64)

# From a turn to its gradient and the later ones; or why the worker makes it, one of ROUNDS; None: no round has begun.
Describe = Callable[[int], Described | str | None]


class Worker(Protocol):
    """Protocol of the actors that offer gradients."""

    rounds: NativeRounds | None
    gradients: Any
    status: Status


def native_obstacle(blueprint: Blueprint) -> str:
    """Return which key of this config keeps its rounds from native calls, one of ROUNDS; NATIVE if none does.

    Whether the algorithm and its network are native is seen at the first gradient.
    """
    config, gradients = blueprint.config, blueprint.config.gradients
    algorithm: Any = blueprint.algorithm()
    overridden = getattr(algorithm, "obstacle", None)
    obstacles = (
        (overridden or "", overridden is not None),
        ("gradients.native_rounds = false", not gradients.native_rounds),
        ("gradients.workers: the gradient workers are other processes", gradients.workers > 0),
        ("gradients.max_lag", gradients.max_lag > 0 or gradients.communication != "synchronous"),
        ("gradients.bootstrap_rounds", gradients.bootstrap_rounds > 1),
        ("gradients.compression", gradients.compression != "none"),
        ("gradients.decentralized", gradients.decentralized),
        ("gradients.device", blueprint.device is not None),
        ("run.update_hook", config.run.update_hook is not None),
        (UNDESCRIBED, not describes(algorithm)),
        (FEW_UPDATES, not blueprint.replays and blueprint.gradients_per_round <= 2),
    )
    return next((text for text, is_one in obstacles if is_one), NATIVE)


class Offer(NamedTuple):
    """The next `most` gradients of a worker. describe: returns them, from the gradient of a turn on."""

    describe: Describe
    most: int


class NativeUpdates(NamedTuple):
    """What a call has made: the outcome of each update, and its statistics, float64 [updates, statistics]."""

    steps: list[LearnerStep]
    statistics: NDArray[np.float64]


class CollectedParts:
    """What of a ledger every update copies to an optimizer state, and to the weights."""

    def __init__(self, learner: Learner, weights: BoardWriter) -> None:
        layout = learner.layout
        self.learner = learner
        self.weights = weights
        self.fields = [(layout.offsets[name], name) for name in ("returns", "infos") if name in layout.offsets]
        self.counters = layout.offsets["counters"]
        self._block = np.zeros(learner.network.state.weight_bytes, np.uint8)  # only its buffers are written

    def counts(self, ledger: Arrays) -> list[tuple[int, NDArray[Any]]]:
        """Return the parts with their places in an optimizer state: what collectors have made."""
        counters = ledger["counters"]
        counts = [(self.counters + 8 * which, counters[which : which + 1]) for which in COLLECTED]
        return [*counts, *((place, ledger[name]) for place, name in self.fields)]

    def buffers(self, turn: int, ledger: Arrays) -> NDArray[np.uint8] | None:
        """Return the buffers of the versions after `turn`, whose statistics are those of the ledger; None without."""
        if not any(name in ledger for name in MOMENTS_OF):
            return None
        buffers = slice(self.learner.flat.parameter_bytes, len(self._block))
        self._block[buffers] = self.weights.read(turn)[buffers]
        self.learner.replace_statistics(ledger, self._block)
        return self._block[buffers]


class NativeRounds:
    """The meeting of a gradient worker and the learner."""

    def __init__(
        self,
        memory: dict[str, Any],
        worker: Worker,
        learner: Learner,
        seed: int,
        *,
        collected: CollectedParts | None = None,
    ) -> None:
        """seed: that of the run."""
        self._round = _native.Round(memory)
        self._worker = worker
        self._learner = learner
        self._seed = seed
        self._collected = collected
        self._offer: Offer | None = None
        self._generator = torch.Generator()
        self._made = 0  # of the offer
        self.pace = LEAST_PACE
        """The most updates that the next call makes. It has room for what they report."""
        self._offered = asyncio.Event()
        self._answer: asyncio.Future[int] | None = None
        self.obstacle = NATIVE
        """Why the worker has made a gradient itself, one of ROUNDS."""

    async def offer(self, describe: Describe, most: int = sys.maxsize) -> int:
        """Offer gradients, and return how many of them have been made; 0: the worker makes the next one."""
        self._offer, self._made = Offer(describe, most), 0
        self._answer = asyncio.get_running_loop().create_future()
        self._offered.set()
        return await self._answer

    @property
    def produced(self) -> int:
        """The gradients that the worker has committed. Its killed predecessor may have left one, without an offer."""
        return int(self._worker.gradients.produced)

    @property
    def has_offer(self) -> bool:
        """Whether the worker waits for an answer."""
        return self._offered.is_set()

    async def offered(self) -> None:
        """Wait until the worker has offered its next gradients."""
        await self._offered.wait()

    def make(
        self,
        turn: int,
        most: int,
        env_steps: int,
        times: tuple[int, int],
        collected: Arrays | None = None,
        following: dict[str, Any] | None = None,
    ) -> NativeUpdates | None:
        """Make up to `most` updates of the offer, from version `turn` on; None if the next one cannot be made here.

        env_steps: those of the learning rate. times: the counter first_ns, and the time now. collected: with a replay
        memory the ledger. following: what the call needs to go on with further rounds. An offer of which nothing is
        left is answered.
        """
        assert self._offer is not None
        describe, offered = self._offer
        wanted = min(most, offered - self._made, self.pace)
        described = describe(turn) if wanted > 0 else None
        updates = None
        if isinstance(described, Described):
            which, rate = [described.kind_of(turn + n) for n in range(wanted)], self._learner.learning_rate(env_steps)
            parts = self._collected if collected else None
            keys = {
                "turn": turn,
                "which": which,
                "noise_words": self._noise_words(turn, [described.kinds[kind][0].noise_words for kind in which]),
                "first_ns": times[0],
                "now_ns": times[1],
                "limit_s": CALL_S,
                "collected": parts.counts(collected) if parts and collected else [],
                "buffers": parts.buffers(turn, collected) if parts and collected else None,
                "following": following,
                **self._learner.described(rate),
            }
            updates = self._call(described, keys, rate)
        elif described is not None:
            self.obstacle = described if described in ROUNDS else UNDESCRIBED  # a user's algorithm may say its own
        if updates is not None:
            self._made += len(updates.steps)
            self.pace = max(LEAST_PACE, 2 * len(updates.steps))
            if self._made == offered:
                self.answer()
        return updates

    def answer(self) -> int:
        """Tell the worker how many gradients of its offer have been made, and return it. With 0 it makes the next."""
        assert self._answer is not None
        self._offered.clear()
        if not self._answer.done():  # it is cancelled when the run ends
            self._answer.set_result(self._made)
        return self._made

    def _call(self, described: Described, keys: dict[str, Any], rate: float) -> NativeUpdates | None:
        parts = described.batches
        taken = parts.take(len(keys["which"])) if parts is not None else []
        batches: list[Any] = [None if rows is None else rows.numpy() for rows in taken]
        if parts is not None:
            empty = next((n for n, rows in enumerate(batches) if rows is not None and not len(rows)), len(batches))
            batches = batches[:empty]  # a gradient of zero samples is the worker's
            if not batches:
                parts.put_back(taken)
                return None
            keys |= {name: keys[name][: len(batches)] for name in ("which", "noise_words")}
        made, _, norms, statistics = self._round.run({**keys, "batches": batches, "kinds": described.kinds})
        if parts is not None:
            parts.put_back(taken[made:])
        steps = [LearnerStep(samples > 0, samples, norm, rate, "", -1) for norm, samples in norms]
        return NativeUpdates(steps, statistics[:made]) if made else None

    def _noise_words(self, turn: int, counts: Sequence[int]) -> list[NDArray[np.int64]]:
        """Return the words that key the noise of noisy layers, from gradient `turn` on. counts: of each gradient.

        Torch's generator draws them, seeded as by hive.training.gradient.devices.seed_forward.
        """
        if not any(counts):
            return [NO_WORDS] * len(counts)
        seeds = [stream_seed(self._seed, Purpose.training_forward, 0, turn + n) for n in range(len(counts))]
        return [
            noise_words(n, self._generator.manual_seed(s)) if n else NO_WORDS
            for n, s in zip(counts, seeds, strict=True)
        ]


def round_memory(
    learner: Learner,
    learner_status: Status,
    weights: BoardWriter,
    optimizer_state: BoardWriter,
    inlet: SlotInlet[Any],
    worker: Worker,
    seed: int,
    replay: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return what `_native.Round` needs to know of the memory of a learner and of the worker of its process."""
    flat, state, outlet = learner.flat, learner.network.state, worker.gradients
    slots = outlet.slots.view.slots
    fields, places = slots.layout.fields, slots.layout.offsets
    names = ("header", "moments", "norm", "gradient", "mask", "statistics")
    errors = fields["errors"][1][0] if "errors" in fields else 0
    sizes = {"parameters": fields["mask"][1][0], "statistics_count": fields["statistics"][1][0], "errors": errors}
    groups = flat.groups
    return {
        "weights": weights.view.words,
        "weight_blocks": blocks_of(weights.view.blocks),
        "optimizer_state": optimizer_state.view.words,
        "optimizer_blocks": blocks_of(optimizer_state.view.blocks),
        "gradients": outlet.slots.view.words,
        "slots": blocks_of([slots.block(number) for number in range(len(slots))]),
        "slot": {**{name: places[name] for name in names}, "errors_at": places.get("errors", 0), **sizes},
        "weight": {
            "parameter_elements": flat.parameter_elements,
            "weight_bytes": state.weight_bytes,
            "target": state.bytes - state.weight_bytes if state.has_target else 0,
            "frozen": [_range(elements) for elements in state.frozen],
        },
        "state": {
            **{name: learner.layout.offsets[name] for name in ("counters", "applied", "moments")},
            "bytes": learner.layout.bytes,
            "moment_blocks": learner.network.optimizer.moment_blocks,
            "group_updates": learner.layout.offsets.get("group_updates", 0),
        },
        "counts": {count.name: int(count) for count in COUNTED},
        "groups": [(_range(group.elements), _range(group.parameters)) for group in groups]
        if len(groups) > 1
        else [((0, flat.parameter_elements), (0, sizes["parameters"]))],
        "actors": {
            "worker": outlet.slots.me,
            "learner": inlet.lines.me,
            "worker_page": worker.status.page,
            "learner_page": learner_status.page,
            "gather_phase": worker.status.phase("gather" if replay else "gradient"),
            "gradient_phase": worker.status.phase("gradient"),
            "worker_runtime": worker.status.runtime,
            "update_phase": learner.phase,
            "learner_runtime": learner_status.runtime,
        },
        "seed": seed,
        "noise_purpose": int(Purpose.training_forward),
        "replay": replay,
    }


def replay_memory(replay: ReplayMemory, plans: BoardWriter, layout: Layout, per_batch: int) -> dict[str, Any]:
    """Return what `_native.Round` needs to know of a replay memory and its plans, of this layout.

    per_batch: gradients of each plan.
    """
    return {
        "plans": plans.view.words,
        "plan_blocks": blocks_of(plans.view.blocks),
        **{name: layout.offsets[name] for name in ("header", "positions", "leaves")},
        "batch": replay.size.batch,
        "per_batch": per_batch,
        "tree": replay.tree.native,
        "alpha": replay.alpha,
        "epsilon": EPSILON,
        "first_leaf": replay.first_leaf,
        "draws_purpose": int(Purpose.replay),
    }


def blocks_of(blocks: Sequence[Bytes]) -> NDArray[np.uint8]:
    """Return at least two blocks that lie at equal distances as one array, uint8 [blocks, bytes]."""
    first, second = (block.__array_interface__["data"][0] for block in blocks[:2])
    return np.lib.stride_tricks.as_strided(blocks[0], (len(blocks), len(blocks[0])), (second - first, 1))


def _range(elements: slice) -> tuple[int, int]:
    return elements.start, elements.stop - elements.start
