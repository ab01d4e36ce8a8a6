"""hive._native, the C++ part: slots, boards, status pages, gradient reduction and codecs, optimizers, returns, rows,
priorities, compiled environments.

The headers under native/include/hive document each unit; this file declares the types. Numeric functions take
C-contiguous arrays and never convert them. Another dtype raises TypeError; another shape, a read-only output or an
overlapping output raises ValueError; both name the argument. These functions release the GIL.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SOURCES: str
"""The digest of the C++ files from which the module was built (hive.native)."""

# Gradient reduction (accumulator.hpp). Blocks are float32 [P].

class Reduction:
    """The findings of a pass over gradients."""

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
        """The first bad element of that gradient, or of the result if finite gradients overflowed; or -1."""

def norm_and_finite(block: NDArray[np.float32]) -> tuple[float, bool]:
    """Return the Euclidean norm of a block, and whether every element is finite."""

# Compressed gradients (codec.hpp). Gradients are float32 [P], 16-bit floats are stored as uint16 [P]. Encoders return
# the relative error: the norm of (gradient - decoded gradient) over the norm of the gradient.

def encode_bf16(gradient: NDArray[np.float32], out: NDArray[np.uint16]) -> float:
    """Narrow a finite gradient to bfloat16; return the relative error."""

def encode_fp16(gradient: NDArray[np.float32], out: NDArray[np.uint16]) -> tuple[float, float]:
    """Narrow a finite gradient, times a power of two, to float16; return (that scale, relative error)."""

def encode_top_k(
    gradient: NDArray[np.float32],
    residual: NDArray[np.float32],
    values: NDArray[np.float32],
    indices: NDArray[np.uint32],
) -> float:
    """Write the largest of gradient + residual to `values` and `indices` [k]; the rest stays in `residual` [P]."""

# Gradients of a model in one block (gather.hpp). Blocks are uint8 [bytes], aligned to 8 bytes.

class GradAccumulator:
    """Gathers and reduces gradients; the C++ part of the accumulators of a run and of hive.compat.rlpack."""

    def __init__(self) -> None: ...
    def lay_out(self, types: Sequence[str], counts: Sequence[int]) -> None:
        """Declare each gradient's type (`float32`, `float64`, `bfloat16` or `float16`) and number of elements."""
    @property
    def offsets(self) -> list[int]:
        """The byte offset of each gradient in a block."""
    @property
    def bytes(self) -> int:
        """The size of a block in bytes."""
    @property
    def sum_bytes(self) -> int:
        """The size in bytes of a block of running sums, which are float32 and float64."""
    def gather(self, addresses: Sequence[int], block: NDArray[np.uint8]) -> int:
        """Copy the gradients into a block; return the first that is not finite, or -1. Address 0 gives zeros."""
    def first_bad(self, addresses: Sequence[int]) -> int:
        """Return the first gradient that is not finite, or -1."""
    def add(self, addresses: Sequence[int], weight: float, sums: NDArray[np.uint8], onto: bool) -> None:
        """Add the weighted gradients to a block of running sums; without `onto` overwrite it."""
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
        """Declare the encoding of gradients in slots, after `lay_out` of float32 fields.

        `compression` is `none`, `bf16`, `fp16` or `top-k`.
        """
    def adopt(self, slot: Mapping[str, NDArray[Any]], samples: int, factor: float) -> None:
        """Add the gradient in a slot as a round, without reading or copying it. `release` frees the slot."""
    def reduce_adopted(self, out: NDArray[np.float32]) -> Reduction:
        """Write the mean of the adopted rounds, weighted by samples, to `out`.

        Each round is multiplied by its factor. A round of zero samples is not read; without samples the result is
        zeros. `bad_input` is the first round with a NaN, an infinity or an index beyond `out`; `bad_index` counts
        fields.
        """
    def release(self) -> None:
        """Release the adopted rounds."""

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
    rectified: bool,
    gradient_scale: float,
) -> bool:
    """Make one step of torch.optim.Adam, of AdamW if `decoupled`, of RAdam if `rectified`; `step` counts from 1.

    Kingma and Ba 2015; Loshchilov and Hutter 2019; Liu et al. 2020. Returns whether all outputs are finite.
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
    """Make one step of torch.optim.RMSprop, not centred; `decay` is torch's alpha. Pass both buffers or neither.

    Tieleman and Hinton 2012. Returns whether all outputs are finite.
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
    """Make one step of torch.optim.SGD without dampening and Nesterov. Pass both buffers or neither.

    Returns whether all outputs are finite.
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

    `log_ratios`: the log probability of each action under the current policy, minus that under the behaviour policy.
    """

