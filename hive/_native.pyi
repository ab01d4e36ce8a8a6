"""hive._native, the C++ part: slots, boards, status pages, gradient reduction and codecs, optimizers, returns, rows.

The headers under native/include/hive say how each unit works; this file gives the types. Arrays of numeric
functions are C-contiguous and never converted: another dtype is a TypeError; another shape, a read-only or an
overlapping output is a ValueError; each names the argument. The GIL is released meanwhile.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SOURCES: str
"""The digest of the C++ files that it was built from (hive.native)."""

# Gradient reduction (accumulator.hpp). Blocks are float32 [P].

class Reduction:
    """What a pass over gradients found."""

    @property
    def norm(self) -> float:
        """Euclidean norm of the result; NaN or infinite if the result is not finite."""
    @property
    def finite(self) -> bool:
        """Whether the result holds no NaN and no infinity."""
    @property
    def bad_input(self) -> int:
        """The first gradient that holds a NaN or infinity, or -1."""
    @property
    def bad_index(self) -> int:
        """Its first bad element; the result's, where finite gradients overflowed; or -1."""

def norm_and_finite(block: NDArray[np.float32]) -> tuple[float, bool]:
    """The Euclidean norm of a block, and whether every element is finite."""

# Compressed gradients (codec.hpp). Gradients are float32 [P], 16-bit floats travel as uint16 [P]. Encoders return the
# relative error: the norm of what is missing over the norm of what was to be sent.

def encode_bf16(gradient: NDArray[np.float32], out: NDArray[np.uint16]) -> float:
    """Narrow a finite gradient to bfloat16."""

def encode_fp16(gradient: NDArray[np.float32], out: NDArray[np.uint16]) -> tuple[float, float]:
    """Narrow a finite gradient, times a power of two, to float16; (that scale, error)."""

def encode_top_k(
    gradient: NDArray[np.float32],
    residual: NDArray[np.float32],
    values: NDArray[np.float32],
    indices: NDArray[np.uint32],
) -> float:
    """Write the largest of gradient + residual to `values` and `indices` [k]; the rest stays in `residual` [P]."""

# Gradients of a model in one block (gather.hpp). Blocks are uint8 [bytes], aligned to 8 bytes.

class GradAccumulator:
    """Gathers and reduces gradients; `hive.gradients.GradAccumulator` is its face."""

    def __init__(self) -> None: ...
    def lay_out(self, types: Sequence[str], counts: Sequence[int]) -> None:
        """Say what the gradients are: `float32`, `float64`, `bfloat16` or `float16`, and their elements."""
    @property
    def offsets(self) -> list[int]:
        """Of the gradients in a block, in bytes."""
    @property
    def bytes(self) -> int:
        """The size of a block."""
    @property
    def sum_bytes(self) -> int:
        """The size of a block of running sums, of float32 and float64."""
    def gather(self, addresses: Sequence[int], block: NDArray[np.uint8]) -> int:
        """Copy the gradients into a block; the first that is not finite, or -1. Address 0 gives zeros."""
    def first_bad(self, addresses: Sequence[int]) -> int:
        """The first gradient that is not finite, or -1."""
    def add(self, addresses: Sequence[int], weight: float, sums: NDArray[np.uint8], onto: bool) -> None:
        """Add the weighted gradients to a block of running sums, or without `onto` begin it."""
    def reduce(
        self,
        blocks: Sequence[NDArray[np.uint8]],
        weights: Sequence[float],
        divisor: float,
        out: NDArray[np.uint8],
    ) -> Reduction:
        """Write the weighted sum of blocks, divided once, to `out`. `bad_index` counts gradients."""
    def finish(self, sums: NDArray[np.uint8], divisor: float, out: NDArray[np.uint8]) -> Reduction:
        """Write running sums, divided once, to `out`. `bad_index` counts gradients."""
    def lay_out_slots(self, elements: int, compression: str) -> None:
        """Say how gradients lie in slots, after `lay_out` of float32 fields; `compression` is `none`, `bf16`, ..."""
    def adopt(self, slot: Mapping[str, NDArray[Any]], samples: int, factor: float) -> None:
        """Take the gradient in a slot as a round, in place and unread. The slot is kept alive until `release`."""
    def reduce_adopted(self, out: NDArray[np.float32], mean: bool) -> Reduction:
        """Write the mean of the adopted rounds by samples, or the sum of samples * gradient, to `out`.

        Each is multiplied by its factor. A round of zero samples is not read; without samples the result is zeros.
        `bad_input` is the first round with a NaN, an infinity or an index beyond `out`; `bad_index` counts fields.
        """
    def release(self) -> None:
        """Let the adopted rounds go."""

