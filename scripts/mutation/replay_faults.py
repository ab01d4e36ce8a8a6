"""The mutants of the replay memory, of its part of the trainer, and of DQN: each pitfall that another library has had.

Each names the file of tests of which one must fail. Examples of such faults in other libraries:

    steps of the next episode, or of another environment     chainerrl#442, ray PR #2929
    across the write cursor, and the discount not to the power of k     FastTD3#6
    the reset of an environment as a step     cleanrl#499, Gymnasium#1227
    truncation as an end     cleanrl#198, stable-baselines3#633
    rows of no priority, sums that are not those of the leaves     rl#2230, flashbax#52, ray#7180
    a priority that arrives after its row was overwritten     cpprb's flag
    the same minibatch for all gradients     skrl PR #208
    another number of updates with another number of environments     stable-baselines3#1649
"""

from __future__ import annotations

from mutation.mutant import Mutant

__all__ = ["REPLAYS"]

GATHER, TREE = "src/replay.cpp", "src/priority_tree.cpp"
MEMORY, BUFFER, PRIORITIES = "storage/replay.py", "storage/replay_buffer.py", "storage/priorities.py"
TRAINER = "workers/replay_memory.py"
DQN, REPLAYING, LOSS = "algorithms/dqn.py", "algorithms/replaying.py", "losses/q_learning.py"
TESTS = {
    GATHER: "tests/test_replay.cpp",
    TREE: "tests/test_priority_tree.cpp",
    MEMORY: "storage/test_replay.py",
    BUFFER: "storage/test_replay_buffer.py",
    PRIORITIES: "storage/test_priorities.py",
    TRAINER: "workers/test_replay_memory.py",
    DQN: "algorithms/test_replayed_values.py",
    REPLAYING: "algorithms/test_replayed_values.py",
    LOSS: "algorithms/test_replayed_values.py",
}
"""File with the fault -> tests that notice it."""