def value_fit(
    values: NDArray[np.float32], targets: NDArray[np.float32], weights: NDArray[np.float32]
) -> tuple[float, float]:
    """Return the explained variance of the targets and their root mean square. Arrays [M]; weights have the sum 1.

    The explained variance, 1 - Var(targets - values) / Var(targets), is at least -1, and NaN if all targets are equal.
    Rows of weight 0 are not read. This keeps the GIL, because it takes microseconds.
    """

# Rows (rows.hpp). These keep the GIL, because a row takes microseconds.

class Row:
    """The arrays of a StepRow, [B] each; observations and finals are those that compiled environments write."""

    def __init__(
        self,
        rewards: NDArray[np.float32],
        terminated: NDArray[np.uint8],
        truncated: NDArray[np.uint8],
        valid: NDArray[np.uint8],
        episode_returns: NDArray[np.float32],
        episode_lengths: NDArray[np.int32],
        final_index: NDArray[np.int32],
        observations: NDArray[Any] | None = None,
        finals: NDArray[Any] | None = None,
    ) -> None: ...

class Episodes:
    """The current episodes of B environments. With a `limit`, episodes are truncated after `limit` steps."""

    def __init__(self, envs: int, resets_in_next_step: bool, limit: int = 0) -> None: ...
    def reset(self) -> None:
        """Start an episode in every environment and discard the current ones."""
    def finish(self, rewards: Any, terminated: Any, truncated: Any, row: Row) -> tuple[list[int], list[int]] | None:
        """Write a row from the results of one step; return (environments that ended, those of them truncated).

        Returns None, with the row undefined and the episodes unchanged, if a reward is not finite, or an argument is
        neither an array (rewards float32 or float64, flags bool) nor a tuple (plain numbers, flags of any type).
        """

def columns(
    results: list[Any],
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]] | None:
    """Return tuples of the observations, rewards, terminated and truncated of single environments' results.

    None if a result is not a tuple of five.
    """

def store_choices(values: Any, first: int, out: NDArray[Any]) -> bool:
    """Write float32 [B, n] with 1 for each of B integers, counted from `first`. False for anything else."""

def store_observations(observations: Any, out: NDArray[Any]) -> bool:
    """Copy observations, one array or B in a list or tuple, to `out` [B, ...] of float32 or uint8.

    Returns False, with `out` undefined, if they are not float32 or float64 (for uint8: not uint8), have another
    shape, or hold a number that is not finite.
    """

# Priorities (priorities.hpp, priority_tree.hpp). Arrays are [n]; hive.experience describes them.

class PriorityTree:
    """A sum tree over leaves uint32 [N] in the caller's memory, N at most 2^32. One thread at a time may use it."""

    def __init__(self, leaves: NDArray[np.uint32]) -> None: ...
    def __len__(self) -> int: ...
    @property
    def total(self) -> int:
        """The sum of all leaves."""
    @property
    def sums(self) -> NDArray[np.uint64]:
        """The sums of all levels, lowest first, each padded to a multiple of 8: a read-only view."""
    def rebuild(self) -> None:
        """Compute all sums from the leaves."""
    def write(self, positions: NDArray[np.int64], values: NDArray[np.uint32]) -> None:
        """Set leaves[positions[i]] = values[i] in order. An error changes nothing."""
    def fill(self, first: int, count: int, value: int) -> None:
        """Set `count` leaves from `first` on to `value`."""
    def draw(self, words: NDArray[np.uint64], positions: NDArray[np.int64], leaves: NDArray[np.uint32]) -> bool:
        """Draw one leaf for each word, in ascending order; False, without draws, if the total is 0.

        Raises RuntimeError if it finds that the leaves do not fit the sums.
        """

