"""Begins episodes of single environments, with the options of env.reset_options.

An environment may refuse to be reset before the end of its episode. Where a run must do that, at a resume barrier or
after `evaluation.max_steps`, such an environment is closed and constructed again, as at the start of the run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hive.envs.loading import close
from hive.errors import EnvironmentFailed
from hive.runtime.actor.error_location import is_interrupt, named

NO_REFUSAL = OSError, MemoryError, ImportError, TypeError, AttributeError, NameError, LookupError, ArithmeticError
"""Errors of a reset that refuse nothing: something is missing, or the code has a mistake."""


def begin(environment: Any, seed: int | None, options: Mapping[str, Any]) -> Any:
    """Call `reset` with a copy of `options`, or without the argument if there are none; return what it returns.

    Environments of the old form may have a `reset` that takes a seed alone.
    """
    if not options:
        return environment.reset(seed=seed)
    return environment.reset(seed=seed, options=copy.deepcopy(dict(options)))


class _Pulse:
    """What is called after each reset: the resets of one step, or of one barrier, have their limit one by one."""

    beat: Callable[[], object] = staticmethod(lambda: None)


def report_resets(beat: Callable[[], object]) -> None:
    """Have every reset in this process call `beat`, from now on. Helpers that are forked later inherit it."""
    _Pulse.beat = staticmethod(beat)


class Resets:
    """Resets the environments of a vector.

    options: of each, for all its resets. construct: makes environment number i again; None: none can be made again.
    refused: what the first one raised that refused a reset within an episode and could be reset once it was constructed
    again, or "".
    """

    def __init__(
        self,
        environments: Sequence[Any],
        options: Sequence[Mapping[str, Any]] = (),
        construct: Callable[[int], Any] | None = None,
    ) -> None:
        self.environments = environments
        self.refused = ""
        self._options = options or [{}] * len(environments)
        self._construct = construct
        self._has_begun = [False] * len(environments)

    def begin(self, index: int, seed: int | None, prepare: Callable[[int], None]) -> Any:
        """Begin an episode of environment `index`, and return what its `reset` returns.

        prepare: gives the environment what it must have before. A reset with a seed may come within an episode.
        """
        result = self._begin(index, seed, prepare)
        _Pulse.beat()
        return result

    def _begin(self, index: int, seed: int | None, prepare: Callable[[int], None]) -> Any:
        prepare(index)
        begun, self._has_begun[index] = self._has_begun[index], True
        try:
            return begin(self.environments[index], seed, self._options[index])
        except Exception as error:
            if not begun or seed is None or self._construct is None or is_interrupt(error):
                raise
            if isinstance(error, NO_REFUSAL):
                raise
            close(self.environments[index])
            try:
                self.environments[index] = self._construct(index)  # type: ignore[index]
            except EnvironmentFailed as failed:
                raise EnvironmentFailed(
                    f"it refused a reset within its episode, {named(error)}, and cannot be made again: {failed}",
                    hint=failed.hint,
                ) from error
            refusal = named(error)
        prepare(index)
        result = begin(self.environments[index], seed, self._options[index])
        self.refused = self.refused or refusal
        return result
