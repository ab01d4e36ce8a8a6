"""The mutants of the algorithms and of the code they share. Each names the algorithms whose probes must fail.

The module `mutation.replay_faults` has those of the replay memory and of DQN.
"""

from __future__ import annotations

from mutation.host_faults import HOSTS
from mutation.mutant import Mutant
from mutation.replay_faults import REPLAYS

__all__ = ["MUTANTS", "UNDETECTABLE"]

A2C, PPO, IMPALA, NSTEP_Q, PQN = ("a2c",), ("ppo",), ("impala",), ("nstep-q",), ("pqn",)
POLICIES = (*A2C, *PPO, *IMPALA)
ACTION_VALUES = (*NSTEP_Q, *PQN)
BY_RETURNS = (*A2C, *PPO, *ACTION_VALUES)  # those whose returns `returns_by` computes
ALL = (*POLICIES, *ACTION_VALUES)

LOSSES = "losses/actor_critic.py"
ROWS, ADVANTAGES = "algorithms/rows.py", "algorithms/advantages.py"
COLLECTOR = "workers/collector.py"
CLASSES = {"a2c": "class A2CLoss:", "impala": "class VTraceLoss:", "ppo": "class PPOLoss:"}
FILES = {name: f"algorithms/{name.replace('-', '_')}.py" for name in ALL}


def of_loss(kind: str, text: str, algorithm: str, old: str, new: str) -> Mutant:
    """Return a mutant of the loss of one algorithm, which its native form is compared with."""
    return Mutant(
        kind, f"{text} of {algorithm}", (), LOSSES, old, new, CLASSES[algorithm], tests="losses/test_native.py"
    )


def of_algorithm(kind: str, text: str, algorithm: str, old: str, new: str) -> Mutant:
    """Return a mutant of the file of one algorithm."""
    return Mutant(kind, f"{text} in {algorithm}".strip(), (algorithm,), FILES[algorithm], old, new)


# --- wrong signs

GRADIENT = "-log_probs * torch.from_numpy(advantages)"
SURROGATE = "-torch.minimum(ratio * advantages, clipped * advantages)"
FACTORS = "(1.0, self.value_loss_weight, -self.entropy_weight"

SIGNS = [
    *(of_loss("wrong sign", "policy loss", name, GRADIENT, GRADIENT[1:]) for name in ("a2c", "impala")),
    of_loss("wrong sign", "policy loss", "ppo", SURROGATE, SURROGATE[1:]),
    *(
        of_loss("wrong sign", "value loss", name, FACTORS, FACTORS.replace("self.value", "-self.value"))
        for name in POLICIES
    ),
    *(of_loss("wrong sign", "entropy", name, FACTORS, FACTORS.replace("-self", "self")) for name in POLICIES),
    *(
        of_loss("wrong weight", "no entropy", name, FACTORS, FACTORS.replace("-self.entropy_weight", "0.0"))
        for name in POLICIES
    ),
    Mutant(
        *("wrong sign", "loss of action values", (), "losses/q_learning.py", "(1.0, 0.0", "(-1.0, 0.0"),
        tests="losses/test_native.py",
    ),
    *(
        Mutant("wrong sign", f"native {text}", (*A2C, *IMPALA), LOSSES, old, f"-{old}")
        for text, old in (("value loss", "loss.value_loss_weight,"), ("entropy", "loss.entropy_weight,"))
    ),
    Mutant("wrong weight", "no native entropy", (*A2C, *IMPALA), LOSSES, "loss.entropy_weight,", "0.0,"),
    Mutant("wrong sign", "native loss of action values", ACTION_VALUES, "losses/q_learning.py", "(slope", "(-slope"),
]

# --- bootstraps

ENDS = "steps = rollout.terminated, rollout.truncated, rollout.valid"
VALUES = "yield rollout, mine[:-1], following"

