"""Writes the settings of Python's decimal, NumPy and torch that a program has changed as statements of its module."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator

from hive.runtime.process.user_code.torch_state import PRINTING, NumpyState, TorchState

USUAL_NUMPY = NumpyState(
    {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"},
    dict(
        zip(PRINTING, (3, 1000, "maxprec", 8, False, 75, "nan", "inf", "-"), strict=True),
    ),
)


def statements_of_settings(imported: Callable[[str], str]) -> Iterator[str]:
    """Yield a statement for each of the three whose settings are not the usual ones.

    imported: as of `hive.session.values.written`.
    """
    now, usual = decimal.getcontext().copy(), decimal.Context()
    now.clear_flags()
    usual.clear_flags()
    if repr(now) != repr(usual):
        place = imported("decimal")
        known = ", ".join(f"{name}={getattr(now, name)!r}" for name in ("prec", "rounding", "Emin", "Emax"))
        traps = ", ".join(f"{place}.{signal.__name__}" for signal, is_set in now.traps.items() if is_set)
        context = f"{place}.Context({known}, capitals={now.capitals}, clamp={now.clamp}, traps=[{traps}])"
        yield f"{_objects(imported)}.set_decimal({context})"
    if (numpy := NumpyState.now()) != USUAL_NUMPY:
        yield f"{_objects(imported)}.set_numpy({dict(numpy.errors)}, {dict(numpy.printing)})"
    if (torch := TorchState.now()) is not None:
        dtype = str(torch.dtype).removeprefix("torch.")
        if dtype != "float32" or not torch.gradients:
            yield f"{_objects(imported)}.set_torch({dtype!r}, {torch.gradients})"


def _objects(imported: Callable[[str], str]) -> str:
    return imported("hive.session.objects")