def priority_leaves(priorities: NDArray[np.float32], alpha: float, leaves: NDArray[np.uint32]) -> int:
    """Write round(priority^alpha * 2^20) in [1, 2^32 - 1]; return the number of those above the limit."""

def importance_weights(leaves: NDArray[np.uint32], least: int, beta: float, weights: NDArray[np.float32]) -> None:
    """Write (least / leaf)^beta."""

# Slabs (slots.hpp). `memory` is writable, starts at a multiple of 64 bytes and stays alive with its slab.

class Slab:
    """The slot words of a slab, which record the actor that holds each slot. A slot is an index, or -1 for none.

    `commit`, `abandon` and `retire` raise RuntimeError unless the caller holds the slot.
    """

    def __init__(self, memory: NDArray[np.uint8]) -> None: ...
    @staticmethod
    def control_bytes(slots: int) -> int:
        """Return the size in bytes of the words of `slots` slots."""
    @staticmethod
    def format(memory: NDArray[np.uint8], slots: int, first: int = 0) -> None:
        """Write the header of an empty slab, whose first commit gets the sequence `first`."""
    @property
    def slots(self) -> int:
        """The number of slots."""
    @property
    def produced(self) -> int:
        """The number of commits, which is the sequence of the next one."""
    def reserve(self, actor: int, incarnation: int, only: int = -1) -> int:
        """Producer: reserve a free slot for filling; with `only` that slot or none."""
    def commit(self, slot: int, actor: int, incarnation: int) -> int:
        """Producer: mark a reserved slot as full; return its sequence."""
    def abandon(self, slot: int, actor: int, incarnation: int) -> None:
        """Producer: free a reserved slot without counting it."""
    def claim(self, actor: int, incarnation: int, sequence: int = -1) -> int:
        """Consumer: claim the full slot of this sequence, by default the oldest."""
    def first_left(self) -> int:
        """Return the first unclaimed sequence: of a full slot, or else of the next commit."""
    def retire(self, slot: int, actor: int, incarnation: int, reason: int = 0) -> None:
        """Consumer: free a claimed slot and count it under `reason`."""
    def recover(self, actor: int, incarnation: int, reoffer: bool, reason: int) -> int:
        """Supervisor: reclaim the slots of an owner that has exited; return the number of its claimed slots."""
    def withdraw(self, reason: int, sequence: int) -> int:
        """Supervisor, after the exit of a producer that held the contents itself: retire the full slots from `sequence`
        on; return their number. The next commits repeat the sequences at the end that were retired.
        """
    def maker(self, slot: int) -> int:
        """Return the incarnation, modulo 64, of the producer that reserved the slot."""
    def drain(self, reason: int) -> int:
        """Supervisor, after all actors have exited: retire every slot in flight; return their number."""
    def counts(self) -> tuple[int, list[int], int]:
        """Return (produced, [retired by reason], in flight)."""
    def sequence(self, slot: int) -> int:
        """Return the sequence of the last commit of a slot."""
    def state(self, slot: int) -> tuple[int, int, int, int]:
        """Return (SlotState, actor, incarnation, sequence modulo 2^32) of a slot."""

# Boards (boards.hpp).

class Board:
    """The versions and pins of a board. A block is an index, or -1 for none."""

    def __init__(self, memory: NDArray[np.uint8], commit: Board | None = None) -> None: ...
    @staticmethod
    def control_bytes(blocks: int, readers: int) -> int:
        """Return the size in bytes of the words of `blocks` blocks and `readers` readers."""
    @staticmethod
    def format(memory: NDArray[np.uint8], blocks: int, readers: int, keep: int) -> None:
        """Write the header of an empty board. Raises ValueError below readers + keep + 1 blocks."""
    @property
    def blocks(self) -> int:
        """The number of blocks."""
    @property
    def readers(self) -> int:
        """The number of readers."""
    @property
    def latest(self) -> int:
        """The newest published version, or -1."""
    def version(self, block: int) -> int:
        """Return the version in a block, or the one before it if the writer has taken the block; -1 for none."""
    def begin(self) -> int:
        """Writer: take a block to write; returns the same block until it is sealed."""
    def seal(self, block: int, version: int) -> None:
        """Writer: mark the block as `version`, which readers cannot pin before it is published."""
    def publish(self, version: int) -> None:
        """Writer: make `version` the latest."""
    def find(self, version: int) -> int:
        """Writer: return the block that holds `version`, without a pin."""
    def pin(self, reader: int, version: int = -1) -> int:
        """Reader: pin the block that holds `version`, by default the latest, and return it."""
    def pinned(self, reader: int) -> bool:
        """Whether this reader has pinned a block."""
    def unpin(self, reader: int) -> None:
        """Reader, or the supervisor after its exit: release the pin."""
    def recover_writer(self) -> None:
        """Supervisor, after the writer's exit: remove blocks that it began, and versions that it did not publish."""

