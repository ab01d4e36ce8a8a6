"""Returns as the bare environment gives them, where a wrapper may change rewards: the value `raw_return` of `info`.

The step and the reset of the bare environment are replaced by ones that sum its rewards, so no object is added to the
chain of wrappers, whose attributes stay where they were. The sum begins again at each reset of the bare environment. It
counts every step of it, also those that a wrapper makes for one of its own. It lies in the `info` of every step; a
wrapper outside that returns an `info` of its own hides it, and then it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RAW_RETURN = "raw_return"

CHANGING = ("NormalizeReward",)  # those of Gymnasium that are no RewardWrapper
KEEPING = ("gymnasium", "hive")  # packages whose other wrappers leave rewards as they are, or sum them


class RewardSum:
    """Stands for `step` and `reset` of one environment."""

    def __init__(self, environment: Any) -> None:
        self._step, self._reset = environment.step, environment.reset
        self._total, self._inside = 0.0, False

    def step(self, *arguments: Any, **keywords: Any) -> Any:
        """Make a step, and put the sum into its `info`."""
        if self._inside:  # the environment calls its own method, whose rewards are part of those that it returns
            return self._step(*arguments, **keywords)
        self._inside = True
        try:
            result = self._step(*arguments, **keywords)
        finally:
            self._inside = False
        if not (isinstance(result, tuple) and len(result) == 5 and isinstance(result[4], Mapping)):
            return result  # the vector raises the error
        observation, reward, terminated, truncated, info = result
        try:
            self._total += float(reward)
        except (TypeError, ValueError):
            return result
        make = getattr(result, "_make", tuple)  # of a named tuple, whose names a wrapper may read
        return make((observation, reward, terminated, truncated, {RAW_RETURN: self._total, **info}))

    def reset(self, *arguments: Any, **keywords: Any) -> Any:
        """Begin an episode, and a sum."""
        if self._inside:
            return self._reset(*arguments, **keywords)
        self._inside = True
        try:
            return self._reset(*arguments, **keywords)
        finally:
            self._total, self._inside = 0.0, False


def sum_raw_returns(environment: Any, *, is_whole: bool = True) -> bool:
    """Let the bare environment of a gymnasium.Env sum its rewards if a wrapper may change them; return whether it does.

    A wrapper may if it is a RewardWrapper or NormalizeReward, or if code that is not Gymnasium's or hive's defines its
    `step`. An environment whose attributes cannot be set has no sum. is_whole: whether all wrappers are around it; if
    not, it sums until then: a wrapper may bind the `step` of the bare environment in its constructor.
    """
    import gymnasium

    changed = not is_whole
    while isinstance(environment, gymnasium.Wrapper):
        changed |= _may_change(environment)
        environment = environment.env
    sums = isinstance(getattr(environment.step, "__self__", None), RewardSum)
    try:
        if changed and not sums:
            summed = RewardSum(environment)
            environment.step, environment.reset = summed.step, summed.reset
        elif sums and not changed:
            del environment.step, environment.reset
    except AttributeError:
        return False
    return changed


def _may_change(wrapper: Any) -> bool:
    """Whether this wrapper may change rewards."""
    import gymnasium

    if isinstance(wrapper, gymnasium.RewardWrapper) or type(wrapper).__name__ in CHANGING:
        return True
    definer = next(cls for cls in type(wrapper).__mro__ if "step" in vars(cls))
    return definer.__module__.partition(".")[0] not in KEEPING