BOOTSTRAPS = [
    Mutant(
        "missing bootstrap",
        "at truncation",
        BY_RETURNS,
        ADVANTAGES,
        ENDS,
        ENDS.replace("rollout.terminated", "rollout.terminated | rollout.truncated", 1),
    ),
    of_algorithm(
        "missing bootstrap",
        "at truncation",
        "impala",
        "rollout.terminated,",
        "rollout.terminated | rollout.truncated,",
    ),
    Mutant("wrong bootstrap", "next episode after truncation", ALL, ROWS, "if final < end:", "if False:"),
    Mutant(
        "missing bootstrap",
        "at the rollout's end",
        ALL,
        ROWS,
        VALUES,
        "following = np.concatenate([following[:-1], np.zeros_like(following[-1:])])\n        " + VALUES,
    ),
    Mutant(
        "bootstrap at termination",
        "",
        BY_RETURNS,
        ADVANTAGES,
        ENDS,
        ENDS.replace("rollout.terminated", "np.zeros_like(rollout.terminated)", 1),
    ),
    of_algorithm("bootstrap at termination", "", "impala", "rollout.terminated,", "np.zeros_like(rollout.terminated),"),
    of_algorithm(
        "wrong bootstrap",
        "online instead of target network",
        "nstep-q",
        "self.q.target(inputs)",
        "self.q.no_grad(inputs)",
    ),
]

# --- discount

DISCOUNTS = [
    *(
        of_algorithm("missing discount", "", name, old, "1.0")
        for name, old in (("a2c", "self.config.discount"), ("ppo", "config.discount"), ("pqn", "config.discount"))
    ),
    of_algorithm("missing discount", "", "impala", "discount=self.config.discount", "discount=1.0"),
    of_algorithm("missing discount", "", "nstep-q", "self.config.discount", "1.0"),
]

# --- gradients where constants belong

FOLLOWING = "outputs[1].narrow(0, self.sizes[1], self.sizes[0])"  # V(s_t+1) of the rows, while no episode is truncated
NEXT = "self.q(inputs).amax(-1).narrow(0, sizes(rollouts)[1], sizes(rollouts)[0])"

DETACHMENTS = [
    *(
        of_loss(
            "missing detach",
            "advantage",
            name,
            GRADIENT,
            "-log_probs * (torch.from_numpy(advantages) - values + values.detach())",
        )
        for name in ("a2c", "impala")
    ),
    of_loss(
        "missing detach",
        "advantage",
        "ppo",
        SURROGATE,
        "-torch.minimum(ratio * (advantages - values + values.detach()), clipped * advantages)",
    ),
    *(
        of_loss(
            "missing detach",
            "value target",
            name,
            f"torch.from_numpy({targets})",
            f"torch.from_numpy({targets}) + 0.5 * ({FOLLOWING} - {FOLLOWING}.detach())",
        )
        for name, targets in (("a2c", "returns"), ("impala", "targets"))
    ),
    of_loss(
        "missing detach",
        "value target is the value",
        "ppo",
        "mse_loss(values, self._picked(self.returns)",
        "mse_loss(values, self._picked(self.returns) + values - values.detach()",
    ),
    Mutant(
        "missing detach",
        "target is the value",
        (),
        "losses/q_learning.py",
        "mse_loss)(values, self.targets",
        "mse_loss)(values, self.targets + values - values.detach()",
        tests="losses/test_native.py",
    ),
    of_algorithm(
        "missing detach",
        "target",
        "nstep-q",
        "torch.from_numpy(returns)",
        f"torch.from_numpy(returns) + 0.25 * ({NEXT} - {NEXT}.detach())",
    ),
]

# --- rows

ACTIONS = "flat([rollout.actions for rollout in rollouts])"

SHIFTS = [
    Mutant("shifted row", "values", (*POLICIES, *PQN), ROWS, VALUES, VALUES.replace("mine[:-1]", "mine[1:]")),
    Mutant("shifted row", "next values", ALL, ROWS, "following = mine[1:]", "following = mine[:-1]"),
    *(
        of_algorithm(
            "shifted row",
            "actions",
            name,
            ACTIONS,
            ACTIONS.replace("rollout.actions", "np.roll(rollout.actions, 1, 0)"),
        )
        for name in ALL
    ),
    Mutant(
        "shifted row",
        "rewards",
        BY_RETURNS,
        ADVANTAGES,
        "kernel(rollout.rewards",
        "kernel(np.roll(rollout.rewards, 1, 0)",
    ),
    of_algorithm("shifted row", "rewards", "impala", "rollout.rewards,", "np.roll(rollout.rewards, 1, 0),"),
    Mutant(
        "shifted row",
        "advantages",
        (*A2C, *PPO),
        ADVANTAGES,
        "advantages.append(a)",
        "advantages.append(np.roll(a, 1, 0))",
    ),
    of_algorithm("shifted row", "advantages", "impala", "advantages.append(a)", "advantages.append(np.roll(a, 1, 0))"),
    Mutant("shifted row", "returns", BY_RETURNS, ADVANTAGES, "returns.append(r)", "returns.append(np.roll(r, 1, 0))"),
    of_algorithm("shifted row", "targets", "impala", "targets.append(v)", "targets.append(np.roll(v, 1, 0))"),
    Mutant(
        "shifted row",
        "log probabilities",
        (*PPO, *IMPALA),
        COLLECTOR,
        "distribution.log_prob(torch.from_numpy(outputs), actions).numpy()",
        "np.roll(distribution.log_prob(torch.from_numpy(outputs), actions).numpy(), 1, 0)",
    ),
    Mutant(
        "shifted row",
        "first observation of the next rollout",
        ALL,
        COLLECTOR,
        "self.current[...] = observations[length]",
        "self.current[...] = observations[length - 1]",
    ),
]