def fault(kind: str, text: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(kind, text, (), file, old, new, tests=TESTS[file])


TRANSITION, DRAW, TARGET = "wrong transition", "wrong draw", "wrong target"

TRUNCATED, FINAL = "} else if (rows.truncated[last]) {", "newest = gather.final_of(last);"

GATHERED = [
    fault(TRANSITION, "steps of the next episode after a truncation", GATHER, TRUNCATED, "} else if (false) {"),
    fault(
        *(TRANSITION, "steps of the next episode after a termination", GATHER),
        *("if (rows.terminated[last]) {", "if (rows.terminated[last] && taken == n_step) {"),
    ),
    fault(TRANSITION, "steps after a seam", GATHER, " || !rows.valid[next]", ""),
    fault(TRANSITION, "steps of another environment", GATHER, "? at + rows_.columns :", "? at + 1 :"),
    fault(TRANSITION, "a step beyond the ring", GATHER, ": at - (rows_.rows - 1) * rows_.columns", ": at"),
    fault(TRANSITION, "discount not to the power of the steps", GATHER, "factor *= discount;", "factor = discount;"),
    fault(TRANSITION, "no discount of rewards", GATHER, "sum += factor *", "sum +="),
    fault(TRANSITION, "a bootstrap after a termination", GATHER, "factor = 0.0;", ""),
    fault(TRANSITION, "truncation as an end", GATHER, FINAL, f"factor = 0.0, {FINAL}"),
    fault(
        *(TRANSITION, "the first observation of the next episode after a truncation", GATHER),
        *(FINAL, "newest = gather.observation(next);"),
    ),
    fault(TRANSITION, "frames of the episode before", GATHER, "has_last = !begins(last);", "has_last = true;"),
    fault(TRANSITION, "frames from before a seam", GATHER, " || !rows_.valid[last]", ""),
    fault(TRANSITION, "frames beyond the ring", GATHER, ": at + (rows_.rows - 1) * rows_.columns", ": at"),
    fault(TRANSITION, "frames of an earlier stack in the memory", GATHER, "std::memset(to, 0, frame * bytes);", ""),
    fault(TRANSITION, "no seam before new episodes", MEMORY, "if written and rollout.begins:", "if False:"),
    fault(TRANSITION, "the row at the write cursor", MEMORY, "% self.rows] = 0  #", "% self.rows]  #"),
    fault(
        *(TRANSITION, "final observations of another row", MEMORY),
        *('own["finals"][(written + t)', 'own["finals"][(written + t + 1)'),
    ),
]

ADMITTED = "self._admit(before - self.n_step + 1, self.written - self.n_step + 1)"
WEIGHTS = "weights=importance_weights(leaves, self.beta)"

DRAWS = [
    fault(DRAW, "a row that was evicted", BUFFER, "self.tree.fill(int(old[0]), len(old), 0)", "pass"),
    fault(DRAW, "the reset of an environment", BUFFER, "valid[new] > 0", "valid[new] >= 0"),
    fault(DRAW, "steps that are not complete", BUFFER, ADMITTED, "self._admit(before, self.written)"),
    fault(DRAW, "rows that are overwritten", BUFFER, "self.kept + n_step + stack + 2", "self.kept + 2"),
    fault(
        *(DRAW, "a priority that arrives late revives its row", BUFFER),
        *("self.tree.leaves[batch.positions] > 0", "self.tree.leaves[batch.positions] >= 0"),
    ),
    fault(DRAW, "the same batch each time", BUFFER, "self.drawn += 1", "pass"),
    fault(DRAW, "no importance weights", BUFFER, WEIGHTS, WEIGHTS.replace("self.beta", "0.0")),
    fault(
        *(DRAW, "new rows have the first priority", BUFFER),
        *("self.largest = max(self.largest, int(leaves.max(initial=0)))", "pass"),
    ),
    fault(
        *(DRAW, "truncation as an end", BUFFER, '["terminated"][0] = terminated'),
        '["terminated"][0] = np.asarray(terminated) | np.asarray(truncated)',
    ),
    fault(DRAW, "the same words for all updates", PRIORITIES, "worker, number, used)", "worker, 0, used)"),
    fault(
        DRAW, "sums of filled rows are not renewed", TREE, "refresh(first / kRow, divided(first + count, kRow));", ""
    ),
    fault(DRAW, "only the lowest sums are renewed", TREE, "k < depth_; ++k, node /=", "k < 1; ++k, node /="),
    fault(DRAW, "rows without priority", TREE, "rest >= sum", "rest > sum"),
]

TARGET_VALUES = "self.q.target(batch.next_observations)"

TARGETS = [
    fault(TARGET, "online instead of target network", DQN, TARGET_VALUES, TARGET_VALUES.replace("target", "no_grad")),
    fault(TARGET, "never double", DQN, "self.config.double", "False"),
    fault(TARGET, "always double", DQN, "self.config.double", "True"),
    fault(TARGET, "the discount of one step", DQN, "batch.discounts *", "self.config.discount *"),
    fault(TARGET, "no importance weights", DQN, "importance=batch.importance", "importance=None"),
    fault(TARGET, "no priorities", DQN, "errors=batch.errors", "errors=None"),
    fault(TARGET, "importance of the error", LOSS, "losses * self.importance", "losses * self.importance**2"),
    fault(TARGET, "priorities with a sign", LOSS, "(values - self.targets).abs()", "(values - self.targets)"),
    fault(
        *(TARGET, "updates do not depend on the number of environments", REPLAYING),
        *("Fraction(config.updates_per_step) * round_steps", "Fraction(config.updates_per_step) * 4"),
    ),
]

FIRST_TO_KEEP = "self._fill(source, max(kept, before), now, leaf)"

TRAINED = [
    fault(DRAW, "old rows of a trainer's memory", TRAINER, "self._fill(source, oldest, min(kept, before), 0)", "pass"),
    fault(
        DRAW, "old rows of a long rollout", TRAINER, FIRST_TO_KEEP, FIRST_TO_KEEP.replace("max(kept, before)", "before")
    ),
    fault(DRAW, "rows before the steps after them", TRAINER, "row - self.size.n_step + 1) for", "row) for"),
    fault(DRAW, "rows without a step in a trainer's memory", TRAINER, "if len(skipped):", "if False:"),
    fault(DRAW, "rows by an early error of an actor", TRAINER, "max(first, drawable.stop)", "first + len(errors)"),
    fault(DRAW, "evicted rows, by a late error", TRAINER, " & (self.tree.leaves[positions] > 0)", ""),
    fault(DRAW, "the same rows for every worker", TRAINER, "(self.seed, worker, number", "(self.seed, 0, number"),
    fault(DRAW, "the same rows for every plan", TRAINER, "worker, number, size.batch", "worker, 0, size.batch"),
    fault(DRAW, "weights relative to the least of a worker", TRAINER, ", least or None)", ", None)"),
    fault(DRAW, "rows of a memory that is almost empty", TRAINER, "if held >= self.least_steps and", "if"),
    fault(
        DRAW, "rows that are overwritten meanwhile", TRAINER, "(self.rounds_ahead + 1) *", "(self.rounds_ahead - 1) *"
    ),
    fault(
        *(DRAW, "rows that several rollouts of a collector share", TRAINER),
        *('first = int(after["written"][source])', 'first = int(before["written"][source])'),
    ),
    fault(
        DRAW,
        "leaves of another moment in a checkpoint",
        TRAINER,
        '["held_leaves"][:] = self.arrays["leaves"]',
        '["held_leaves"][:] = 0',
    ),
]

REPLAYS = [*GATHERED, *DRAWS, *TARGETS, *TRAINED]
