"""The actions of a collector in native calls, where its policy is dense and its distribution is one of hive's.

    acting = NativeActing.of(policy, distribution, observation)    None: torch or Python has a part in every action
    acting.begin(weights, distribution, rollout, noise, outputs)   False: Python has a part in those of this rollout
    acting.native.act(t)                                           writes rollout.actions[t]

A call does what the network, the normalizer and `sample_numpy` do, with the same bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from hive import _native
from hive.networks.act.bounded import ScaledActions, SquashedGaussian
from hive.networks.act.distributions import ActionDistribution, Categorical, DiagonalGaussian, MultiCategorical
from hive.networks.act.exploration import ALLOWED, EpsilonGreedy, NoisyActions, SoftActions, SoftChoices, UniformStart
from hive.networks.build.agents import AgentNetwork
from hive.networks.build.spaces import InputSpec
from hive.networks.rows.normalization import LIMIT, NormalizedNetwork, Normalizer, PackedNormalizer
from hive.networks.rows.packed import PackedNetwork
from hive.networks.weights.dense import Dense
from hive.networks.weights.flat import Floats
from hive.networks.weights.unpacking import unpacking_of

# The kinds of native/include/hive/sampling.hpp. A subclass may sample in another way, so types are compared exactly.
KINDS: dict[type[ActionDistribution], str] = {
    Categorical: "choice",
    SoftChoices: "choice",
    MultiCategorical: "choice",
    EpsilonGreedy: "greedy",
    DiagonalGaussian: "gaussian",
    SquashedGaussian: "squashed",
    SoftActions: "squashed",
    NoisyActions: "noisy",
}


@dataclass(frozen=True)
class FlatRollout:
    """Observations [T + 1, B, n] and actions, flat, in the memory of a rollout."""

    observations: NDArray[Any]
    actions: NDArray[Any]

    @classmethod
    def of(cls, observations: NDArray[Any], actions: NDArray[Any]) -> FlatRollout | None:
        """Return views of these arrays of a rollout, or None where they do not lie in one piece."""
        if not (observations.flags.c_contiguous and actions.flags.c_contiguous):
            return None
        return cls(observations.reshape(*observations.shape[:2], -1), actions.reshape(-1))


class NativeActing:
    """See the module. `native` has the rollout that has begun."""

    def __init__(self, native: _native.Acting, dense: Dense, normalizer: Normalizer | None) -> None:
        self.native = native
        self._parameter_bytes = 4 * dense.flat.parameter_elements
        self._normalizer = normalizer

    @classmethod
    def of(cls, policy: nn.Module, distribution: ActionDistribution, observation: InputSpec) -> NativeActing | None:
        """Return the native form of this policy and its distribution, for observations that it sees one at a time."""
        normalizer = None
        if type(policy) is NormalizedNetwork:
            normalizer, policy = policy.normalizer, policy.network
        if isinstance(policy, AgentNetwork):
            policy = policy.actor
        packed = policy if isinstance(policy, PackedNetwork) else None
        dense = getattr(policy if packed is None else packed.network, "dense", None)  # or what a user calls so
        sampler = sampler_of(distribution)
        known = type(normalizer) in (type(None), Normalizer, PackedNormalizer)
        if not isinstance(dense, Dense) or sampler is None or not known:
            return None
        unpacking = unpacking_of(dense.before, observation, packed)
        mask = None if packed is None else packed.mask
        native = None if unpacking is None else dense.acting(sampler, unpacking, mask)
        return None if native is None else cls(native, dense, normalizer)

    @property
    def reads_buffers(self) -> bool:
        """Whether actions depend on buffers of the bound network, besides the weights that `begin` receives."""
        return self._normalizer is not None

    def begin(
        self,
        weights: NDArray[np.uint8],
        distribution: ActionDistribution,
        rollout: FlatRollout,
        noise: Floats,
        outputs: Floats | None,
    ) -> bool:
        """Begin a rollout with these weights. outputs: float32 [T, B, width], receives the policy's; may be None.

        distribution: that of this rollout. noise: prepared, [T, B, ...].
        """
        if isinstance(distribution, UniformStart) and distribution.uniform:
            return False
        epsilons = distribution.epsilons if isinstance(distribution, EpsilonGreedy) else ()
        self.native.begin(
            weights[: self._parameter_bytes].view(np.float32),
            rollout.observations.view(np.uint8),
            noise.reshape(-1),
            rollout.actions,
            None if outputs is None else outputs.reshape(-1),
            np.ravel(epsilons).tolist(),
            self._normalization(),
        )
        return True

    def _normalization(self) -> tuple[Floats, Floats, float] | None:
        if self._normalizer is None:
            return None
        return self._normalizer.shift.numpy().reshape(-1), self._normalizer.scale.numpy().reshape(-1), LIMIT


def sampler_of(distribution: ActionDistribution) -> dict[str, Any] | None:
    """Return the description of a distribution for `_native.Acting`; None if only Python samples it."""
    middle_and_reach: tuple[Floats, ...] = getattr(distribution, "middle_and_reach", ())
    if type(distribution) is ScaledActions:
        distribution = distribution.inner
    if (kind := KINDS.get(type(distribution))) is None:
        return None
    middle, reach = [bound.reshape(-1).tolist() for bound in middle_and_reach] or ([], [])
    choices = distribution.nvec if isinstance(distribution, MultiCategorical) else (getattr(distribution, "n", 1),)
    return {
        "kind": kind,
        "choices": list(choices),
        "dimensions": math.prod(distribution.action_shape),
        "middle": middle,
        "reach": reach,
        "allowed": ALLOWED,
        "deviation": distribution.deviation if isinstance(distribution, NoisyActions) else 0.0,
    }