AXES = [
    Mutant(
        "swapped axes",
        "values",
        ALL,
        ROWS,
        "np.ascontiguousarray(values[start:final]).reshape(-1, rollout.rewards.shape[1])",
        "np.ascontiguousarray(values[start:final].reshape(rollout.rewards.shape[1], -1).T)",
    ),
    *(
        of_algorithm(
            "swapped axes",
            "actions",
            name,
            ACTIONS,
            ACTIONS.replace("rollout.actions", "rollout.actions.swapaxes(0, 1)"),
        )
        for name in ALL
    ),
    Mutant("swapped axes", "advantages", (*A2C, *PPO), ADVANTAGES, "advantages.append(a)", "advantages.append(a.T)"),
    Mutant("swapped axes", "returns", BY_RETURNS, ADVANTAGES, "returns.append(r)", "returns.append(r.T)"),
    of_algorithm("swapped axes", "advantages", "impala", "advantages.append(a)", "advantages.append(a.T)"),
    of_algorithm("swapped axes", "targets", "impala", "targets.append(v)", "targets.append(v.T)"),
    Mutant(
        "swapped axes",
        "log ratios",
        IMPALA,
        ROWS,
        "part.reshape(rollout.rewards.shape)",
        "np.ascontiguousarray(part.reshape(rollout.rewards.shape[::-1]).T)",
    ),
]

# --- probabilities of the acting policy

RATIOS = [
    Mutant(
        *("stale log-probability", "of the learning policy, native", IMPALA, LOSSES),
        *("log_ratios -= self.behaviour_log_probs.numpy()", "log_ratios[:] = 0.0"),
    ),
    of_loss(
        "stale log-probability",
        "of the learning policy",
        "impala",
        "log_probs.detach() - self.behaviour_log_probs",
        "log_probs.detach() - log_probs.detach()",
    ),
    of_loss(
        "stale log-probability",
        "of the learning policy",
        "ppo",
        "log_ratio = log_probs - self._picked(self.behaviour_log_probs)",
        "log_ratio = log_probs - log_probs.detach()",
    ),
    of_algorithm(
        "stale log-probability",
        "of the weights at the round's beginning",
        "ppo",
        "torch.from_numpy(log_probs[valid])",
        "self.distribution.log_prob(acted_rows(self.model.no_grad(inputs)[0], acted), "
        "torch.from_numpy(flat([rollout.actions for rollout in rollouts])))[kept]",
    ),
    of_loss(
        "wrong sign",
        "log ratio",
        "impala",
        "log_probs.detach() - self.behaviour_log_probs",
        "self.behaviour_log_probs - log_probs.detach()",
    ),
    of_loss(
        "wrong sign",
        "log ratio",
        "ppo",
        "log_ratio = log_probs - self._picked(self.behaviour_log_probs)",
        "log_ratio = self._picked(self.behaviour_log_probs) - log_probs",
    ),
    of_loss("missing clip", "ratio", "ppo", "clipped = ratio.clamp(1.0 - limit, 1.0 + limit)", "clipped = ratio"),
    of_loss("wrong clip", "maximum instead of minimum", "ppo", "torch.minimum", "torch.maximum"),
    of_algorithm("missing clip", "rho", "impala", "rho_clip=self.config.rho_clip", "rho_clip=1e9"),
]

# --- parts of observations and action masks

PACKED, PART = "networks/packed.py", "envs/observation.py"