# Optimizers (optimizers.hpp). Blocks are float32 [P]; an `_out` block may be its `_in` block.

def adam_step(
    parameters_in: NDArray[np.float32],
    parameters_out: NDArray[np.float32],
    gradient: NDArray[np.float32],
    exp_avg_in: NDArray[np.float32],
    exp_avg_out: NDArray[np.float32],
    exp_avg_sq_in: NDArray[np.float32],
    exp_avg_sq_out: NDArray[np.float32],
    *,
    step: int,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    gradient_scale: float,
) -> bool:
    """One step of torch.optim.Adam, or of AdamW if `decoupled`; `step` counts from 1.

    Returns whether all that it wrote is finite.
    """

def rmsprop_step(
    parameters_in: NDArray[np.float32],
    parameters_out: NDArray[np.float32],
    gradient: NDArray[np.float32],
    square_avg_in: NDArray[np.float32],
    square_avg_out: NDArray[np.float32],
    momentum_in: NDArray[np.float32] | None,
    momentum_out: NDArray[np.float32] | None,
    *,
    learning_rate: float,
    decay: float,
    epsilon: float,
    momentum: float,
    weight_decay: float,
    gradient_scale: float,
) -> bool:
    """One step of torch.optim.RMSprop, not centred; `decay` is torch's alpha. Both buffers or none.

    Returns whether all that it wrote is finite.
    """

def sgd_step(
    parameters_in: NDArray[np.float32],
    parameters_out: NDArray[np.float32],
    gradient: NDArray[np.float32],
    momentum_in: NDArray[np.float32] | None,
    momentum_out: NDArray[np.float32] | None,
    *,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
    gradient_scale: float,
) -> bool:
    """One step of torch.optim.SGD without dampening and Nesterov. Both buffers or none.

    Returns whether all that it wrote is finite.
    """

def polyak(
    target_in: NDArray[np.float32], source: NDArray[np.float32], target_out: NDArray[np.float32], rate: float
) -> None:
    """Write (1 - rate) * target + rate * source; a rate of 1 copies `source` exactly."""

# Returns (returns.hpp). Arrays are [T, B].

def gae(
    rewards: NDArray[np.float32],
    values: NDArray[np.float32],
    next_values: NDArray[np.float32],
    terminated: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    valid: NDArray[np.uint8],
    advantages: NDArray[np.float32],
    targets: NDArray[np.float32],
    *,
    discount: float,
    gae_lambda: float,
) -> None:
    """Write generalised advantage estimates (Schulman et al. 2016), and targets = advantages + values."""

def n_step_returns(
    rewards: NDArray[np.float32],
    values: NDArray[np.float32],
    next_values: NDArray[np.float32],
    terminated: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    valid: NDArray[np.uint8],
    advantages: NDArray[np.float32],
    targets: NDArray[np.float32],
    *,
    discount: float,
    n: int,
) -> None:
    """Write n-step returns (Sutton and Barto 2018, 7.1) to `targets`, and advantages = targets - values."""

def vtrace(
    rewards: NDArray[np.float32],
    values: NDArray[np.float32],
    next_values: NDArray[np.float32],
    log_ratios: NDArray[np.float32],
    terminated: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    valid: NDArray[np.uint8],
    advantages: NDArray[np.float32],
    targets: NDArray[np.float32],
    *,
    discount: float,
    gae_lambda: float,
    rho_clip: float,
    c_clip: float,
) -> None:
    """Write V-trace targets (Espeholt et al. 2018, equation 1), and the advantages of their policy gradient.

    `log_ratios`: the log probability of each action now, minus that when it was taken.
    """

# Rows (rows.hpp). These keep the GIL: a row is a matter of microseconds.

