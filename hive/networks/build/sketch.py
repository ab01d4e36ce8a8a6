"""Networks without memory: torch's device "meta", where a tensor has a shape and no values.

Building one takes milliseconds, however large it is, so the sizes of a run are known before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.overrides import TorchFunctionMode

from hive.errors import MemoryShort
from hive.networks.build.layers import placeholder_weights
from hive.runtime.process.user_code.torch_state import DEVICE

__all__ = ["without_memory"]

# Initial values, which a sketch has none of. On "meta" torch would import 800 modules for these, which takes seconds.
DRAWS = frozenset({"normal_", "uniform_", "trunc_normal_"})


class _NoDraws(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if getattr(func, "__name__", "") in DRAWS:
            tensor = args[0] if args else named["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **named)


@contextmanager
def without_memory() -> Iterator[None]:
    """Build the networks of the block without memory for their parameters and buffers.

    Raises MemoryShort for a network whose bytes are no 64-bit number.
    """
    before = DEVICE.set("meta")
    try:
        with _NoDraws(), placeholder_weights():
            yield
    except (RuntimeError, OverflowError, TypeError) as error:
        if "overflow" not in str(error).lower():
            raise
        raise MemoryShort("the network has more parameters than any machine has room for") from None
    finally:
        DEVICE.reset(before)