# Status pages (status.hpp), 4096 bytes each.

class Status:
    """All status pages of a run."""

    def __init__(self, memory: NDArray[np.uint8]) -> None: ...
    @property
    def pages(self) -> int:
        """The number of pages."""
    def page(self, index: int) -> StatusPage:
        """Return a page for the actor that owns it."""
    def notify(self, index: int) -> None:
        """Wake the actor that sleeps on the notifier of this page, if it does."""
    def mailed(self, index: int) -> None:
        """Count a message that was sent to the actor's process, and notify the actor."""
    def notify_all(self, indices: Sequence[int]) -> list[int]:
        """Notify these actors; return those that called `set_waiting` since, which need a message instead."""
    def notify_one(self, indices: Sequence[int], channel: int, first: int) -> list[int]:
        """Notify one of these actors, and return those that need a message instead.

        It is the next one from position `first`, in rotation, that requested `channel`. Actors that requested every
        message of the channel are notified as well; see `StatusPage.request_wake`.
        """
    def snapshot(self, index: int) -> dict[str, Any]:
        """Return a copy of a page; hive.runtime.memory.status.read_status types it."""

class StatusPage:
    """The page of one actor, which alone writes it."""

    state: int
    version: int
    lag: int
    @property
    def mail(self) -> int:
        """The number of messages sent to the actor's process, in all its incarnations."""
    @property
    def progress(self) -> int:
        """The number of phase changes, in all incarnations."""
    def __init__(self, pages: Status, index: int) -> None: ...
    def open(self, name: str, pid: int, incarnation: int) -> None:
        """Take over the page for an incarnation. Times and counters of earlier incarnations remain."""
    def phase(self, name: str, kind: int) -> int:
        """Return the index of a phase, added at first use. Raises ValueError for a full page or a long name."""
    def counter(self, name: str) -> int:
        """Return the index of a counter, likewise."""
    def enter(self, phase: int) -> None:
        """Begin a phase; the time since the last `enter` is added to the previous one."""
    def pulse(self) -> None:
        """Record that the event loop of the process runs."""
    def set(self, counter: int, value: float) -> None:
        """Set a counter."""
    def add(self, counter: int, delta: float) -> None:
        """Add to a counter."""
    def add_both(self, first: int, by: float, second: int, by_second: float) -> None:
        """Add to two counters. If the actor is killed within the call, `complete` leaves both changed or neither."""
    def complete(self) -> None:
        """Finish an `add_both` within which the actor was killed. `open` does so, too."""
    def get(self, counter: int) -> float:
        """Return the value of a counter."""
    def seen(self) -> int:
        """Return the notifier's word; read it before checking the condition of a wait."""
    def notify(self) -> None:
        """Wake all threads that wait on this page."""
    def set_waiting(self) -> None:
        """Announce that the actor waits for a Notify message; call it before checking the condition of the wait."""
    def request_wake(self, channel: int, every: bool = False) -> None:
        """Request to be woken for a message of `channel`, numbered from 1; call it before checking for one.

        Each message wakes one of the actors that requested it, and all that requested it with `every`. Channel 0 with
        `every` requests every message of all channels.
        """
    def withdraw_wake(self) -> bool:
        """Withdraw the request; return whether the actor was picked since. It must then notify another one instead."""
    def wait(self, seen: int, limit_ns: int) -> bool:
        """Sleep until the notifier is notified after `seen`, at most `limit_ns` ns; return whether it was.

        May return early.
        """