PARTS = [
    Mutant("wrong part", "numbers at the offset of bytes", ALL, PACKED, "part.offset // FLOAT_BYTES if", "0 if"),
    Mutant("wrong part", "bytes one too far", ALL, PACKED, "else part.offset\n", "else part.offset + 4\n"),
    Mutant("wrong part", "all parts at the beginning", ALL, PART, "replace(part, offset=offset)", "replace(part)"),
    Mutant("missing mask", "", ALL, PACKED, "(forbidden, FORBIDDEN)", "(forbidden, 0.0)"),
    Mutant("missing mask", "reversed", ALL, PACKED, "self._mask] == 0", "self._mask] == 1"),
    Mutant(
        "missing mask",
        "exploration of all actions",
        ACTION_VALUES,
        "networks/exploration.py",
        "if not (allowed := outputs > ALLOWED).all():",
        "if (allowed := outputs > ALLOWED) is None:",
    ),
]

# --- stacks of observations

STACK, FRAMES = "workers/frame_stack.py", "algorithms/frames.py"

STACKS = [
    Mutant("wrong stack", "acting sees frames of earlier episodes", ALL, STACK, "frames[row.ended] = 0", "pass"),
    Mutant(
        "wrong stack", "learning sees frames before an episode", POLICIES, FRAMES, ">= first[:, :, None]", ">= -before"
    ),
    Mutant("wrong stack", "one frame too late", ALL, FRAMES, "np.arange(-before, 1)", "np.arange(-before - 1, 0) + 0"),
    Mutant("wrong stack", "newest first", ALL, FRAMES, "np.arange(-before, 1)", "np.arange(0, -before - 1, -1)"),
    Mutant("wrong stack", "no history", (*A2C, *IMPALA), COLLECTOR, "self.stack.frames[:, :-1].swapaxes(0, 1)", "0"),
]

# --- states of recurrent policies

STORED = 'rollout["state"][...] = self.memory.state.numpy()'

MEMORIES = [
    Mutant(
        "wrong memory", "kept over episode ends", POLICIES, COLLECTOR, "memory.forget(prepared.rows[t].ended)", "pass"
    ),
    Mutant(
        "wrong memory",
        "lost after a rollout",
        POLICIES,
        COLLECTOR,
        STORED,
        f"self.memory.state.numpy()[:] = 0\n            {STORED}",
    ),
]

# --- actions of several parts, and other distributions than the plain Gaussian

PRODUCT, ACTIONS, SQUASHED = "networks/product.py", "envs/actions.py", "networks/squashed.py"
DENSITIES = "log_probs, entropies = zip(*pairs"

SPACES = [
    Mutant("wrong action", "no density of the last part", PPO, PRODUCT, DENSITIES, f"{DENSITIES}[:-1]"),
    Mutant("wrong action", "no density of the first part", PPO, PRODUCT, DENSITIES, f"{DENSITIES}[1:]"),
    Mutant("wrong action", "columns of the first part", PPO, ACTIONS, "slice(start, end)", "slice(0, end - start)"),
    Mutant("wrong action", "entropy before squashing", PPO, SQUASHED, "+ slope + self._bounds", "+ self._bounds"),
    Mutant(
        *("wrong action", "half the noise", PPO, "networks/gsde.py"),
        *("(products * noise)", "(0.5 * products * noise)", "def sample_numpy"),
    ),
]

NOVELTY = "algorithms/novelty.py"
NOVELTIES = [
    Mutant("wrong sign", "novelty is subtracted", PPO, NOVELTY, "rollout.rewards + np", "rollout.rewards - np"),
    Mutant("missing part", "novelty in no reward", PPO, NOVELTY, "np.float32(self.weight) *", "0.0 *"),
]

MUTANTS = (
    *SIGNS,
    *BOOTSTRAPS,
    *DISCOUNTS,
    *DETACHMENTS,
    *SHIFTS,
    *AXES,
    *RATIOS,
    *PARTS,
    *STACKS,
    *MEMORIES,
    *SPACES,
    *NOVELTIES,
    *REPLAYS,
    *HOSTS,
)

UNDETECTABLE = {
    "c_clip of IMPALA ignored": "the fixed point of V-trace depends on rho_clip only, c_clip on the way to it",
    "a predictor of novelty that never learns": "its random errors too reward long episodes, which open the lock",
    "gae_lambda ignored": "the values of every lambda converge to the same fixed point",
    "stored states are zeros": "with lag 0 a memory that acts right is learned from the episodes within one rollout",
    "targets of PPO and PQN with a graph": "they are computed once a round, and torch raises when "
    "the second minibatch uses a graph that the first one has freed",
}
"""Faults that no result of learning shows -> why. tests/algorithms compares them with a reference, number by number."""
