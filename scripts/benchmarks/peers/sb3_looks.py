"""The looks of `benchmarks.counting` as a callback of Stable-Baselines3, which SBX calls too."""

from __future__ import annotations

from stable_baselines3.common.callbacks import BaseCallback

from benchmarks.counting import TwoLooks


class Looks(BaseCallback):  # type: ignore[misc,unused-ignore]  # untyped where it is not installed
    """Ends the training after `seconds` between two looks. Each rollout comes with the updates that follow it."""

    def __init__(self, seconds: float, minibatches: int = 1) -> None:
        super().__init__()
        self.looks = TwoLooks(seconds)
        self.minibatches = minibatches  # of an epoch of PPO, whose model counts epochs; otherwise 1

    def _on_rollout_end(self) -> None:
        self.looks.round_ended(self.num_timesteps, self.model._n_updates * self.minibatches)

    def _on_step(self) -> bool:
        return not self.looks.over