# Replay memories (replay.hpp). Arrays are [S, R, B] and, as bytes, uint8 [S, R, B, bytes].

class ReplayRows:
    """Gathers batches of transitions; the C++ part of `hive.experience.Replay`. It keeps the arrays alive."""

    def __init__(
        self,
        observations: NDArray[np.uint8],
        finals: NDArray[np.uint8],
        actions: NDArray[np.uint8],
        rewards: NDArray[np.float32],
        terminated: NDArray[np.uint8],
        truncated: NDArray[np.uint8],
        valid: NDArray[np.uint8],
    ) -> None: ...
    @property
    def size(self) -> int:
        """S * R * B, the number of positions."""
    def gather(
        self,
        positions: NDArray[np.int64],
        n_step: int,
        discount: float,
        observations: NDArray[np.uint8],
        next_observations: NDArray[np.uint8],
        actions: NDArray[np.uint8],
        returns: NDArray[np.float32],
        discounts: NDArray[np.float32],
        shift: NDArray[np.float32],
        scale: NDArray[np.float32],
        reward_scale: float,
        limit: float,
    ) -> None:
        """Write the transitions that begin at `positions` [N]: stacks uint8 [N, k, bytes], actions uint8 [N, bytes].

        The first numbers of each observation are normalised by `shift` and `scale`, float32 [n], n = 0: as they are,
        and rewards by `reward_scale`, 0: as they are; both clipped to +-limit.
        """

def dense_instructions() -> str: ...
def set_threads(count: int, spin_us: int = 20) -> None: ...
def threads() -> int: ...

_F = NDArray[np.float32]

class DenseNetwork:
    def __init__(self, branches: Sequence[Sequence[Mapping[str, Any]]], parameters: int) -> None: ...
    def forward(
        self,
        block: _F,
        observations: _F,
        outputs: Sequence[_F],
        *,
        keep: bool = False,
    ) -> None: ...
    def backward(
        self,
        block: _F,
        observations: _F,
        to_outputs: Sequence[_F | None],
        gradient: _F | None,
        *,
        to_observations: _F | None = None,
    ) -> None: ...

class Unpacking:
    row_bytes: int
    inputs: int
    def __init__(self, row_bytes: int, parts: Sequence[Mapping[str, Any]]) -> None: ...
    def __call__(self, rows: NDArray[np.uint8], to: _F) -> None: ...

class Acting:
    def __init__(
        self,
        layers: Sequence[Mapping[str, Any]],
        parameters: int,
        head: Mapping[str, Any],
        sampler: Mapping[str, Any],
        unpacking: Unpacking | None,
        mask: tuple[int, int] | None,
    ) -> None: ...
    def begin(
        self,
        weights: _F,
        observations: NDArray[np.uint8],
        noise: _F,
        actions: NDArray[Any],
        outputs: _F | None,
        epsilons: Sequence[float],
        normalization: tuple[_F, _F, float] | None,
    ) -> None: ...
    def act(self, step: int) -> None: ...

def gaussian_variables(outputs: _F, noise: _F, variables: _F) -> None: ...
def tangents(values: _F, to: _F) -> None: ...

class PolicyLosses:
    def __init__(self, choices: Sequence[int], dimensions: int = 0) -> None: ...
    def log_probs(self, outputs: _F, actions: NDArray[Any], sizes: Sequence[int], log_probs: _F) -> None: ...
    def actor_critic(
        self,
        outputs: _F,
        values: _F,
        actions: NDArray[Any],
        sizes: Sequence[int],
        advantages: _F,
        returns: _F,
        weights: _F,
        value_weight: float,
        entropy_weight: float,
        to_outputs: _F,
        to_values: _F,
    ) -> tuple[float, float, float, float, float]: ...
    def ppo(
        self,
        outputs: _F,
        values: _F,
        actions: NDArray[Any],
        behaviour_log_probs: _F,
        advantages: _F,
        returns: _F,
        behaviour_values: _F | None,
        rows: NDArray[np.int64] | None,
        normalizes: bool,
        clip_range: float,
        value_weight: float,
        entropy_weight: float,
        value_clip_range: float,
        to_outputs: _F,
        to_values: _F,
    ) -> tuple[float, float, float, float, float, float]: ...

