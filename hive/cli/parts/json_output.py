"""Keeps the JSON of a command apart from what the environments that it plays print, in Python or in C."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def environments_to_stderr(wanted: bool) -> Iterator[int]:
    """Send what is printed within this context to stderr, if `wanted`, because stdout gets one JSON value.

    Yields the descriptor of stdout.
    """
    if not wanted:
        yield 1
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield kept
    finally:
        ctypes.CDLL(None).fflush(None)  # C code, such as a simulator's, has a buffer of its own
        os.dup2(kept, 1)
        os.close(kept)