class Row:
    """All of a StepRow but its observations and finals; arrays are [B]."""

    def __init__(
        self,
        rewards: NDArray[np.float32],
        terminated: NDArray[np.uint8],
        truncated: NDArray[np.uint8],
        valid: NDArray[np.uint8],
        episode_returns: NDArray[np.float32],
        episode_lengths: NDArray[np.int32],
        final_index: NDArray[np.int32],
    ) -> None: ...

class Episodes:
    """The episodes that B environments are in; with a `limit` those of so many steps are truncated."""

    def __init__(self, envs: int, resets_in_next_step: bool, limit: int = 0) -> None: ...
    def reset(self) -> None:
        """All environments begin an episode; open ones are dropped."""
    def finish(self, rewards: Any, terminated: Any, truncated: Any, row: Row) -> tuple[list[int], list[int]] | None:
        """Write a row from what one step returned; which environments ended, and which of them truncated.

        None, the row then undefined and the episodes as before, where a reward is not finite or something is
        neither an array (rewards float32 or float64, flags bool) nor a tuple (plain numbers, objects with a truth).
        """

def columns(
    results: list[Any],
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]] | None:
    """The observations, rewards, terminated and truncated of single environments' results.

    None where a result is not a tuple of five.
    """

def store_observations(observations: Any, out: NDArray[Any]) -> bool:
    """Copy observations, one array or B in a list or tuple, to `out` [B, ...] of float32 or uint8.

    False, `out` then undefined, where they are not of float32 or float64 (or uint8, for uint8), have another
    shape, or hold a number that is not finite.
    """

# Slabs (slots.hpp). `memory` is writable, starts at a multiple of 64 bytes and stays alive with its slab.

class Slab:
    """The words of a slab: who holds which slot. Indices are -1 where there is none."""

    def __init__(self, memory: NDArray[np.uint8]) -> None: ...
    @staticmethod
    def control_bytes(slots: int) -> int:
        """Bytes that the words of so many slots take."""
    @staticmethod
    def format(memory: NDArray[np.uint8], slots: int, first: int = 0) -> None:
        """Lay out an empty slab whose first commit gets the sequence `first`."""
    @property
    def slots(self) -> int:
        """How many slots there are."""
    @property
    def produced(self) -> int:
        """Commits so far; the sequence of the next one."""
    def reserve(self, actor: int, incarnation: int, only: int = -1) -> int:
        """Producer: a free slot, now being filled; with `only` that one or none."""
    def commit(self, slot: int, actor: int, incarnation: int) -> int:
        """Producer: the slot is full; its sequence. RuntimeError when it is not the caller's."""
    def abandon(self, slot: int, actor: int, incarnation: int) -> None:
        """Producer: the slot is free again, uncounted."""
    def claim(self, actor: int, incarnation: int, sequence: int = -1) -> int:
        """Consumer: the full slot of this sequence, or the oldest, now claimed."""
    def first_left(self) -> int:
        """The first sequence that nobody has claimed: one that is there, or the next to come."""
    def retire(self, slot: int, actor: int, incarnation: int, reason: int = 0) -> None:
        """Consumer: the slot is free again, counted under `reason`."""
    def recover(self, actor: int, incarnation: int, reoffer: bool, reason: int) -> int:
        """Supervisor: put right what a dead owner held; how many claimed slots it held."""
    def drain(self, reason: int) -> int:
        """Supervisor, when nobody is left: retire everything in flight; how many slots."""
    def counts(self) -> tuple[int, list[int], int]:
        """(produced, [retired by reason], in flight)."""
    def sequence(self, slot: int) -> int:
        """The sequence of what was last committed in a slot."""
    def state(self, slot: int) -> tuple[int, int, int, int]:
        """(SlotState, actor, incarnation, sequence modulo 2^32)."""

# Boards (boards.hpp).