def quantile_loss(
    outputs: _F,
    actions: NDArray[Any],
    targets: _F,
    importance: _F | None,
    errors: _F | None,
    to_outputs: _F,
) -> tuple[float, float, float, float]: ...
def q_loss(
    values: _F,
    actions: NDArray[Any],
    targets: _F,
    weights: _F | None,
    importance: _F | None,
    errors: _F | None,
    huber: bool,
    to_values: _F,
) -> tuple[float, float, float, float]: ...

# Normal noise (philox.hpp).

def philox_words(seed: int, stream: int, block: int) -> list[int]:
    """Return the four 32-bit words of a block of Philox 4x32-10."""

def stream_words(seed: int, purpose: int, source: int, sequence: int, words: NDArray[np.uint64]) -> None: ...
def philox_normals(seed: int, stream: int, to: _F, first: int = 0) -> None:
    """Write the normal numbers of a stream from number `first` on into `to`, float32 [N].

    They are a function of (seed, stream, number), with the same bytes on every machine.
    """

def philox_factors(seed: int, stream: int, to: _F) -> None:
    """Write sign(e) sqrt|e| of the normal numbers e of a stream into `to`, float32 [N]."""

# Actors with critics (agent_losses.hpp). Values and their gradients are lists, an array for each critic.

def clamp_deviations(columns: _F, outputs: _F) -> None:
    """Write columns [N, 2 D] with their second half, log standard deviations, clamped; may be in place."""

def clamp_deviations_back(columns: _F, to_outputs: _F, to_columns: _F) -> None:
    """Write the gradient of the columns from that of the outputs of `clamp_deviations`; may be in place."""

def squashed_sample(outputs: _F, noise: _F, actions: _F, log_probs: _F) -> None:
    """Write actions [N, D] of a Gaussian squashed by tanh, outputs [N, 2 D], and their log densities [N]."""

def squashed_slopes(outputs: _F, noise: _F, actions: _F, to_actions: _F, to_log_prob: float, to_outputs: _F) -> None:
    """Write the gradient of the outputs of `squashed_sample` from those of its results."""

def tanh_actions(outputs: _F, noise: _F | None, deviation: float, limit: float, actions: _F) -> None:
    """Write tanh(outputs) [N, D]; with noise plus clip(deviation * noise, -limit, limit), clipped to -1 .. 1."""

def tanh_slopes(actions: _F, to_actions: _F, to_outputs: _F) -> None:
    """Write the gradient of the outputs of `tanh_actions` without noise; may be in place."""

def soft_targets(
    values: Sequence[_F], log_probs: _F | None, temperature: float, returns: _F, discounts: _F, targets: _F
) -> None:
    """Write returns + discounts * (least of the critics' values - temperature * log_probs), float32 [N] each.

    log_probs: None: without the second term.
    """

def soft_choice_targets(
    logits: _F, values: Sequence[_F], temperature: float, returns: _F, discounts: _F, targets: _F
) -> None:
    """Write the targets in expectation over discrete actions; logits, values: float32 [N, A] each."""

def critic_loss(
    values: Sequence[_F],
    actions: NDArray[np.int64] | None,
    targets: _F,
    importance: _F,
    errors: _F,
    to_values: Sequence[_F],
    factor: float,
    huber: bool,
) -> tuple[float, float, float]:
    """Return (loss, mean value, mean absolute error); write errors [N] and the gradients of the critics' values.

    values: of each critic float32 [N], or with actions, int64 [N], float32 [N, A].
    """

def least_values(values: Sequence[_F], to_values: Sequence[_F]) -> float:
    """Return the mean of the critics' least values; write the gradients of minus this mean."""

def soft_choice_loss(logits: _F, values: Sequence[_F], temperature: float, to_logits: _F) -> tuple[float, float, float]:
    """Return (loss, mean log probability, mean greatest entropy that masks allow) of SAC's policy over discrete
    actions; write the gradient of the logits."""

def soft_temperature(scale: float, log: float) -> float:
    """Return scale * e^log."""

def temperature_loss(log: float, mean_log_prob: float, target_entropy: float) -> tuple[float, float]:
    """Return (-log * (mean log probability + target entropy), its derivative by log)."""

# Distributions of returns (return_distributions.hpp). Distributions are [N, A, K], targets [N, K].

def log_softmax(columns: _F, outputs: _F) -> None:
    """Write the logarithms of softmax over the last axis of columns [N, A, K]; may be in place."""

def log_softmax_back(outputs: _F, to_outputs: _F, to_columns: _F) -> None:
    """Write the gradient of the columns from that of the outputs of `log_softmax`; may be in place."""

def categorical_targets(support: _F, chooses: _F, outputs: _F, returns: _F, discounts: _F, targets: _F) -> int:
    """Write C51's targets, the projection of the best action's distribution of log probabilities.

    chooses: the distributions whose expected returns find the best action. Returns the first row whose returns are not
    finite, at which it stops, or -1.
    """

def quantile_targets(chooses: _F, outputs: _F, returns: _F, discounts: _F, targets: _F) -> None:
    """Write QR-DQN's targets: returns + discounts * the quantiles of the best action."""

def categorical_loss(
    support: _F,
    outputs: _F,
    actions: NDArray[np.int64],
    targets: _F,
    importance: _F | None,
    errors: _F | None,
    to_outputs: _F,
) -> tuple[float, float, float, float]:
    """Return (loss, mean expected return of the actions taken, mean of the largest, mean absolute difference between
    those of targets and predictions); write the gradient of the log probabilities.

    errors receives the divergences KL(target || prediction).
    """

# Noisy layers and dueling streams as plain layers (derived_weights.hpp).

class DerivedWeights:
    """The weights of plain layers from those of noisy layers and of dueling streams.

    Lists of dictionaries with the fields of CopiedArray, NoisyLayer and DuelingStreams, whose offsets count floats.
    parameters, size: elements of the two blocks. Raises ValueError for arrays outside of their block.
    """

    def __init__(
        self,
        copies: Sequence[Mapping[str, int]],
        noisy: Sequence[Mapping[str, int]],
        streams: Sequence[Mapping[str, int]],
        parameters: int,
        size: int,
    ) -> None: ...
    @property
    def factors(self) -> int:
        """The number of factors of noise of all noisy layers."""
    def forward(self, block: _F, factors: _F, derived: _F) -> None:
        """Write the derived block, float32 [size], from the parameters and the factors of noise, float32 each."""
    def backward(self, factors: _F, to_derived: _F, gradient: _F) -> None:
        """Write the gradient of the parameters from that of the derived block, which is overwritten in part."""

# Compiled environments (compiled.hpp, classic_control.hpp, hive/env.h).

ENV_VERSION: int
"""HIVE_ENV_VERSION of hive/env.h."""

class CompiledEnvironment:
    """A hive_environment of hive/env.h."""

    @staticmethod
    def load(path: str, name: str) -> CompiledEnvironment:
        """Load a shared library, which stays loaded.

        Raises KeyError if it has no constant `name`, and ValueError if it cannot be loaded or has another version.
        """
    @staticmethod
    def classic_control(name: str) -> CompiledEnvironment | None:
        """Return the compiled form of a class of Gymnasium's classic control, such as "CartPoleEnv"."""
    def describe(self, options: Mapping[str, float | str]) -> dict[str, Any]:
        """Return its sizes: shape, dtype, elements, choices, low, high and max_episode_steps.

        Raises ValueError for options that it refuses, and for sizes that cannot be used.
        """