class Board:
    """The versions and pins of a board. Blocks are indices, -1 where there is none."""

    def __init__(self, memory: NDArray[np.uint8], commit: Board | None = None) -> None: ...
    @staticmethod
    def control_bytes(blocks: int, readers: int) -> int:
        """Bytes that the words of so many blocks and readers take."""
    @staticmethod
    def format(memory: NDArray[np.uint8], blocks: int, readers: int, keep: int) -> None:
        """Lay out an empty board. ValueError below readers + keep + 1 blocks."""
    @property
    def blocks(self) -> int:
        """How many blocks there are."""
    @property
    def readers(self) -> int:
        """How many readers there are."""
    @property
    def latest(self) -> int:
        """The newest published version, or -1."""
    def version(self, block: int) -> int:
        """What the block holds, or held before the writer took it; -1 for nothing."""
    def begin(self) -> int:
        """Writer: a block to write; the same again until it is sealed."""
    def seal(self, block: int, version: int) -> None:
        """Writer: the block holds `version`, which nobody sees before it is published."""
    def publish(self, version: int) -> None:
        """Writer: `version` is the latest."""
    def find(self, version: int) -> int:
        """Writer: the block that holds `version`; needs no pin."""
    def pin(self, reader: int, version: int = -1) -> int:
        """Reader: the block that holds `version`, or the latest, pinned."""
    def pinned(self, reader: int) -> bool:
        """Whether this reader holds a block."""
    def unpin(self, reader: int) -> None:
        """Reader, or the supervisor for a dead one: gives up the pin."""
    def recover_writer(self) -> None:
        """Supervisor: what a dead writer began or sealed and did not publish is gone."""

# Status pages (status.hpp), 4096 bytes each.

class Status:
    """All status pages of a run."""

    def __init__(self, memory: NDArray[np.uint8]) -> None: ...
    @property
    def pages(self) -> int:
        """How many pages there are."""
    def page(self, index: int) -> StatusPage:
        """One page, for the actor that owns it."""
    def notify(self, index: int) -> None:
        """Ring the notifier of a page: wakes its actor if it sleeps on it."""
    def mailed(self, index: int) -> None:
        """A message to its process is on its way: counts it, and rings."""
    def notify_all(self, indices: Sequence[int]) -> list[int]:
        """Notify these actors; returns those that called `set_waiting` since, which need a message instead."""
    def notify_one(self, indices: Sequence[int], channel: int, first: int) -> list[int]:
        """The same for the first of these, from position `first` on and around, that asks for `channel`, and for all
        that ask for every message of it; see `StatusPage.ask`."""
    def snapshot(self, index: int) -> dict[str, Any]:
        """A copy of a page; hive.runtime.status.read_status gives it types."""

class StatusPage:
    """One actor's own page; only that actor writes it."""

    state: int
    version: int
    lag: int
    @property
    def mail(self) -> int:
        """How many messages were sent to this actor's process, whoever heard them."""
    def __init__(self, pages: Status, index: int) -> None: ...
    def open(self, name: str, pid: int, incarnation: int) -> None:
        """Take the page over, for a new incarnation as well: times and counters go on."""
    def phase(self, name: str, kind: int) -> int:
        """The index of a phase, made at first use. ValueError when there is no room or the name too long."""
    def counter(self, name: str) -> int:
        """The index of a counter, likewise."""
    def enter(self, phase: int) -> None:
        """Begin a phase; the time since the last `enter` goes to the one before."""
    def pulse(self) -> None:
        """The event loop of its process runs now."""
    def set(self, counter: int, value: float) -> None:
        """Set a counter."""
    def add(self, counter: int, delta: float) -> None:
        """Add to a counter."""
    def add_both(self, first: int, by: float, second: int, by_second: float) -> None:
        """Add to two counters as one: of an actor that is killed within, `complete` makes both or neither."""
    def complete(self) -> None:
        """Finish what the page's actor was at when it was killed. `open` does so too."""
    def get(self, counter: int) -> float:
        """The value of a counter."""
    def seen(self) -> int:
        """The notifier's word, to be read before one looks at what one waits for."""
    def notify(self) -> None:
        """Wake whoever waits on this page."""
    def set_waiting(self) -> None:
        """From now on the actor waits for a message; called before it looks at what it waits for."""
    def ask(self, channel: int, every: bool = False) -> None:
        """From now on any message of `channel`, numbered from 1, wakes it or another who asks, or it at every one.

        Called before it looks for one. Channel 0: every message of every channel.
        """
    def unask(self) -> bool:
        """It asks no more; whether it was picked since it asked last: then another who asks is to be told instead."""
    def wait(self, seen: int, limit_ns: int) -> bool:
        """Sleep until the notifier rings after `seen`, at most `limit_ns`; whether it rang. May return early."""