class CompiledVector:
    """`count` environments of one kind, with their episodes. Raises ValueError if they cannot be created."""

    def __init__(self, environment: CompiledEnvironment, options: Mapping[str, float | str], count: int) -> None: ...
    def reset(self, seeds: NDArray[np.uint64], observations: NDArray[Any]) -> bool:
        """Start an episode in every environment and write `observations` [B, ...]. False: see `fault`."""
    def step(self, actions: NDArray[Any], row: Row, finals: int) -> int:
        """Step every environment, reset those that ended, and write the row, whose first `finals` finals are kept.

        Returns the number of finals after the step; -1 if something went wrong (`fault`); and -2, with nothing done, if
        `actions` are not a contiguous array [B] or [B, k] of int64 or, for continuous actions, float32.
        """
    def collect(
        self, acting: Acting, rows: Sequence[Row], page: StatusPage | None, phases: tuple[int, int]
    ) -> tuple[int, int]:
        """Make the steps of the rollout that `acting` has begun, and write a row for each.

        page, phases: where a step enters the phases of its policy and its environments. Returns how many steps were
        made, fewer than rows if the next one went wrong (`fault`), and the number of finals.
        """
    def reset_one(self, index: int, seed: int | None, observation: NDArray[Any]) -> bool:
        """Start an episode in one environment and write `observation` [1, ...]. False: see `fault`."""
    def step_all(self, actions: NDArray[Any], row: Row) -> int:
        """Step every environment without an account of episodes and without resets; 0, or -1 or -2 as `step`."""
    @property
    def fault(self) -> tuple[str, int, str]:
        """What went wrong in the last call: its kind, the environment (-1: unknown), and a text.

        The kinds are "failed", "action", "reward", "observation" and "final observation".
        """

def sines_cosines(angles: NDArray[np.float64], sines: NDArray[np.float64], cosines: NDArray[np.float64]) -> None:
    """Write sines and cosines [N] as compiled environments compute them."""

# Row words (row_words.hpp).

ROW_WORD_BYTES: int
"""Bytes of a row word."""

class RowGate:
    """Word `index` in the same memory: one process sleeps there until the others have answered."""

    def __init__(self, memory: NDArray[np.uint8], index: int) -> None: ...
    def expect(self, arrivals: int) -> None:
        """Count anew, from this number of arrivals."""
    def arrive(self) -> None:
        """Count one, and wake the other side with the last one."""
    def wait(self, limit_s: float, spins: bool = True) -> bool:
        """Wait for the last arrival; return whether it has come within the limit. Both times are only hints."""

class RowWord:
    """Word `index` in aligned memory that several processes share: orders of one process, answers of another."""

    def __init__(self, memory: NDArray[np.uint8], index: int) -> None: ...
    def order(self, command: int) -> None:
        """Order something, and wake the other side."""
    def ordered(self, limit_s: float, spins: bool = True) -> int | None:
        """Wait for an order that has no answer yet; None if there is none within the limit.

        spins: whether to look for some time before it sleeps, which pays where each process has a core.
        """
    def answer(self, code: int) -> None:
        """Answer the order, and wake the other side."""
    def answered(self, limit_s: float, spins: bool = True) -> int | None:
        """Wait until every order has its answer, and return the last one; None if it has none within the limit."""

# Rounds of updates (program.hpp, round.hpp).

def mean(numbers: NDArray[np.float32]) -> float:
    """Return the mean of numbers [N] as a float64 sum in their order."""

def column_sums(from_: NDArray[np.float32], first: int, to: NDArray[np.float32]) -> None:
    """Write the sums over the rows of columns of `from_` [N, W], from `first` on, to `to` [n], in the order of rows."""

class Program:
    """The description of a gradient: the steps of hive.learning.described, each a name and its keys."""

    def __init__(self, steps: Sequence[tuple[str, Mapping[str, Any]]]) -> None: ...
    @property
    def noise_words(self) -> int:
        """The words of noise that its layers take, for each gradient."""

class Exchange:
    def __init__(self, memory: Mapping[str, Any]) -> None: ...
    def take_ended(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], int, int] | None:
        """Return the episodes of the last round in which some ended, once: (returns [n], lengths [n], columns [n],
        infos [n K], updates before the round, env_steps with it); None if there are none.
        """

class Round:
    """Consecutive updates in one call. memory: what hive.training.update.native_rounds describes."""

    def __init__(self, memory: Mapping[str, Any]) -> None: ...
    def run(self, call: Mapping[str, Any]) -> tuple[int, str, list[tuple[float, int]], NDArray[np.float64]]:
        """Make updates; return how many, why it ended, (norm, samples) of each, and statistics [updates, S]."""
